from .l2net import L2Net
from .sift import SIFTPatches
from .small_conv_net import SmallConvNet
from .timm_backbone import TimmBackbone

__all__ = ['L2Net', 'SIFTPatches', 'SmallConvNet', 'TimmBackbone']
