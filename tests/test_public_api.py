"""The names that users type, from one checked-in list."""

import importlib
import inspect
import itertools
import pkgutil
import subprocess
import sys

import pytest
from mmengine.config import Config
from mmengine.registry import DefaultScope

import mmrank
from mmrank import functional, registry

FUNCTIONAL = {
    'blackbox_loss': '(scores, relevance, rule, *, margin=0.0, lambda_val=1.0',
    'blackbox_ap_loss': '(scores, relevance, *, margin=0.0, lambda_val=1.0',
    'blackbox_map_loss': '(scores, relevance, *, margin',
    'blackbox_recall_loss': '(similarity, relevance, *, margin',
    'proxy_anchor_loss': '(embeddings, labels, proxies, *, margin=0.1, '
    'alpha=32.0',
    'proxy_isa_loss': '(',
    'proxy_isa_weights': '(',
    'hinge_triplet_loss': "(anchors, positives, *, margin=1.0, "
    "distance='angular', weights=None",
    'adasample_probabilities': '(distances, exponent',
    'retrieval_metrics': '(queries, query_labels, gallery=None, '
    'gallery_labels=None, *, ks=(1,), chunk_size=None',
    'fpr_at_recall': '(distances, matches, recall=0.95',
}
REGISTERED = {
    'MODELS': ['RaMBOLoss', 'RaMBORecallLoss', 'ProxyAnchorLoss',
               'ProxyISALoss', 'HingeTripletLoss', 'MetricLearningHead',
               'MetricLearner', 'L2Net', 'AdaSample'],
    'DATA_SAMPLERS': ['ClassBalancedBatchSampler',
                      'SuperLabelBatchSampler'],
    'DATASETS': ['CUBDataset', 'CarsDataset',
                 'StanfordOnlineProductsDataset', 'InShopDataset',
                 'FolderRetrievalDataset', 'GlyphRetrievalDataset',
                 'PhotoTourDataset', 'HPatchesDataset'],
    'METRICS': ['RetrievalMetric', 'PatchVerificationMetric',
                'HPatchesMetric'],
    'HOOKS': ['AtomicCheckpointHook'],
    'MODEL_WRAPPERS': ['CPUDistributedDataParallel'],
    'OPTIM_WRAPPERS': ['BFloat16OptimWrapper'],
}
NAMES = [(kind, name) for kind, names in REGISTERED.items()
         for name in names]


@pytest.fixture(params=['mmdet', 'mmrank', 'mmengine'])
def scope(request):
    if request.param == 'mmdet':
        pytest.importorskip('mmdet')
    name = f'test-{request.param}'
    DefaultScope.get_instance(name, scope_name=request.param)
    with DefaultScope.overwrite_default_scope(request.param):
        yield request.param


@pytest.mark.parametrize('name', FUNCTIONAL)
def test_function_has_its_name_and_leading_signature(name):
    function = getattr(functional, name)
    shown = inspect.signature(function)
    plain = shown.replace(
        return_annotation=inspect.Signature.empty,
        parameters=[part.replace(annotation=inspect.Parameter.empty)
                    for part in shown.parameters.values()])
    assert str(plain).startswith(FUNCTIONAL[name])
    assert name in functional.__all__


@pytest.mark.parametrize('kind, name', NAMES)
def test_registered_name_is_found_from_every_scope(kind, name, scope):
    root = getattr(importlib.import_module('mmengine.registry'), kind)
    found = root.get(f'mmrank.{name}')
    assert found is not None and found.__name__ == name
    if scope == 'mmdet':
        registries = importlib.import_module('mmdet.registry')
        assert getattr(registries, kind).get(f'mmrank.{name}') is found


@pytest.mark.parametrize('typed', ['mmrank.NoSuchLoss', 'NoSuchLoss'])
def test_unknown_name_is_named_in_the_error(typed, scope):
    with pytest.raises(KeyError, match='NoSuchLoss'):
        registry.MODELS.build(dict(type=typed))


def public_objects():
    """Every public function and class with its module, methods too."""
    for info in pkgutil.walk_packages(mmrank.__path__, 'mmrank.'):
        if info.name.rsplit('.', 1)[-1].startswith('__'):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if (name.startswith('_')
                    or getattr(value, '__module__', '') != info.name
                    or not (inspect.isclass(value)
                            or inspect.isfunction(value))):
                continue
            yield f'{info.name}.{name}', value
            if inspect.isclass(value):
                for part, member in vars(value).items():
                    if not part.startswith('_') and inspect.isfunction(
                            member):
                        yield f'{info.name}.{name}.{part}', member


def test_every_public_function_and_class_has_a_docstring():
    pytest.importorskip('mmdet')  # some modules derive from its classes
    silent = [name for name, value in public_objects()
              if not inspect.getdoc(value)]
    assert silent == []


IMPORT = """
import importlib, sys, warnings
for name in sys.argv[1:]:
    importlib.import_module(name)
from mmengine.registry import MODELS
assert MODELS.get('mmrank.RaMBOLoss').__name__ == 'RaMBOLoss'
"""
ORDERS = [*itertools.permutations(['mmdet.models', 'mmrank.models']),
          ('mmrank.registry', 'mmdet.registry', 'mmrank.models',
           'mmdet.models', 'mmrank.engine', 'mmrank.models'),
          ('mmpretrain.models', 'mmrank.models', 'mmdet.models'),
          ('mmrank.models', 'mmdet.models', 'mmpretrain.models')]


@pytest.mark.parametrize('order', ORDERS, ids='-'.join)
def test_imports_in_any_order_register_once(order):
    for name in order:
        pytest.importorskip(name.split('.')[0])
    done = subprocess.run([sys.executable, '-c', IMPORT, *order],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('kind', REGISTERED)
def test_no_other_library_registers_one_of_our_names(kind):
    pytest.importorskip('mmdet.models')
    root = getattr(registry, kind)
    root.import_from_location()
    ours = {name for name, found in root.module_dict.items()
            if found.__module__.startswith('mmrank.')}
    assert ours >= set(REGISTERED[kind])
    for library in ('mmengine', 'mmdet'):
        theirs = getattr(importlib.import_module(f'{library}.registry'), kind)
        # MMEngine's takes no care of labels: ours, of its name and derived
        # from it, stands in its place where the scope is mmrank
        assert ours & set(theirs.module_dict) <= {'ConcatDataset'}, library


def test_custom_imports_work_and_a_misspelt_one_is_named():
    text = "custom_imports = dict(imports=['{}'])\n" \
        "model = dict(type='mmrank.HingeTripletLoss')"
    cfg = Config.fromstring(text.format('mmrank'), '.py')
    assert registry.MODELS.build(cfg.model) is not None
    with pytest.raises(ImportError, match='mmrank_losses'):
        Config.fromstring(text.format('mmrank_losses'), '.py')


def test_importing_the_package_loads_neither_torch_nor_mmcv():
    code = ("import sys, mmrank; print([name for name in "
            "('torch', 'mmengine', 'mmcv', 'mmdet') if name in sys.modules])")
    done = subprocess.run([sys.executable, '-c', code],
                          capture_output=True, text=True)
    assert done.stdout.strip() == '[]', done.stderr


def test_library_parts_import_where_mmcv_and_mmdet_are_missing():
    code = ("import sys; sys.modules.update(mmcv=None, mmdet=None); "
            "import mmrank.functional, mmrank.state, mmrank.models, "
            "mmrank.datasets, mmrank.evaluation, mmrank.engine.launch")
    done = subprocess.run([sys.executable, '-c', code],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_type_of_a_config_without_custom_imports_is_built():
    cfg = Config.fromstring(
        "model = dict(type='mmrank.HingeTripletLoss')", '.py')
    assert registry.MODELS.build(cfg.model) is not None


def test_every_registered_loss_is_exported_by_the_package_of_losses():
    losses = importlib.import_module('mmrank.models.losses')
    ours = {name for name, loss in registry.MODELS.module_dict.items()
            if loss.__module__.startswith('mmrank.models.losses.')}
    assert ours and ours <= set(losses.__all__)


RANKED_LIST = """
import sys
sys.modules.update(mmcv=None, mmdet=None)
from torch import nn
from mmrank.registry import MODELS

@MODELS.register_module()
class RankedListLoss(nn.Module):
    pass

assert type(MODELS.build(dict(type='RankedListLoss'))) is RankedListLoss
assert type(MODELS.build(dict(type='mmrank.RankedListLoss'))) is RankedListLoss
"""


def test_a_loss_whose_name_begins_like_our_heads_needs_no_mmdet():
    done = subprocess.run([sys.executable, '-c', RANKED_LIST],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_table_of_detection_heads_names_every_head_where_it_stands():
    pytest.importorskip('mmdet')
    package = 'mmrank.models.heads.detection'
    for kind in ('bbox', 'dense', 'query'):
        importlib.import_module(f'{package}.{kind}')
    stand = {name: head.__module__
             for name, head in registry.MODELS.module_dict.items()
             if head.__module__.startswith(f'{package}.')}
    assert stand == registry.DETECTION_HEADS
