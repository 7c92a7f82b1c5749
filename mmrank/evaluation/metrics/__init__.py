from .hpatches_metric import HPatchesMetric, ranked_average_precision
from .patch_verification_metric import PatchVerificationMetric
from .retrieval_metric import RetrievalMetric

# VOCPrecisionRecallMetric builds on mmdet's; the registry imports it when it
# is asked for.
__all__ = [
    'HPatchesMetric',
    'PatchVerificationMetric',
    'RetrievalMetric',
    'ranked_average_precision',
]
