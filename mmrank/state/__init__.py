from .collectives import Collectives, current
from .memory import BatchMemory, EmbeddingQueue

__all__ = ['BatchMemory', 'Collectives', 'EmbeddingQueue', 'current']
