from .embedding_loss import EmbeddingContext, EmbeddingLoss
from .hinge_triplet_loss import HingeTripletLoss
from .pml_loss import PytorchMetricLearningLoss
from .proxy_anchor_loss import ProxyAnchorLoss
from .proxy_isa_loss import ProxyISALoss
from .rambo_loss import RaMBOLoss
from .rambo_recall_loss import RaMBORecallLoss
from .ranking_loss import RankingContext, RankingLoss
from .smooth_ap_loss import SmoothAPLoss

__all__ = [
    'EmbeddingContext',
    'EmbeddingLoss',
    'HingeTripletLoss',
    'ProxyAnchorLoss',
    'ProxyISALoss',
    'PytorchMetricLearningLoss',
    'RaMBOLoss',
    'RaMBORecallLoss',
    'RankingContext',
    'RankingLoss',
    'SmoothAPLoss',
]
