from .faiss_search import faiss_index
from .metrics import *  # noqa: F403
from .metrics import __all__ as _metrics

__all__ = ['faiss_index', *_metrics]
