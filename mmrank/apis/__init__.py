from typing import Any

from mmrank.files.images import list_images
from mmrank.optional import need

from .describe import describe, init_descriptor, match
from .embedding_extractor import EmbeddingExtractor
from .gallery_search import GallerySearch
from .search_result import SearchResult

__all__ = [
    'EmbeddingExtractor',
    'GallerySearch',
    'SearchResult',
    'describe',
    'init_descriptor',
    'list_images',
    'match',
]


def __getattr__(name: str) -> Any:
    """``DetInferencer`` is MMDetection's own, imported when asked for."""
    if name != 'DetInferencer':
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return need(
        'mmdet.apis', 'DetInferencer', 'onedl-mmdetection',
        instead='let `python -m mmrank check` name the versions that fit'
    ).DetInferencer
