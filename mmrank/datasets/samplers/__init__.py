from .batch_samplers import ClassBalancedBatchSampler, SuperLabelBatchSampler
from .class_index import labels_of

__all__ = [
    'ClassBalancedBatchSampler', 'SuperLabelBatchSampler', 'labels_of'
]
