from .generators import GlyphRetrievalDataset
from .readers import (
    CarsDataset,
    ConcatDataset,
    CSVRetrievalDataset,
    CUBDataset,
    FolderRetrievalDataset,
    HPatchesDataset,
    InShopDataset,
    PatchClassDataset,
    PhotoTourDataset,
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
    'ClassBalancedBatchSampler', 'ConcatDataset', 'DistinctClassSampler',
    'FolderRetrievalDataset',
    'GlyphRetrievalDataset', 'HPatchesDataset', 'ImageTransforms',
    'InShopDataset', 'LoadImage', 'PackRetrievalInputs', 'PatchClassDataset',
    'PhotoTourDataset', 'RetrievalDataset', 'StanfordOnlineProductsDataset',
    'SuperLabelBatchSampler'
]
