"""Several processes have the loss and the gradient of one on all samples."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.functional import (
    blackbox_ap_loss,
    blackbox_map_loss,
    blackbox_recall_loss,
)
from mmrank.models.losses import RaMBOLoss, RaMBORecallLoss
from mmrank.state import current

C = 3
# samples of each process: the second of two has no positives, and of three
# the second has no samples
SIZES = {2: (17, 6), 3: (9, 0, 14)}
PLAIN = {2: (1, ), 3: (2, )}


def make_shards(processes, seed=0, sizes=None):
    """Scores (N, C) and labels (N,) of each process; background is C."""
    generator = torch.Generator().manual_seed(seed)
    shards = []
    for index, size in enumerate(sizes or SIZES[processes]):
        scores = torch.randn(size, C, generator=generator)
        scores = (scores * 4).round() / 4 if seed % 2 else scores
        labels = torch.randint(0, C + 1, (size, ), generator=generator)
        if index in PLAIN[processes]:
            labels[:] = C
        shards.append((scores, labels))
    return shards


def one_hot(labels):
    return labels[:, None] == torch.arange(C)


def joined(shards):
    return tuple(torch.cat(parts) for parts in zip(*shards))


SETTINGS = dict(margin=.15, lambda_val=5.)


def map_on_a_process(shards, memory, kind):
    comm = current()
    scores, labels = shards[comm.index]
    leaf = scores.clone().requires_grad_()
    options = dict(comm=comm, **SETTINGS)
    if memory is not None:
        options.update(memory_scores=memory[0],
                       memory_relevance=one_hot(memory[1]))
    loss = call(kind, leaf, one_hot(labels), options)
    loss.backward()
    return loss.item(), leaf.grad


def call(kind, scores, relevance, options):
    if kind == 'ap':
        if 'memory_scores' in options:
            options.update(
                memory_scores=options['memory_scores'][:, 0],
                memory_relevance=options['memory_relevance'][:, 0])
        return blackbox_ap_loss(scores[:, 0], relevance[:, 0], **options)
    return blackbox_map_loss(
        scores, relevance, memory_in_cross_class=kind == 'map_all', **options)


@pytest.mark.parametrize('kind', ['ap', 'map', 'map_all'])
@pytest.mark.parametrize('size', [2, 3])
def test_uneven_processes_have_the_loss_of_the_joined_batch(
        processes, size, kind):
    for seed in range(3):
        shards = make_shards(size, seed)
        memory = joined(make_shards(size, seed + 10)) if seed else None
        scores, labels = joined(shards)
        leaf = scores.clone().requires_grad_()
        options = dict(SETTINGS)
        if memory is not None:
            options.update(memory_scores=memory[0],
                           memory_relevance=one_hot(memory[1]))
        expected = call(kind, leaf, one_hot(labels), options)
        expected.backward()
        results = processes(size).run(map_on_a_process, shards, memory, kind)
        for value, _ in results:
            assert value == expected.item()
        # what DDP's mean makes of the processes' gradients
        gradient = torch.cat([part for _, part in results]) / size
        torch.testing.assert_close(gradient, leaf.grad, rtol=1e-6, atol=1e-9)


def recall_on_a_process(shards):
    comm = current()
    similarity, relevance = shards[comm.index]
    leaf = similarity.clone().requires_grad_()
    loss = blackbox_recall_loss(leaf, relevance, comm=comm, **SETTINGS)
    loss.backward()
    return loss.item(), leaf.grad


@pytest.mark.parametrize('size', [2, 3])
def test_queries_on_several_processes_share_one_mean_over_pairs(
        processes, size):
    shards = [(torch.randn(n, 12), torch.rand(n, 12) < .3 * (n != 6))
              for n in SIZES[size]]
    similarity, relevance = joined(shards)
    leaf = similarity.requires_grad_()
    expected = blackbox_recall_loss(leaf, relevance, **SETTINGS)
    expected.backward()
    results = processes(size).run(
        recall_on_a_process, [(s.detach(), r) for s, r in shards])
    for value, _ in results:
        assert value == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(
        torch.cat([part for _, part in results]) / size, leaf.grad)


def nan_on_a_process(shards):
    comm = current()
    scores, labels = shards[comm.index]
    return blackbox_map_loss(scores, one_hot(labels), comm=comm).item()


def test_nan_on_one_process_is_nan_on_all_and_nobody_waits(processes):
    shards = make_shards(2)
    shards[1][0][0, 0] = math.nan
    for value in processes(2).run(nan_on_a_process, shards):
        assert math.isnan(value)


def bytes_of_a_process(negatives, positives, remembered):
    comm = current()
    n = negatives + positives
    scores = torch.randn(n, C)
    labels = torch.full((n, ), C)
    labels[:positives] = torch.arange(positives) % C
    blackbox_map_loss(
        scores, one_hot(labels), comm=comm,
        memory_scores=torch.zeros(remembered, C),
        memory_relevance=one_hot(torch.full((remembered, ), C)))
    return comm.received_bytes


def test_communication_grows_with_the_positives_and_not_the_negatives(
        processes):
    def measure(*sizes):
        return max(processes(2).run(bytes_of_a_process, *sizes))

    usual = measure(100, 20, 0)
    assert measure(20_000, 20, 0) == usual
    assert measure(20_000, 20, 5_000) == usual
    # the other one's score and column, and two counts in each of two lists
    assert measure(100, 40, 0) - usual <= 20 * 76
    assert usual <= 20 * 76 + 256


def train_on_a_process(batches, options, kind=RaMBOLoss, width=C):
    """Losses, gradients and memory of a DDP model over some steps."""
    comm = current()
    torch.manual_seed(3)
    model = nn.Linear(4, width)
    model.loss = kind(**options)
    wrapped = DistributedDataParallel(
        Step(model)) if comm.size > 1 else Step(model)
    history = []
    for batch in batches:
        features, labels = batch[comm.index] if comm.size > 1 else \
            joined(batch)
        model.zero_grad()
        loss = wrapped(features, labels)
        loss.backward()
        history.append((loss.item(), model.weight.grad.clone()))
    return history, model.loss.memory.read()


class Step(nn.Module):

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, features, labels):
        return self.model.loss(self.model(features), labels)


def make_batches(size, steps=4):
    generator = torch.Generator().manual_seed(5)
    batches = []
    for _ in range(steps):
        batch = []
        for index, length in enumerate(SIZES[size]):
            labels = torch.randint(0, C + 1, (length, ), generator=generator)
            if index in PLAIN[size]:
                labels[:] = C
            batch.append((torch.randn(length, 4, generator=generator),
                          labels))
        batches.append(batch)
    return batches


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('options', [
    dict(memory_batches=2),
    dict(memory_batches=2, memory_in_cross_class=True, memory_negatives=2)])
def test_ddp_steps_with_a_memory_equal_one_process(processes, size, options):
    options = dict(options, lambda_val=5.)
    batches = make_batches(size)
    expected, memory = train_on_a_process(batches, options)
    for history, seen in processes(size).run(
            train_on_a_process, batches, options):
        for (value, gradient), (right, slope) in zip(history, expected):
            assert value == pytest.approx(right, rel=1e-6)
            torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=1e-7)
        # element by element, so in process order 0..W-1 on every process
        assert torch.equal(seen['labels'], memory['labels'])
        torch.testing.assert_close(seen['scores'], memory['scores'])


def random_margin_on_a_process(batches):
    torch.manual_seed(current().index)
    history, memory = train_on_a_process(
        batches, dict(memory_batches=2, random_margin=True))
    return [value for value, _ in history]


def test_random_margins_give_all_processes_the_same_loss(processes):
    first, second = processes(2).run(
        random_margin_on_a_process, make_batches(2))
    assert first == second


def local_on_a_process(batch):
    scores, labels = batch[current().index]
    return RaMBOLoss(distributed='local')(scores, labels).item()


def test_local_loss_is_that_of_the_own_batch(processes):
    shards = make_shards(2)
    values = processes(2).run(local_on_a_process, shards)
    assert values == pytest.approx(
        [RaMBOLoss()(*shard).item() for shard in shards])


def evaluate_on_one_process(batch):
    if current().index == 0:
        return RaMBOLoss().eval()(*batch[0]).item()
    return None


def test_evaluation_on_one_process_alone_waits_for_nobody(processes):
    shards = make_shards(2)
    assert processes(2).run(evaluate_on_one_process, shards)[0] == \
        pytest.approx(RaMBOLoss().eval()(*shards[0]).item())


@pytest.mark.parametrize('size', [2, 3])
def test_recall_loss_under_ddp_equals_one_process(processes, size):
    options = dict(lambda_val=4., memory_batches=2, memory='embeddings')
    training = (make_batches(size), options, RaMBORecallLoss, 5)
    expected, memory = train_on_a_process(*training)
    for history, seen in processes(size).run(train_on_a_process, *training):
        for (value, gradient), (right, slope) in zip(history, expected):
            assert value == pytest.approx(right, rel=1e-5)
            torch.testing.assert_close(gradient, slope, rtol=1e-4, atol=1e-6)
        assert torch.equal(seen['labels'], memory['labels'])
        torch.testing.assert_close(seen['embeddings'], memory['embeddings'])
        assert len(seen['labels']) == 2 * sum(SIZES[size])


def test_an_uninitialised_group_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        RaMBOLoss()(*make_shards(2)[0])
