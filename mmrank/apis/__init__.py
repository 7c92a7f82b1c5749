from .describe import describe, init_descriptor, match
from .embedding_extractor import EmbeddingExtractor, list_images
from .gallery_search import GallerySearch, SearchResult

__all__ = [
    'EmbeddingExtractor',
    'GallerySearch',
    'SearchResult',
    'describe',
    'init_descriptor',
    'list_images',
    'match',
]
