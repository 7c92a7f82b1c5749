from .atomic_checkpoint import AtomicCheckpointHook
from .class_names_check import ClassNamesCheckHook
from .descriptor_bank_hook import DescriptorBankHook
from .descriptor_collapse_hook import DescriptorCollapseHook
from .embedding_statistics_hook import EmbeddingStatisticsHook
from .frozen_bn_hook import FrozenBNHook
from .head_warmup_hook import HeadWarmupHook
from .retrieval_visualization_hook import RetrievalVisualizationHook
from .score_calibration_hook import ScoreCalibrationHook
from .seed_by_iteration_hook import SeedByIterationHook

__all__ = [
    'AtomicCheckpointHook',
    'ClassNamesCheckHook',
    'DescriptorBankHook',
    'DescriptorCollapseHook',
    'EmbeddingStatisticsHook',
    'FrozenBNHook',
    'HeadWarmupHook',
    'RetrievalVisualizationHook',
    'ScoreCalibrationHook',
    'SeedByIterationHook',
]
