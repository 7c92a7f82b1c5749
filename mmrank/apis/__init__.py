from .gallery_search import GallerySearch, SearchResult

__all__ = ['GallerySearch', 'SearchResult']
