from .collectives import Collectives
from .memory import BatchMemory, EmbeddingQueue

__all__ = ['BatchMemory', 'Collectives', 'EmbeddingQueue']
