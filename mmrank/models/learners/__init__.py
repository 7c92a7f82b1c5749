from .adasample import AdaSample
from .descriptor_learner import DescriptorLearner, PatchDataPreprocessor
from .metric_learner import MetricLearner

__all__ = [
    'AdaSample',
    'DescriptorLearner',
    'MetricLearner',
    'PatchDataPreprocessor',
]
