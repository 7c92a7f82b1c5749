from .adasample import adasample_probabilities, adasample_weights, draw
from .average_precision import average_precision
from .average_precision_loss import (
    MAPTerms,
    blackbox_ap_loss,
    blackbox_map_loss,
    blackbox_map_terms,
)
from .blackbox import Ranks, Rule, blackbox_loss
from .fpr import fpr_at_recall
from .hinge_triplet import (
    DISTANCES,
    hinge_triplet_loss,
    hinge_triplet_losses,
    squared_distances,
    weighted_mean,
)
from .neighbours import Search, nearest_neighbours
from .proxies import cosine_similarities
from .proxy_anchor import proxy_anchor_loss
from .proxy_isa import (
    ProxyISAWeights,
    proxy_isa_loss,
    proxy_isa_schedule,
    proxy_isa_weights,
)
from .ranking_path import last_ranking_path, ranking_path
from .recall_loss import blackbox_recall_loss
from .retrieval import retrieval_metrics
from .smooth_ap_loss import smooth_ap_loss

__all__ = [
    'DISTANCES',
    'MAPTerms',
    'ProxyISAWeights',
    'Ranks',
    'Rule',
    'Search',
    'adasample_probabilities',
    'adasample_weights',
    'average_precision',
    'blackbox_ap_loss',
    'blackbox_loss',
    'blackbox_map_loss',
    'blackbox_map_terms',
    'blackbox_recall_loss',
    'cosine_similarities',
    'draw',
    'fpr_at_recall',
    'hinge_triplet_loss',
    'hinge_triplet_losses',
    'last_ranking_path',
    'nearest_neighbours',
    'proxy_anchor_loss',
    'proxy_isa_loss',
    'proxy_isa_schedule',
    'proxy_isa_weights',
    'ranking_path',
    'retrieval_metrics',
    'smooth_ap_loss',
    'squared_distances',
    'weighted_mean',
]
