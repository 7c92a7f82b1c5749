"""Warm-up of the head, frozen batch norm, statistics; in a Runner."""

import json
import math

import pytest
import torch
from mmengine.hooks import Hook

from mmrank.engine.hooks import (
    EmbeddingStatisticsHook,
    FrozenBNHook,
    HeadWarmupHook,
)
from mmrank.engine.hooks.embedding_statistics_hook import embedding_statistics

from ...test_models.metric_learning import learner, runner


class Snapshots(Hook):
    """The model's state after every epoch."""

    def __init__(self):
        self.states = []

    def before_train(self, run):
        self.after_train_epoch(run)

    def after_train_epoch(self, run):
        self.states.append({
            name: tensor.clone()
            for name, tensor in run.model.state_dict().items()
        })


def moved(before, after):
    """Names of the modules of which a parameter or buffer changed."""
    return {
        name.rsplit('.', 1)[0] for name in before
        if not torch.equal(before[name], after[name])
    }


def train(tmp_path, *hooks, max_epochs=3, **options):
    run = runner(tmp_path, learner(), max_epochs=max_epochs, **options)
    snapshots = Snapshots()
    for hook in (*hooks, snapshots):
        run.register_hook(hook)
    run.train()
    return run, snapshots.states


def optimizer(**options):
    return dict(optim_wrapper=dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=1e-3, weight_decay=.1)) | options)


@pytest.mark.parametrize('clip', [
    dict(type='value', clip_value=10), dict(type='norm', max_norm=.1)])
def test_only_the_head_learns_in_the_warm_epochs(clip, tmp_path):
    """Weight decay and momentum of the resting weights included."""
    run, states = train(tmp_path, HeadWarmupHook(2),
                        **optimizer(clip_grad=clip))
    for before, after in zip(states[:2], states[1:3]):
        # batch norm statistics are no parameters: FrozenBNHook's affair
        changed = {
            name for name in before
            if not torch.equal(before[name], after[name])
            and 'running' not in name and 'num_batches' not in name
        }
        assert {name.split('.')[0] for name in changed} == {'head'}
        assert 'head.proxies' in changed
    assert 'backbone.conv' in moved(states[2], states[3])
    # moments of the backbone begin after the warm-up: 5 steps, not 15
    steps = {
        name: int(run.optim_wrapper.optimizer.state[p]['step'])
        for name, p in run.model.named_parameters()
    }
    assert steps['backbone.conv.weight'] == 5
    assert steps['head.proxies'] == 15


def test_resting_gradients_do_not_count_in_clipping_by_norm(tmp_path):
    """The warm head moves as if the backbone were frozen for good."""
    clip = optimizer(clip_grad=dict(type='norm', max_norm=.1))
    _, warm = train(tmp_path, HeadWarmupHook(1), max_epochs=1, **clip)
    run = runner(tmp_path, learner(), **clip)
    run.model.backbone.requires_grad_(False)
    run.train()
    for name, tensor in run.model.head.state_dict().items():
        torch.testing.assert_close(warm[1][f'head.{name}'], tensor)


def test_a_resumed_warm_up_equals_an_uninterrupted_one(tmp_path):
    one, two = tmp_path / 'one', tmp_path / 'two'
    one.mkdir()
    two.mkdir()
    _, straight = train(one, HeadWarmupHook(2))
    _, resumed = train(two, HeadWarmupHook(2), resume=True,
                       load_from=str(one / 'epoch_1.pth'))
    for name, tensor in straight[-1].items():
        assert torch.equal(tensor, resumed[-1][name]), name


def test_warm_up_counts_iterations_on_demand_and_zero_does_nothing(tmp_path):
    run, _ = train(tmp_path, HeadWarmupHook(3, by_epoch=False), max_epochs=1)
    state = run.optim_wrapper.optimizer.state
    assert int(state[run.model.backbone.conv.weight]['step']) == 2
    _, states = train(tmp_path, HeadWarmupHook(0), max_epochs=1)
    assert 'backbone.conv' in moved(*states)


def test_warm_up_leaves_no_hook_behind(tmp_path):
    run, _ = train(tmp_path, HeadWarmupHook(9), max_epochs=1)
    weight = run.model.backbone.conv.weight
    weight.grad = None
    weight.sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))
    held = sum(
        (group['params'] for group in
         run.optim_wrapper.optimizer.param_groups), [])
    assert any(parameter is weight for parameter in held)


def test_a_checkpoint_of_the_warm_up_names_every_parameter(tmp_path):
    run, _ = train(tmp_path, HeadWarmupHook(9), max_epochs=1)
    saved = torch.load(tmp_path / 'epoch_1.pth', weights_only=False)
    groups = saved['optimizer']['param_groups']
    assert sum(len(group['params']) for group in groups) == len(
        list(run.model.parameters()))


def test_the_warm_up_also_holds_once_torch_compile_was_used(tmp_path):
    """Dynamo's import removes the step hooks of torch's optimisers."""
    import torch._dynamo
    _, states = train(tmp_path, HeadWarmupHook(1), max_epochs=1)
    assert torch.equal(*[state['backbone.conv.weight'] for state in states])


@pytest.mark.parametrize('by_prefix', [('head.proxies', ), 'head.proxies'])
def test_a_single_parameter_may_be_what_learns(by_prefix, tmp_path):
    _, states = train(tmp_path, HeadWarmupHook(1, by_prefix), max_epochs=1)
    assert moved(*states) - {'backbone.bn'} == {'head'}
    assert torch.equal(*[state['head.fc.weight'] for state in states])


def test_a_prefix_that_fits_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'hed'.*backbone"):
        train(tmp_path, HeadWarmupHook(1, ('hed', )))
    with pytest.raises(ValueError, match='-1'):
        HeadWarmupHook(-1)


def test_frozen_batch_norm_keeps_its_statistics_but_learns_its_weights(
        tmp_path):
    _, states = train(tmp_path, FrozenBNHook())
    first, last = states[0], states[-1]
    for name in ('running_mean', 'running_var', 'num_batches_tracked'):
        name = f'backbone.bn.{name}'
        assert torch.equal(first[name], last[name])
    assert not torch.equal(first['backbone.bn.weight'],
                           last['backbone.bn.weight'])
    _, states = train(tmp_path)
    assert not torch.equal(states[0]['backbone.bn.running_mean'],
                           states[-1]['backbone.bn.running_mean'])


def test_a_module_without_batch_norm_is_refused(tmp_path):
    for name in ('head', 'neck'):
        with pytest.raises(ValueError, match=f'no batch norm in {name!r}'):
            train(tmp_path, FrozenBNHook(name))


def test_statistics_reach_the_visualizer(tmp_path):
    isa = learner('ProxyISALoss', memory_size=9, queue_start=0,
                  weighting_start=0)
    run = runner(
        tmp_path, isa, max_epochs=2,
        visualizer=dict(type='Visualizer', name=tmp_path.name,
                        vis_backends=[dict(type='LocalVisBackend')]))
    run.register_hook(EmbeddingStatisticsHook(interval=4))
    run.train()
    lines = [
        json.loads(line)
        for file in tmp_path.rglob('scalars.json')
        for line in file.read_text().splitlines()
    ]
    found = [line for line in lines if 'embedding/own_proxy' in line]
    assert [line['step'] for line in found] == [4, 8]
    assert found[-1]['embedding/queue_length'] == 9
    for name in ('effective_rank', 'same_class', 'proxy_norm', 'sigma'):
        assert math.isfinite(found[-1][f'embedding/{name}'])


def test_statistics_are_the_numbers_they_are_called():
    embeddings = torch.tensor([[2., 0.], [0., 1.], [0., 3.]])
    found = embedding_statistics(
        embeddings, torch.tensor([0, 1, 0]),
        torch.tensor([[1., 0.], [0., 2.]]))
    assert found['same_class'] == 0
    assert found['other_class'] == pytest.approx(.5)
    assert found['own_proxy'] == pytest.approx(2 / 3)
    assert found['nearest_other_proxy'] == pytest.approx(1 / 3)
    assert found['proxy_norm'] == pytest.approx(1.5)
    collapsed = embedding_statistics(
        torch.ones(4, 3), torch.arange(4))
    assert collapsed['effective_rank'] == pytest.approx(1., abs=1e-3)
    assert 'same_class' not in collapsed


def test_an_interval_or_a_head_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match='interval'):
        EmbeddingStatisticsHook(0)
    with pytest.raises(ValueError, match="'bbox_head'"):
        train(tmp_path, EmbeddingStatisticsHook(head='bbox_head'))
