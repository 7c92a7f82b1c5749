from .collectives import Collectives
from .memory import BatchMemory

__all__ = ['BatchMemory', 'Collectives']
