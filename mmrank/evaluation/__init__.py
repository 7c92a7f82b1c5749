from .faiss_search import faiss_index
from .metrics import (
    HPatchesMetric,
    PatchVerificationMetric,
    RetrievalMetric,
    ranked_average_precision,
)

__all__ = [
    'HPatchesMetric',
    'PatchVerificationMetric',
    'RetrievalMetric',
    'faiss_index',
    'ranked_average_precision',
]
