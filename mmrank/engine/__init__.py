from .hooks import *  # noqa: F403
from .wrappers import BFloat16OptimWrapper, CPUDistributedDataParallel

__all__ = ['BFloat16OptimWrapper', 'CPUDistributedDataParallel']
