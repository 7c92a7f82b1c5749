import sys

import pytest
import torch

from mmrank.models.backbones import TimmBackbone
from mmrank.registry import MODELS


@pytest.mark.parametrize('name, options, shape', [
    ('resnet10t', {}, (2, 512, 2, 2)),
    ('resnet10t', dict(pooled=True), (2, 512)),
    ('vit_tiny_patch16_224', dict(img_size=64), (2, 192)),
    ('vit_tiny_patch16_224', dict(img_size=64, pooled=False), (2, 17, 192)),
    ('convnext_atto', {}, (2, 320, 2, 2)),
    ('convnext_atto', dict(pooled=True, in_chans=1), (2, 320)),
])
def test_features_and_channels(name, options, shape):
    pytest.importorskip('timm')
    backbone = TimmBackbone(name, **options)
    feats, = backbone(torch.rand(2, options.get('in_chans', 3), 64, 64))
    assert feats.shape == shape
    assert backbone.out_channels == (shape[1] if len(shape) != 3 else 192)
    feats.sum().backward()
    # nothing that learns is left without a gradient, for DDP's sake
    assert all((p.grad is not None) == p.requires_grad
               for p in backbone.parameters())


def test_channels_last_maps_are_turned():
    pytest.importorskip('timm')
    backbone = TimmBackbone(
        'swin_tiny_patch4_window7_224', img_size=64, window_size=2,
        embed_dim=24, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2))
    feats, = backbone(torch.rand(2, 3, 64, 64))
    assert feats.shape == (2, 192, 2, 2)


def test_an_unknown_model_suggests_near_names():
    pytest.importorskip('timm')
    with pytest.raises(ValueError, match='resnet18d'):
        TimmBackbone('resnet18x')


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, 'timm', None)
    with pytest.raises(ImportError, match='pip install timm'):
        TimmBackbone('resnet18')


@pytest.mark.parametrize('name, options', [
    ('resnet10t', {}), ('vit_tiny_patch16_224', dict(img_size=64))])
def test_pretrained_weights_are_loaded_when_a_runner_initialises(
        name, options, tmp_path):
    timm = pytest.importorskip('timm')
    weights = timm.create_model(name).state_dict()
    torch.save({key: torch.full_like(value, .25)
                for key, value in weights.items()}, tmp_path / 'timm.pth')
    model = MODELS.build(dict(
        type='mmrank.MetricLearner',
        backbone=dict(
            type='mmrank.TimmBackbone', model_name=name, pretrained=True,
            pretrained_cfg_overlay=dict(file=str(tmp_path / 'timm.pth')),
            **options),
        head=dict(type='mmrank.MetricLearningHead', in_channels=2,
                  embedding_size=2, num_classes=2,
                  loss=dict(type='mmrank.ProxyAnchorLoss'))))
    built = dict(model.backbone.model.named_parameters())
    # a position embedding of another size is interpolated, not copied
    same = {key for key, value in built.items()
            if value.shape == weights[key].shape}
    assert not any((built[key] == .25).all() for key in same)
    model.init_weights()
    assert all((built[key] == .25).all() for key in same)


def test_an_init_cfg_is_not_undone_by_timms_own_initialisation():
    pytest.importorskip('timm')
    backbone = TimmBackbone('resnet10t', init_cfg=dict(
        type='Constant', layer='Conv2d', val=.5))
    backbone.init_weights()
    assert (backbone.model.layer1[0].conv1.weight == .5).all()
