"""MetricLearningHead: pooling, samples of two kinds, proxies owned once."""

import pytest
import torch
from mmengine.structures import LabelData
from torch import nn

from mmrank.models.heads import MetricLearningHead
from mmrank.registry import MODELS
from mmrank.structures import RetrievalDataSample


def head(**options):
    options = dict(
        in_channels=3, embedding_size=5, num_classes=4,
        loss=dict(type='mmrank.ProxyAnchorLoss')) | options
    return MetricLearningHead(**options)


def samples(*labels, cls=RetrievalDataSample):
    found = []
    for label in labels:
        sample = cls()
        sample.gt_label = LabelData(label=torch.tensor([label]))
        found.append(sample)
    return found


@pytest.mark.parametrize('pooling, expected', [
    ('avg', [2.5, 0.]), ('max', [4., 3.]), ('avg+max', [6.5, 3.])])
def test_pooling(pooling, expected):
    maps = torch.tensor([[[[1., 2.], [3., 4.]], [[-1., 3.], [-2., 0.]]]])
    pooled = head(in_channels=2, pooling=pooling)._pool(maps)
    assert pooled.tolist() == [expected]
    tokens = maps.flatten(2).transpose(1, 2)
    assert head(in_channels=2, pooling=pooling)._pool(
        tokens).tolist() == [expected]


def test_pooled_features_are_taken_as_they_are_and_the_last_stage_counts():
    module = head()
    feats = torch.randn(2, 3)
    torch.testing.assert_close(
        module((torch.randn(2, 7, 4, 4), feats)), module(feats))


def test_features_of_another_rank_are_refused():
    with pytest.raises(ValueError, match=r'\(2, 3, 4, 4, 4\)'):
        head()(torch.randn(2, 3, 4, 4, 4))


@pytest.mark.parametrize('layer_norm', [False, True])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_embeddings_have_length_one_in_float32(layer_norm, dtype):
    module = head(layer_norm=layer_norm).to(dtype)
    found = module(torch.randn(2, 3, 4, 4).to(dtype))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.norm(dim=1), torch.ones(2))


def test_without_normalisation_the_layer_speaks():
    module = head(normalize=False)
    feats = torch.randn(2, 3)
    torch.testing.assert_close(module(feats), module.fc(feats))


def test_proxies_are_drawn_with_kaimings_fan_out():
    proxies = head(num_classes=500, embedding_size=200).proxies
    assert proxies.std().item() == pytest.approx((2 / 500)**.5, rel=.02)


def test_proxies_are_one_parameter_with_one_name():
    """A parameter with two names breaks the optimiser."""
    module = head(loss=dict(type='mmrank.ProxyISALoss', memory_size=5))
    names = [name for name, parameter in
             module.named_parameters(remove_duplicate=False)
             if parameter is module.proxies]
    assert names == ['proxies']


def test_a_loss_without_proxies_leaves_none():
    module = head(num_classes=None, loss=dict(
        type='mmrank.PytorchMetricLearningLoss', loss='FastAPLoss'))
    assert module.proxies is None
    assert 'proxies' not in module.state_dict()


@pytest.mark.parametrize('num_classes', [None, 0, 2.5])
def test_a_missing_number_of_classes_is_refused(num_classes):
    with pytest.raises(ValueError, match='num_classes'):
        head(num_classes=num_classes)


def test_an_unknown_pooling_is_refused():
    with pytest.raises(ValueError, match="'mean'"):
        head(pooling='mean')


def test_loss_and_predict():
    module, data = head(), samples(0, 3, 1)
    feats = torch.randn(3, 3, 4, 4)
    losses = module.loss(feats, data)
    assert list(losses) == ['loss_metric'] and losses['loss_metric'] > 0
    predicted = module.predict(feats, data)
    assert predicted is data
    for sample, embedding in zip(predicted, module(feats)):
        torch.testing.assert_close(sample.pred_embedding, embedding)
    assert len(module.predict(feats)) == 3


def test_a_loss_that_returns_a_dict_passes_it_on():

    @MODELS.register_module(force=True)
    class TwoPartLoss(nn.Module):

        def forward(self, embeddings, labels, proxies=None):
            return dict(loss_a=embeddings.sum(), loss_b=labels.sum())

    losses = head(loss=dict(type='mmrank.TwoPartLoss')).loss(
        torch.randn(2, 3), samples(1, 2))
    assert set(losses) == {'loss_a', 'loss_b'}


def test_an_empty_batch_keeps_its_loss_key():
    losses = head().loss(torch.randn(0, 3, 4, 4), [])
    losses['loss_metric'].backward()
    assert losses['loss_metric'].item() == 0


def test_labels_out_of_range_name_the_remedy():
    with pytest.raises(ValueError, match=r'\[9\].*num_classes'):
        head().loss(torch.randn(2, 3), samples(1, 9))


def test_works_with_the_samples_of_mmdets_reid():
    structures = pytest.importorskip('mmdet.structures')
    data = samples(0, 3, cls=structures.ReIDDataSample)
    module, feats = head(), (torch.randn(2, 3, 4, 4), )
    assert module.loss(feats, data)['loss_metric'] > 0
    for sample in module.predict(feats, data):
        assert torch.equal(sample.pred_feature, sample.pred_embedding)


def test_works_inside_mmdets_base_reid():
    pytest.importorskip('mmpretrain')
    from mmdet.models.reid import BaseReID
    from mmdet.structures import ReIDDataSample

    from ..metric_learning import TinyBackbone  # noqa: F401
    model = BaseReID(
        data_preprocessor=dict(type='mmdet.ReIDDataPreprocessor'),
        backbone=dict(type='mmrank.TinyBackbone'),
        head=dict(
            type='mmrank.MetricLearningHead', in_channels=8,
            embedding_size=5, num_classes=4,
            loss=dict(type='mmrank.ProxyAnchorLoss')))
    data = dict(inputs=[torch.rand(3, 9, 9) for _ in range(3)],
                data_samples=samples(0, 3, 1, cls=ReIDDataSample))
    losses = model(**model.data_preprocessor(data, True), mode='loss')
    losses['loss_metric'].backward()
    assert model.head.proxies.grad.any()
    for sample in model.eval().val_step(data):
        assert sample.pred_feature.shape == (5, )
    assert model(torch.rand(2, 3, 9, 9)).shape == (2, 5)
