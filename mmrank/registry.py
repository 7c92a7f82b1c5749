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


class ModelRegistry(Registry):
    """Imports the heads derived from mmdet's only when one is asked for.

    Metric learning then needs no mmdet, nor the seconds of its import.
    """

    def get(self, key: str) -> type | None:
        if key.rpartition('.')[2].startswith('Rank'):
            for kind in ('bbox', 'dense', 'query'):
                import_module(f'mmrank.models.heads.ranking_{kind}_heads')
        return super().get(key)


def _child(parent: Registry, *locations: str,
           kind: type[Registry] = Registry) -> Registry:
    return kind(
        parent.name,
        parent=parent,
        scope='mmrank',
        locations=[f'mmrank.{location}' for location in locations])


MODELS = _child(MMENGINE_MODELS, 'models', kind=ModelRegistry)
DATASETS = _child(MMENGINE_DATASETS, 'datasets')
DATA_SAMPLERS = _child(MMENGINE_DATA_SAMPLERS, 'datasets')
TRANSFORMS = _child(MMENGINE_TRANSFORMS, 'datasets')
METRICS = _child(MMENGINE_METRICS, 'evaluation')
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
