"""Child registries of MMEngine's, in the scope ``mmrank``.

``locations`` lets a type written as ``mmrank.X`` import the module that
registers it, so no ``custom_imports`` is needed for prefixed names.
"""

from mmengine.registry import DATA_SAMPLERS as MMENGINE_DATA_SAMPLERS
from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODEL_WRAPPERS as MMENGINE_MODEL_WRAPPERS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import VISUALIZERS as MMENGINE_VISUALIZERS
from mmengine.registry import Registry


def _child(parent: Registry, *locations: str) -> Registry:
    return Registry(
        parent.name,
        parent=parent,
        scope='mmrank',
        locations=[f'mmrank.{location}' for location in locations])


MODELS = _child(MMENGINE_MODELS, 'models')
DATASETS = _child(MMENGINE_DATASETS, 'datasets')
DATA_SAMPLERS = _child(MMENGINE_DATA_SAMPLERS, 'datasets')
TRANSFORMS = _child(MMENGINE_TRANSFORMS, 'datasets')
METRICS = _child(MMENGINE_METRICS, 'evaluation')
HOOKS = _child(MMENGINE_HOOKS, 'engine')
MODEL_WRAPPERS = _child(MMENGINE_MODEL_WRAPPERS, 'engine')
OPTIM_WRAPPERS = _child(MMENGINE_OPTIM_WRAPPERS, 'engine')
VISUALIZERS = _child(MMENGINE_VISUALIZERS, 'visualization')
