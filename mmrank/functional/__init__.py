from .proxies import (
    ProxyISAWeights,
    cosine_similarities,
    proxy_anchor_loss,
    proxy_isa_loss,
    proxy_isa_schedule,
    proxy_isa_weights,
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
    'ProxyISAWeights',
    'adasample_probabilities',
    'adasample_weights',
    'average_precision',
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
