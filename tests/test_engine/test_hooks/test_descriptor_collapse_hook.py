import logging
from types import SimpleNamespace

import pytest
import torch
from mmengine.logging import MessageHub
from torch.nn.functional import normalize

from mmrank.engine.hooks import DescriptorCollapseHook
from mmrank.engine.hooks.descriptor_collapse_hook import descriptor_spread
from mmrank.models.learners.descriptor_learner import Pairs
from tests.test_models.test_learners.test_descriptor_learner import (
    class_batch,
    loss_of,
    make,
)


def rows(count=32, width=16, seed=0):
    return normalize(torch.randn(
        count, width, generator=torch.Generator().manual_seed(seed)), dim=1)


def pairs(collapsed):
    """Independent directions, or all of them near one line."""
    anchors, positives = rows(), rows(seed=1)
    if collapsed:
        line = torch.tensor([1., -1.]).repeat(16)[:, None] * rows(1)
        anchors, positives = (
            normalize(line + .05 * x, dim=1) for x in (anchors, positives))
    return Pairs(anchors, positives, torch.arange(32))


def runner(model):
    hub = MessageHub.get_instance(f'collapse-{id(model)}')
    return SimpleNamespace(model=model, iter=0, message_hub=hub,
                           logger=logging.getLogger('collapse'))


def measure(hook, run, steps):
    for _ in range(steps):
        hook.after_train_iter(run, 0)
        run.iter += 1


def test_spread_counts_pairs_and_non_pairs_by_the_definition():
    anchors, positives = rows(6), rows(6, seed=1)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    found = descriptor_spread(anchors, positives, labels)
    apart = [(a - p).norm() for a, i in zip(anchors, labels)
             for p, j in zip(positives, labels) if i != j]
    apart = torch.stack(apart).mean()
    both = torch.cat([anchors, positives])
    variances = torch.linalg.svdvals(both - both.mean(0)).square()
    assert found['non_pair_distance'] == pytest.approx(float(apart), rel=1e-4)
    assert found['pair_ratio'] == pytest.approx(
        float((anchors - positives).norm(dim=1).mean() / apart), rel=1e-4)
    assert found['first_component'] == pytest.approx(
        float(variances[0] / variances.sum()), rel=1e-4)


def test_spread_of_one_point_or_one_class_is_finite():
    same = rows(1).expand(4, -1)
    for labels in (torch.arange(4), torch.zeros(4, dtype=torch.long)):
        found = descriptor_spread(same, same, labels)
        assert all(torch.tensor(list(found.values())).isfinite())
    assert found['non_pair_distance'] == found['pair_ratio'] == 0


def test_a_collapse_is_warned_of_once_with_a_remedy(caplog):
    model = SimpleNamespace(pairs=pairs(collapsed=True))
    hook, run = DescriptorCollapseHook(1, patience=2), runner(model)
    measure(hook, run, 1)
    assert not caplog.records  # once may be chance
    measure(hook, run, 5)
    message, = [record.getMessage() for record in caplog.records]
    assert 'collapse' in message and 'hard_below' in message


def test_descriptors_that_spread_are_logged_without_a_warning(caplog):
    model = SimpleNamespace(pairs=pairs(collapsed=False))
    hook, run = DescriptorCollapseHook(1), runner(model)
    measure(hook, run, 5)
    assert not caplog.records
    logged = run.message_hub.log_scalars
    assert logged['train/first_component'].current() < .3
    assert logged['train/non_pair_distance'].current() > 1.2
    # the latest only: a mean over old measurements hides a collapse
    assert len(logged['train/pair_ratio'].data[0]) == 1


def test_the_device_is_waited_for_at_the_interval_alone(monkeypatch):
    calls = []
    monkeypatch.setattr(
        'mmrank.engine.hooks.descriptor_collapse_hook.descriptor_spread',
        lambda *given: calls.append(given) or dict(
            first_component=0., pair_ratio=0., non_pair_distance=1.))
    model = SimpleNamespace(pairs=pairs(collapsed=False))
    measure(DescriptorCollapseHook(interval=5), runner(model), 12)
    assert len(calls) == 2


def test_the_learner_hands_out_the_pairs_of_its_last_batch():
    model = make().train()
    assert model.pairs is None
    loss_of(model, class_batch())
    anchors, positives, labels = model.pairs
    assert anchors.shape == positives.shape == (6, 8)
    assert not anchors.requires_grad and not positives.requires_grad
    assert labels.tolist() == [68268 * i for i in range(6)]


def test_clear_errors():
    with pytest.raises(ValueError, match='interval must be an integer.*0'):
        DescriptorCollapseHook(0)
    with pytest.raises(ValueError, match='patience must be an integer'):
        DescriptorCollapseHook(patience=.5)
    with pytest.raises(ValueError, match='max_component must lie in.*1.5'):
        DescriptorCollapseHook(max_component=1.5)
    with pytest.raises(ValueError, match='Linear; take the hook out'):
        DescriptorCollapseHook().before_train(
            runner(torch.nn.Linear(1, 1)))
