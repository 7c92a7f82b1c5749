"""MetricLearner in a Runner: what learns, what is saved, what resumes."""

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.optim import build_optim_wrapper
from mmengine.utils import digit_version

from mmrank.models.learners import MetricLearner
from mmrank.registry import MODELS

from ..metric_learning import WIDTH, NoisyColours, learner, runner

ISA = dict(loss='ProxyISALoss', memory_size=7, queue_start=0,
           weighting_start=1, V=10.)


def build(**options) -> MetricLearner:
    return MODELS.build(learner(**options))


def batch(n=6):
    items = [NoisyColours()[index] for index in range(n)]
    return dict(inputs=[item['inputs'] for item in items],
                data_samples=[item['data_samples'] for item in items])


def test_the_three_modes():
    model = build()
    data = model.data_preprocessor(batch(), True)
    embeddings = model(data['inputs'])
    assert embeddings.shape == (6, WIDTH)
    losses = model(**data, mode='loss')
    assert losses['loss_metric'].requires_grad
    predicted = model(**data, mode='predict')
    assert [sample.sample_idx for sample in predicted] == list(range(6))
    torch.testing.assert_close(
        torch.stack([s.pred_embedding for s in predicted]), embeddings)


def test_an_unknown_mode_and_missing_samples_are_refused():
    model, inputs = build(), torch.rand(2, 3, 9, 9)
    with pytest.raises(ValueError, match="'train'"):
        model(inputs, mode='train')
    with pytest.raises(ValueError, match='data_samples'):
        model(inputs, mode='loss')


def test_a_neck_stands_between_backbone_and_head():

    @MODELS.register_module(force=True)
    class OnesNeck(torch.nn.Module):

        def forward(self, feats):
            return torch.ones(len(feats[0]), 8)

    model = MODELS.build(learner() | dict(neck=dict(type='mmrank.OnesNeck')))
    assert model.extract_feat(torch.rand(2, 3, 9, 9)).tolist() == [[1.] * 8
                                                                   ] * 2


@pytest.mark.parametrize('key', ['head.proxies', 'proxies'])
def test_proxies_get_their_own_rate_and_nothing_else_does(key):
    """lr x 100 and no decay for the proxies; a custom key matches by
    substring and replaces other multipliers."""
    for options in ({}, ISA):
        model = build(**options)
        wrapper = build_optim_wrapper(model, dict(
            optimizer=dict(type='AdamW', lr=1e-4, weight_decay=1e-4),
            paramwise_cfg=dict(
                norm_decay_mult=0.5, bias_lr_mult=2.,
                custom_keys={key: dict(lr_mult=100, decay_mult=0)})))
        groups = {
            id(group['params'][0]): (group['lr'], group['weight_decay'])
            for group in wrapper.optimizer.param_groups
        }
        found = {
            name: groups[id(p)] for name, p in model.named_parameters()
        }
        assert len(groups) == len(found)
        assert [name for name in found if key in name] == ['head.proxies']
        assert found.pop('head.proxies') == pytest.approx((1e-2, 0))
        assert found.pop('head.fc.bias') == pytest.approx((2e-4, 1e-4))
        assert found.pop('backbone.bn.weight') == pytest.approx((1e-4, 5e-5))
        assert found.pop('backbone.bn.bias') == pytest.approx((1e-4, 5e-5))
        assert found.pop('backbone.conv.bias') == pytest.approx((2e-4, 1e-4))
        for name, settings in found.items():
            assert settings == pytest.approx((1e-4, 1e-4)), name


@pytest.mark.parametrize('options, name', [
    ({}, 'head.proxies'),
    (ISA, 'head.proxies'),
    (dict(loss='PytorchMetricLearningLoss'), None),
])
def test_proxies_reach_the_optimiser_move_and_are_saved(
        options, name, tmp_path):
    model = learner(**options)
    if name is None:
        model['head']['loss']['loss'] = 'ProxyNCALoss'
        name = 'head.loss_module.loss.proxies'
    run = runner(tmp_path, model, max_epochs=2)
    before = run.model.state_dict()[name].clone()
    run.train()
    after = run.model.state_dict()[name]
    assert not torch.equal(before, after)
    saved = torch.load(tmp_path / 'epoch_2.pth', weights_only=False)
    assert torch.equal(saved['state_dict'][name], after)


class KeepLosses(Hook):

    def __init__(self, losses):
        self.losses = losses

    def after_train_iter(self, run, batch_idx, data_batch=None, outputs=None):
        self.losses.append(outputs['loss'].item())


def train(work_dir, model, losses, **options):
    run = runner(work_dir, model, **options)
    run.register_hook(KeepLosses(losses))
    run.train()
    return run


@pytest.mark.parametrize('ema', [False, True])
def test_five_and_five_iterations_equal_ten(ema, tmp_path):
    """Losses, weights, and the state of Proxy-ISA, in whose second epoch
    weighting and filtering act."""
    hooks = [dict(type='EMAHook', update_buffers=True)] if ema else []
    straight, resumed = tmp_path / 'straight', tmp_path / 'resumed'
    straight.mkdir()
    resumed.mkdir()
    expected, found = [], []
    one = train(straight, learner(**ISA), expected, max_epochs=2,
                custom_hooks=hooks)
    other = train(resumed, learner(**ISA), found, max_epochs=2, resume=True,
                  load_from=str(straight / 'epoch_1.pth'),
                  custom_hooks=hooks)
    assert len(expected) == 10
    assert found == expected[5:]
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name
    loss = other.model.head.loss_module
    assert len(loss.queue) == 7 and loss.counts.sum() > 5


@pytest.mark.parametrize('options', [{}, ISA | dict(by_epoch=False)])
@pytest.mark.parametrize('scale', [1., 65536.])
def test_steps_under_autocast_with_a_scaled_loss_stay_finite(options, scale):
    model = build(**options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        with torch.autocast('cpu', torch.bfloat16):
            data = model.data_preprocessor(batch(), True)
            loss = model(**data, mode='loss')['loss_metric']
        assert loss.dtype == torch.float32
        (scale * loss).backward()
        for parameter in model.parameters():
            assert parameter.grad.dtype == torch.float32
            assert parameter.grad.isfinite().all()
            parameter.grad /= scale
        optimizer.step()


def test_training_lowers_the_loss(tmp_path):
    losses = []
    train(tmp_path, learner(), losses, max_epochs=6)
    assert sum(losses[-5:]) < .9 * sum(losses[:5])


# the Runner compiles train_step, and torch 2.1 fails in MMEngine's data
# preprocessor, whatever the model; the model alone it can compile
BY_RUNNER = [] if digit_version(torch.__version__) < digit_version('2.6') \
    else [dict(compile=dict(backend='eager'))]


@pytest.mark.parametrize('cfg', [{}, *BY_RUNNER])
def test_a_compiled_learner_learns_what_an_eager_one_does(cfg, tmp_path):
    """The ranking breaks the graph, the rest is compiled around it."""
    # not Adam: it makes a step of the rounding of a gradient that is zero,
    # which that of a bias in front of a batch norm is
    sgd = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=.1))
    states = []
    for compiled in (False, True):
        run = runner(tmp_path, learner('RaMBORecallLoss'), max_epochs=2,
                     optim_wrapper=sgd, cfg=dict(cfg) if compiled else {})
        if compiled and not cfg:
            run.model.forward = torch.compile(
                run.model.forward, backend='eager')
        run.train()
        states.append(run.model.state_dict())
    torch._dynamo.reset()
    for (name, eager), found in zip(states[0].items(), states[1].values()):
        torch.testing.assert_close(found, eager, msg=name)
