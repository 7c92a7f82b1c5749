"""Child registries of MMEngine's, in the scope ``mmrank``.

``locations`` lets a type written as ``mmrank.X`` import the module that
registers it, so no ``custom_imports`` is needed for prefixed names.
"""

from importlib import import_module

from mmengine.registry import DATA_SAMPLERS as MMENGINE_DATA_SAMPLERS
from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import (
    LOG_PROCESSORS,
    LOOPS,
    OPTIM_WRAPPER_CONSTRUCTORS,
    OPTIMIZERS,
    PARAM_SCHEDULERS,
    RUNNERS,
    VISBACKENDS,
    Registry,
)
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODEL_WRAPPERS as MMENGINE_MODEL_WRAPPERS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import VISUALIZERS as MMENGINE_VISUALIZERS

# Heads that derive from mmdet's, and where they stand: imported only when one
# is asked for, so metric learning needs no mmdet, nor the seconds of its
# import. A new head gets its line here.
_BBOX = 'mmrank.models.heads.detection.bbox'
_DENSE = 'mmrank.models.heads.detection.dense'
_QUERY = 'mmrank.models.heads.detection.query'
DETECTION_HEADS = {
    'RankBBoxHead': _BBOX,
    'RankConvFCBBoxHead': _BBOX,
    'RankDoubleConvFCBBoxHead': _BBOX,
    'RankShared2FCBBoxHead': _BBOX,
    'RankShared4Conv1FCBBoxHead': _BBOX,
    'RankATSSHead': _DENSE,
    'RankFCOSHead': _DENSE,
    'RankRPNHead': _DENSE,
    'RankRetinaHead': _DENSE,
    'RankConditionalDETRHead': _QUERY,
    'RankDABDETRHead': _QUERY,
    'RankDETRHead': _QUERY,
    'RankDINOHead': _QUERY,
    'RankDeformableDETRHead': _QUERY,
}


# and the metric that derives from one of mmdet's
DETECTION_METRICS = {
    'VOCPrecisionRecallMetric':
    'mmrank.evaluation.metrics.voc_precision_recall_metric',
}


class LazyRegistry(Registry):
    """Imports what stands in its table ``later`` when it is asked for."""

    later: dict[str, str]

    def get(self, key: str) -> type | None:
        scope, _, name = key.rpartition('.')
        if scope in ('', 'mmrank') and name in self.later:
            import_module(self.later[name])
        return super().get(key)


def _child(parent: Registry, *locations: str,
           later: dict[str, str] | None = None) -> Registry:
    registry = LazyRegistry(
        parent.name,
        parent=parent,
        scope='mmrank',
        locations=[f'mmrank.{location}' for location in locations])
    registry.later = later or {}
    return registry


MODELS = _child(MMENGINE_MODELS, 'models', later=DETECTION_HEADS)
DATASETS = _child(MMENGINE_DATASETS, 'datasets')
DATA_SAMPLERS = _child(MMENGINE_DATA_SAMPLERS, 'datasets')
TRANSFORMS = _child(MMENGINE_TRANSFORMS, 'datasets')
METRICS = _child(MMENGINE_METRICS, 'evaluation', later=DETECTION_METRICS)
HOOKS = _child(MMENGINE_HOOKS, 'engine')
MODEL_WRAPPERS = _child(MMENGINE_MODEL_WRAPPERS, 'engine')
OPTIM_WRAPPERS = _child(MMENGINE_OPTIM_WRAPPERS, 'engine')
VISUALIZERS = _child(MMENGINE_VISUALIZERS, 'visualization')

# what the package adds nothing to: with default_scope 'mmrank', MMEngine
# warns for each kind that has no registry of the scope
_UNUSED = [
    _child(parent) for parent in
    (LOG_PROCESSORS, LOOPS, OPTIMIZERS, OPTIM_WRAPPER_CONSTRUCTORS,
     PARAM_SCHEDULERS, RUNNERS, VISBACKENDS)
]
