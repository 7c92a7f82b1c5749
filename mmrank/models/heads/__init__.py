from .head_rules import watch_heads
from .metric_learning_head import MetricLearningHead

# The heads for mmdet stand in ranking_bbox_heads, ranking_dense_heads and
# ranking_query_heads; the registry imports those when one is asked for.
__all__ = ['MetricLearningHead']

watch_heads()
