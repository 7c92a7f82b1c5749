"""Losses of pytorch-metric-learning by name."""

import sys

import pytest
import torch

from mmrank.models.losses import PytorchMetricLearningLoss
from mmrank.registry import MODELS

pytest.importorskip('pytorch_metric_learning')


def batch():
    return (torch.randn(8, 6, requires_grad=True),
            torch.arange(8) % 4)


@pytest.mark.parametrize('name', [
    'ContrastiveLoss', 'TripletMarginLoss', 'FastAPLoss', 'ProxyNCALoss',
    'ProxyAnchorLoss', 'MultiSimilarityLoss', 'ArcFaceLoss', 'SupConLoss',
    'SmoothAPLoss', 'NormalizedSoftmaxLoss', 'CircleLoss'
])
def test_every_common_loss_runs_and_has_gradients(name):
    loss = PytorchMetricLearningLoss(name, num_classes=4, embedding_size=6)
    embeddings, labels = batch()
    value = loss(embeddings, labels)
    value.backward()
    assert value.ndim == 0 and value.isfinite()
    assert embeddings.grad.isfinite().all() and embeddings.grad.any()
    assert all(p.grad is not None for p in loss.parameters())


def test_equals_the_library_itself():
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.miners import TripletMarginMiner
    embeddings, labels = batch()
    miner = TripletMarginMiner(margin=.3, type_of_triplets='hard')
    expected = TripletMarginLoss(margin=.3, distance=LpDistance(p=2))(
        embeddings, labels, miner(embeddings, labels))
    found = PytorchMetricLearningLoss(
        'TripletMarginLoss', margin=.3, loss_weight=2.,
        distance=dict(type='LpDistance', p=2),
        miner=dict(type='TripletMarginMiner', margin=.3,
                   type_of_triplets='hard'))(embeddings, labels)
    assert found.item() == pytest.approx(2 * expected.item())


@pytest.mark.parametrize('name', ['ContrastiveLoss', 'ProxyNCALoss'])
def test_an_empty_batch_is_zero_and_attached(name):
    loss = PytorchMetricLearningLoss(name, num_classes=4, embedding_size=6)
    embeddings = torch.empty(0, 6, requires_grad=True)
    value = loss(embeddings, torch.empty(0, dtype=torch.int64))
    value.backward()
    assert value.item() == 0
    assert all(p.grad is not None for p in loss.parameters())


def test_half_precision_of_a_batch_does_not_reach_the_librarys_parameters():
    loss = PytorchMetricLearningLoss(
        'ProxyAnchorLoss', num_classes=4, embedding_size=6)
    embeddings = torch.randn(8, 6, dtype=torch.float16, requires_grad=True)
    value = loss(embeddings, torch.arange(8) % 4)
    value.backward()
    assert loss.loss.proxies.dtype == torch.float32
    assert value.dtype == torch.float32
    assert embeddings.grad.dtype == torch.float16


def test_an_unknown_name_suggests_near_ones():
    with pytest.raises(ValueError, match='TripletMarginLoss'):
        PytorchMetricLearningLoss('TripletMarginloss')
    with pytest.raises(ValueError, match='MultiSimilarityMiner'):
        PytorchMetricLearningLoss('FastAPLoss', miner='MultiSimilarMiner')
    with pytest.raises(ValueError, match='CrossBatchMemory'):
        PytorchMetricLearningLoss('CrossBatchMemory')


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    for module in list(sys.modules):
        if module.split('.')[0] == 'pytorch_metric_learning':
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, 'pytorch_metric_learning', None)
    with pytest.raises(ImportError, match='pip install pytorch-metric'):
        PytorchMetricLearningLoss('FastAPLoss')


def test_the_head_fills_in_the_sizes_and_its_parameters_are_the_models():
    head = MODELS.build(dict(
        type='mmrank.MetricLearningHead', in_channels=5, embedding_size=6,
        num_classes=4,
        loss=dict(type='mmrank.PytorchMetricLearningLoss',
                  loss='ProxyNCALoss')))
    assert dict(head.named_parameters())[
        'loss_module.loss.proxies'].shape == (4, 6)
    assert head.proxies is None
