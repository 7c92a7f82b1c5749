from .glyphs import GlyphRetrievalDataset
from .hpatches import HPatchesDataset
from .patch_classes import PatchClassDataset
from .photo_tour import PhotoTourDataset
from .retrieval import (
    CarsDataset,
    CSVRetrievalDataset,
    CUBDataset,
    FolderRetrievalDataset,
    InShopDataset,
    RetrievalDataset,
    StanfordOnlineProductsDataset,
)
from .samplers import (
    ClassBalancedBatchSampler,
    DistinctClassSampler,
    SuperLabelBatchSampler,
)
from .transforms import ImageTransforms, LoadImage, PackRetrievalInputs

__all__ = [
    'CSVRetrievalDataset', 'CUBDataset', 'CarsDataset',
    'ClassBalancedBatchSampler', 'DistinctClassSampler',
    'FolderRetrievalDataset',
    'GlyphRetrievalDataset', 'HPatchesDataset', 'ImageTransforms',
    'InShopDataset', 'LoadImage', 'PackRetrievalInputs', 'PatchClassDataset',
    'PhotoTourDataset', 'RetrievalDataset', 'StanfordOnlineProductsDataset',
    'SuperLabelBatchSampler'
]
