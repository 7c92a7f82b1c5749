from .proxies import (
    ProxyISAWeights,
    cosine_similarities,
    proxy_anchor_loss,
    proxy_isa_loss,
    proxy_isa_schedule,
    proxy_isa_weights,
)
from .ranking import (
    MAPTerms,
    blackbox_ap_loss,
    blackbox_map_loss,
    blackbox_map_terms,
    blackbox_recall_loss,
)
from .retrieval import (
    average_precision,
    fpr_at_recall,
    nearest_neighbours,
    retrieval_metrics,
)
from .triplets import (
    adasample_probabilities,
    adasample_weights,
    hinge_triplet_loss,
    hinge_triplet_losses,
)

__all__ = [
    'MAPTerms',
    'ProxyISAWeights',
    'adasample_probabilities',
    'adasample_weights',
    'average_precision',
    'blackbox_ap_loss',
    'blackbox_map_loss',
    'blackbox_map_terms',
    'blackbox_recall_loss',
    'cosine_similarities',
    'fpr_at_recall',
    'hinge_triplet_loss',
    'hinge_triplet_losses',
    'nearest_neighbours',
    'proxy_anchor_loss',
    'proxy_isa_loss',
    'proxy_isa_schedule',
    'proxy_isa_weights',
    'retrieval_metrics',
]
