from .embedding_extractor import EmbeddingExtractor, list_images
from .gallery_search import GallerySearch, SearchResult

__all__ = [
    'EmbeddingExtractor', 'GallerySearch', 'SearchResult', 'list_images'
]
