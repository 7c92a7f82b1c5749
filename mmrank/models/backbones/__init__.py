from .l2net import L2Net
from .timm_backbone import TimmBackbone

__all__ = ['L2Net', 'TimmBackbone']
