from .metric_learning_head import MetricLearningHead

__all__ = ['MetricLearningHead']
