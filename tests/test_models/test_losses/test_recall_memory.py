"""What RaMBORecallLoss remembers, against a replay of the paper's text.

The replay is plain numpy in double precision: it counts by comparing every
pair of scores and shares no code with the package.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.models.losses import RaMBORecallLoss
from mmrank.state import Collectives

MARGIN, STRENGTH, BATCHES = .05, 8., 2
# the last batch of an epoch is smaller, one is no batch at all
SIZES = (8, 6, 8, 1, 7)


def scripted(step):
    """Embeddings of a network that moves a little with every step."""
    generator = torch.Generator().manual_seed(11)
    table = torch.randn(9, 5, generator=generator, dtype=torch.float64)
    drift = torch.randn(9, 5, generator=generator, dtype=torch.float64)
    rows = (table + .2 * step * drift)[:SIZES[step]]
    return rows, torch.arange(step, step + len(rows)) % 3


def irrelevant_above(scores, relevant):
    """For every relevant entry of a list, with the margin of Eq. 14."""
    shifted = scores + np.where(relevant, -MARGIN / 2, MARGIN / 2)
    return shifted, np.array([
        sum(shifted[j] > shifted[i] for j in range(len(scores))
            if not relevant[j])
        for i in np.flatnonzero(relevant)])


def ranks(scores):
    return np.array([1 + sum(other > one for other in scores)
                     for one in scores], dtype=float)


def weigh(above, weighting):
    """The loss of an entry and its slope."""
    value, slope = np.log(1 + above), 1 / (1 + above)
    if weighting == 'loglog':
        value, slope = np.log(1 + value), slope / (1 + value)
    return value, slope


class Replay:
    """Section 4.3 and Eq. 17, 20; Algorithm 1 for the gradient."""

    def __init__(self, weighting, scaled):
        self.weighting, self.scaled = weighting, scaled
        self.remembered = []

    def step(self, embeddings, labels):
        size = len(labels)
        norms = np.sqrt((embeddings**2).sum(1, keepdims=True))
        unit = embeddings / norms
        cosines = unit @ unit.T
        current = []
        for q in range(size):
            others = [i for i in range(size) if i != q]
            current.append((others, cosines[q, others],
                            labels[others] == labels[q]))
        past = [one for batch in self.remembered for one in batch]
        lists = [one[1:] for one in current] + past
        pairs = sum(relevant.sum() for _, relevant in lists)
        factor = 1 + len(self.remembered) if self.scaled else 1
        total, slopes = 0., np.zeros((size, size))
        for index, (scores, relevant) in enumerate(lists):
            if not relevant.any():
                continue
            shifted, above = irrelevant_above(scores, relevant)
            value, slope = weigh(factor * above, self.weighting)
            total += value.sum()
            if index >= size:
                continue
            n = len(scores)
            incoming = np.zeros(n)
            incoming[relevant] = n * factor * slope / pairs
            moved = shifted + STRENGTH * incoming
            slopes[index, current[index][0]] = -(
                ranks(shifted) - ranks(moved)) / (n * STRENGTH)
        self.remembered = [
            *self.remembered, [one[1:] for one in current]][-BATCHES:]
        to_unit = slopes @ unit + slopes.T @ unit
        inner = (to_unit * unit).sum(1, keepdims=True)
        return total / max(1, pairs), (to_unit - unit * inner) / norms


def build(weighting='log', scaled=False, **options):
    return RaMBORecallLoss(
        lambda_val=STRENGTH, margin=MARGIN, memory_batches=BATCHES,
        weighting=weighting, scale_by_batches=scaled, **options)


@pytest.mark.parametrize('scaled', [False, True])
@pytest.mark.parametrize('weighting', ['log', 'loglog'])
def test_five_scripted_steps_equal_the_papers_replayed(weighting, scaled):
    loss, replay = build(weighting, scaled), Replay(weighting, scaled)
    for step in range(len(SIZES)):
        embeddings, labels = scripted(step)
        leaf = embeddings.clone().requires_grad_()
        value = loss(leaf, labels)
        value.backward()
        expected, slope = replay.step(embeddings.numpy(), labels.numpy())
        assert value.item() == pytest.approx(expected, abs=1e-6)
        np.testing.assert_allclose(leaf.grad.numpy(), slope, atol=1e-6)
        assert slope.any() == (len(labels) > 1)
        assert_remembers(loss, replay)


def assert_remembers(loss, replay):
    assert len(loss.memory) == len(replay.remembered)
    for found, batch in zip(loss.memory.batches(), replay.remembered):
        size = len(batch)
        scores = found['scores'].view(size, size).numpy()
        relevant = found['relevance'].view(size, size).numpy()
        assert not found['scores'].requires_grad
        assert not relevant.diagonal().any()
        for q, (row, targets) in enumerate(batch):
            others = np.arange(size) != q
            np.testing.assert_allclose(scores[q, others], row, atol=1e-6)
            np.testing.assert_array_equal(relevant[q, others], targets)


def test_remembered_lists_count_and_teach_nothing():
    loss = build()
    first, labels = scripted(0)
    first.requires_grad_()
    loss(first, labels)
    second, other_labels = scripted(1)
    second.requires_grad_()
    loss(second, other_labels).backward()
    assert first.grad is None and second.grad.any()


def test_a_resumed_run_is_the_uninterrupted_one():
    loss = build(scaled=True, warmup_iters=1)
    for step in range(3):
        loss(*scripted(step))
    resumed = build(scaled=True, warmup_iters=1)
    resumed.load_state_dict(copy.deepcopy(loss.state_dict()))
    for step in (3, 4, 0):
        gradients = []
        for one in (loss, resumed):
            embeddings, labels = scripted(step)
            embeddings.requires_grad_()
            one(embeddings, labels).backward()
            gradients.append(embeddings.grad)
        assert torch.equal(*gradients)
    torch.testing.assert_close(resumed.state_dict(), loss.state_dict(),
                               rtol=0, atol=0)


@pytest.mark.parametrize('kinds', [('scores', 'embeddings'),
                                   ('embeddings', 'scores')])
def test_a_checkpoint_of_the_other_memory_starts_an_empty_one_loudly(kinds):
    saved, loaded = (build(memory=kind) for kind in kinds)
    for step in range(3):
        saved(*scripted(step))
        loaded(*scripted(step))
    with pytest.warns(UserWarning, match=f"memory='{kinds[0]}'"):
        loaded.load_state_dict(saved.state_dict())
    assert len(loaded.memory) == 0 and loaded.steps == 3
    loaded(*scripted(4))
    assert len(loaded.memory) == 1


@pytest.mark.parametrize('options, message', [
    (dict(memory='rows'), "memory must be one of.*'rows'"),
    (dict(memory='embeddings', scaled=True), 'scale_by_batches'),
])
def test_bad_memories_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


class Model(nn.Module):

    def __init__(self, memory):
        super().__init__()
        torch.manual_seed(5)
        self.linear = nn.Linear(5, 4).double()
        self.loss = build(memory=memory, scaled=memory == 'scores')

    def forward(self, inputs, labels):
        return self.loss(self.linear(inputs), labels)


def train(memory, together):
    model = Model(memory)
    wrapped = DistributedDataParallel(model, broadcast_buffers=False) \
        if together else model
    values = []
    for step in range(len(SIZES)):
        inputs, labels = scripted(step)
        if together:
            # unequal shares, and nothing at all for one of the processes
            first = len(labels) // 3
            inputs, labels = (
                part.split((first, len(labels) - first))[Collectives().index]
                for part in (inputs, labels))
        wrapped.zero_grad()
        value = wrapped(inputs, labels)
        value.backward()
        values.append(value.item())
    return values, model.linear.weight.grad, model.state_dict()


@pytest.mark.parametrize('memory', ['scores', 'embeddings'])
def test_two_processes_learn_and_remember_what_one_does(processes, memory):
    values, gradient, state = train(memory, together=False)
    for found in processes(2).run(train, memory, True):
        assert found[0] == pytest.approx(values, abs=1e-9)
        torch.testing.assert_close(found[1], gradient)
        torch.testing.assert_close(found[2], state)
