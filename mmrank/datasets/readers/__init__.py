from .benchmarks import (
    CarsDataset,
    CUBDataset,
    InShopDataset,
    StanfordOnlineProductsDataset,
)
from .csv_list import CSVRetrievalDataset
from .folder import FolderRetrievalDataset
from .hpatches import HPatchesDataset
from .joined import ConcatDataset
from .patch_classes import PatchClassDataset
from .photo_tour import PhotoTourDataset
from .retrieval import RetrievalDataset

__all__ = [
    'CSVRetrievalDataset', 'CUBDataset', 'CarsDataset', 'ConcatDataset',
    'FolderRetrievalDataset', 'HPatchesDataset', 'InShopDataset',
    'PatchClassDataset', 'PhotoTourDataset', 'RetrievalDataset',
    'StanfordOnlineProductsDataset'
]
