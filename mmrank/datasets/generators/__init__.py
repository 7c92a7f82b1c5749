from .digits_on_photos import DigitsOnPhotosOptions, make_digits_on_photos
from .glyphs import GlyphRetrievalDataset
from .photo_patches import write_photo_patches

__all__ = [
    'DigitsOnPhotosOptions', 'GlyphRetrievalDataset', 'make_digits_on_photos',
    'write_photo_patches'
]
