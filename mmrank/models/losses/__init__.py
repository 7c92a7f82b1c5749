from .hinge_triplet_loss import HingeTripletLoss
from .proxy_anchor_loss import ProxyAnchorLoss

__all__ = ['HingeTripletLoss', 'ProxyAnchorLoss']
