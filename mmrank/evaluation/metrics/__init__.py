from importlib.util import find_spec

from .hpatches_metric import HPatchesMetric, ranked_average_precision
from .patch_verification_metric import PatchVerificationMetric
from .retrieval_metric import RetrievalMetric

__all__ = [
    'HPatchesMetric',
    'PatchVerificationMetric',
    'RetrievalMetric',
    'ranked_average_precision',
]
# this one builds on MMDetection's
if find_spec('mmdet') and find_spec('mmcv'):
    from .voc_precision_recall_metric import VOCPrecisionRecallMetric
    __all__ += ['VOCPrecisionRecallMetric']
