from .retrieval import RetrievalVisualizer

__all__ = ['RetrievalVisualizer']
