from .batch_samplers import ClassBalancedBatchSampler, SuperLabelBatchSampler
from .class_index import labels_of
from .distinct_class_sampler import DistinctClassSampler

__all__ = [
    'ClassBalancedBatchSampler', 'DistinctClassSampler',
    'SuperLabelBatchSampler', 'labels_of'
]
