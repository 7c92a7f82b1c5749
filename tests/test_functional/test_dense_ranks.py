"""The dense path: equal to the sparse one, of fixed shapes, without waits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from mmrank.functional import (
    blackbox_ap_loss,
    blackbox_map_loss,
    blackbox_recall_loss,
    cosine_similarities,
    hinge_triplet_loss,
    last_ranking_path,
    proxy_anchor_loss,
    proxy_isa_loss,
    proxy_isa_weights,
    ranking_path,
)
from mmrank.state import Collectives

SETTINGS = dict(margin=.15, lambda_val=3.)


class Calls(TorchDispatchMode):
    """Counts operator calls, and those that wait for a device."""

    waiting = ('nonzero', 'item', '_local_scalar_dense', 'masked_select',
               'bincount', 'unique')

    def __init__(self):
        super().__init__()
        self.number, self.waits = 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += 1
        if any(name in function._schema.name for name in self.waiting):
            self.waits.append(function._schema.name)
        return function(*args, **(kwargs or {}))


def draw(generator, rows, columns, dtype, kind):
    scores = torch.randn(rows, columns, generator=generator, dtype=dtype)
    if kind == 'ties':
        scores = (scores * 2).round() / 2
    if kind == 'infinite':
        noise = torch.rand(rows, columns, generator=generator)
        scores[noise < .2], scores[noise > .8] = -math.inf, math.inf
    return scores


def on_path(path, loss, leaf):
    with ranking_path(path):
        value = loss()
        assert last_ranking_path() == path
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def assert_paths_agree(loss, leaf):
    value, gradient = on_path('dense', loss, leaf)
    expected, slope = on_path('sparse', loss, leaf)
    # the same counts: the gradient is equal to the last bit. Values are sums
    # in another order: equal to a few units in the last place of float64
    assert torch.equal(gradient, slope)
    torch.testing.assert_close(
        value, expected, atol=0,
        rtol=1e-15 if leaf.dtype == torch.float64 else 6e-8)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), n=st.integers(0, 40),
       classes=st.integers(1, 5), remembered=st.integers(0, 30),
       density=st.sampled_from([0., .1, .5, 1.]),
       dtype=st.sampled_from([torch.float32, torch.float64]),
       kind=st.sampled_from(['plain', 'ties', 'infinite']),
       masked=st.booleans(), widen=st.booleans())
def test_both_paths_give_the_same_loss_to_the_last_bit(
        seed, n, classes, remembered, density, dtype, kind, masked, widen):
    generator = torch.Generator().manual_seed(seed)
    scores = draw(generator, n + remembered, classes, dtype, kind)
    relevance = torch.rand(scores.shape, generator=generator) < density
    valid = torch.rand(len(scores), generator=generator) < .7
    pairs = torch.rand(n, classes, generator=generator) < .7
    leaf = scores[:n].clone().requires_grad_()
    rows = dict(valid=valid[:n], memory_valid=valid[n:]) if masked else {}
    assert_paths_agree(lambda: blackbox_map_loss(
        leaf, relevance[:n], memory_scores=scores[n:],
        memory_relevance=relevance[n:], memory_in_cross_class=widen,
        **rows, **SETTINGS), leaf)
    assert_paths_agree(lambda: blackbox_ap_loss(
        leaf[:, 0], relevance[:n, 0], memory_scores=scores[n:, 0],
        memory_relevance=relevance[n:, 0], **rows, **SETTINGS), leaf)
    assert_paths_agree(lambda: blackbox_recall_loss(
        leaf, relevance[:n], valid=pairs if masked else None, **SETTINGS),
        leaf)


@pytest.mark.parametrize('path', ['dense', 'sparse'])
def test_rows_that_are_not_valid_are_as_if_cut_away(path):
    scores, relevance = torch.randn(50, 3), torch.rand(50, 3) < .3
    valid = torch.rand(50) < .6
    leaf = scores[:30].clone().requires_grad_()
    kept = scores[:30][valid[:30]].requires_grad_()
    with ranking_path(path):
        masked = blackbox_map_loss(
            leaf, relevance[:30], valid=valid[:30], memory_scores=scores[30:],
            memory_relevance=relevance[30:], memory_valid=valid[30:],
            **SETTINGS)
        cut = blackbox_map_loss(
            kept, relevance[:30][valid[:30]],
            memory_scores=scores[30:][valid[30:]],
            memory_relevance=relevance[30:][valid[30:]], **SETTINGS)
    (masked + cut).backward()
    assert masked == cut
    assert torch.equal(leaf.grad[valid[:30]], kept.grad)
    assert not leaf.grad[~valid[:30]].any()


@pytest.mark.parametrize('path', ['dense', 'sparse'])
def test_an_item_at_minus_infinity_does_not_tie_with_what_is_not_valid(path):
    scores = torch.tensor([[-math.inf, -math.inf, 1.]])
    valid = torch.tensor([[True, False, True]])
    with ranking_path(path):
        loss = blackbox_recall_loss(
            scores, torch.tensor([[1, 0, 0]]), valid=valid)
    assert loss.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize('path', ['dense', 'sparse'])
def test_nan_makes_loss_and_gradient_nan_on_both_paths(path):
    scores = torch.randn(6, 3)
    scores[4, 1] = math.nan
    scores.requires_grad_()
    for loss in (blackbox_map_loss, blackbox_recall_loss):
        with ranking_path(path):
            value = loss(scores, torch.rand(6, 3) < .4)
        gradient, = torch.autograd.grad(value, scores)
        assert value.isnan() and gradient.isnan().all()


def rows(n, c, device):
    scores = torch.zeros(n, c, device=device) if device == 'meta' else \
        torch.randn(n, c)
    return scores, scores > 1


def losses(n, c, device):
    """Every loss by name, on leaves of its own, and its most calls."""
    scores, relevance = rows(n, c, device)
    memory, remembered = rows(3 * n, c, device)
    leaf = scores.requires_grad_()
    embeddings, proxies = (rows(k, 8, device)[0].requires_grad_()
                           for k in (n, c))
    labels = torch.arange(n, device=device) % c
    counts = torch.arange(c, device=device)

    def isa():
        cosines = cosine_similarities(embeddings, proxies)
        weights = proxy_isa_weights(
            cosines, labels, counts, torch.ones(c, device=device))
        return proxy_isa_loss(
            cosines, labels, weights.positive, weights.negative)

    return dict(
        map=(150, lambda: blackbox_map_loss(
            leaf, relevance, memory_scores=memory,
            memory_relevance=remembered, **SETTINGS)),
        ap=(80, lambda: blackbox_ap_loss(
            leaf.select(1, 0), relevance.select(1, 0), **SETTINGS)),
        recall=(80, lambda: blackbox_recall_loss(
            leaf, relevance, valid=relevance, **SETTINGS)),
        proxy_anchor=(130, lambda: proxy_anchor_loss(
            embeddings, labels, proxies)),
        proxy_isa=(206, isa),
        triplet=(186, lambda: hinge_triplet_loss(embeddings, embeddings + 1)))


NAMES = ['map', 'ap', 'recall', 'proxy_anchor', 'proxy_isa', 'triplet']


@pytest.mark.parametrize('name', NAMES)
def test_calls_are_few_whatever_the_size_and_none_waits(name):
    numbers = set()
    for n, c in ((12, 3), (150, 20)):
        most, loss = losses(n, c, 'meta')[name]
        with ranking_path('dense'), Calls() as calls:
            loss().backward()
        assert calls.waits == []
        numbers.add(calls.number)
    assert len(numbers) == 1 and numbers.pop() <= most


@pytest.mark.skipif(
    torch.__version__.startswith('2.1.'),
    reason='torch 2.1 traces no once_differentiable function')
@pytest.mark.parametrize('name', ['map', 'ap', 'recall'])
@pytest.mark.parametrize('backend', ['aot_eager', 'inductor'])
def test_the_dense_path_compiles_without_a_graph_break(name, backend):
    scores, relevance = torch.randn(40, 3), torch.rand(40, 3) < .3
    memory = dict(memory_scores=torch.randn(20, 3),
                  memory_relevance=torch.rand(20, 3) < .3)

    def loss(scores):
        if name == 'map':
            return blackbox_map_loss(scores, relevance, **memory, **SETTINGS)
        if name == 'ap':
            return blackbox_ap_loss(scores[:, 0], relevance[:, 0], **SETTINGS)
        return blackbox_recall_loss(scores, relevance, **SETTINGS)

    results = []
    for function in (loss, torch.compile(
            loss, backend=backend, fullgraph=True)):
        leaf = scores.clone().requires_grad_()
        value = function(leaf)
        value.backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-9)


def test_short_lists_are_dense_and_long_ones_sparse_on_the_cpu():
    for number, path in ((100, 'dense'), (100_000, 'sparse')):
        blackbox_ap_loss(torch.randn(number), torch.arange(number) < 9)
        assert last_ranking_path() == path


def test_a_profile_shows_the_path():
    with torch.profiler.profile() as profile:
        blackbox_ap_loss(torch.randn(9), torch.arange(9) < 2)
    names = [event.key for event in profile.key_averages()]
    assert 'mmrank.ranking.dense' in names


def test_an_unknown_path_is_refused():
    with pytest.raises(ValueError, match="'fast'"), ranking_path('fast'):
        pass


def on_a_process(shards, memory):
    comm = Collectives()
    scores, relevance, valid = shards[comm.index]
    results = []
    for path in ('dense', 'sparse'):
        leaf = scores.clone().requires_grad_()
        with ranking_path(path):
            loss = blackbox_map_loss(
                leaf, relevance, valid=valid, memory_scores=memory[0],
                memory_relevance=memory[1], comm=comm, **SETTINGS)
            recall = blackbox_recall_loss(
                leaf, relevance, comm=comm, **SETTINGS)
        gradients = [torch.autograd.grad(each, leaf)[0]
                     for each in (loss, recall)]
        results.append((loss.item(), recall.item(), *gradients))
    return results


def test_two_processes_have_the_same_loss_on_both_paths(processes):
    shards = [(torch.randn(n, 3), torch.rand(n, 3) < .3, torch.rand(n) < .8)
              for n in (17, 6)]
    memory = torch.randn(20, 3), torch.rand(20, 3) < .3
    for dense, sparse in processes(2).run(on_a_process, shards, memory):
        assert dense[:2] == pytest.approx(sparse[:2], rel=1e-7)
        assert torch.equal(dense[2], sparse[2])
        assert torch.equal(dense[3], sparse[3])
