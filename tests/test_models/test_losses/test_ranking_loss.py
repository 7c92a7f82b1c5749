"""The base of ranking losses, by a leaf that a user would write."""

import math

import pytest
import torch
from torch import nn

from mmrank.models.losses import RankingLoss

from ...smooth_ap import ThirtyLineSmoothAP

C = 3


class Listens(RankingLoss):
    """Keeps what it is given."""

    def ranking_terms(self, scores, relevance, context):
        self.given = scores, relevance, context
        return dict(loss=scores.sum() * 0 + relevance.sum(), part=scores[0, 0])


class Masks(Listens):
    masks_rows = True


def batch(n=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, C, generator=generator)
    return (scores.requires_grad_(),
            torch.randint(-1, C + 1, (n, ), generator=generator))


def test_smooth_ap_of_a_worked_example():
    scores = torch.tensor([[2.], [1.], [0.]], requires_grad=True)
    value = ThirtyLineSmoothAP(tau=1e-3)(scores, torch.tensor([0, 1, 0]))
    assert value.item() == pytest.approx(1 - (1 / 1 + 2 / 3) / 2)
    value = ThirtyLineSmoothAP(tau=1.)(scores, torch.tensor([0, 1, 0]))
    one, two = (1 / (1 + math.exp(-d)) for d in (1, 2))
    first = (1 + 1 - two) / (1 + 1 - one + 1 - two)
    last = (1 + two) / (1 + one + two)
    assert value.item() == pytest.approx(1 - (first + last) / 2)


def test_a_leaf_sees_no_ignored_row_and_no_background_column():
    scores = torch.randn(5, C + 1, requires_grad=True)
    labels = torch.tensor([0, -1, C, 2, 1])
    quality, weight = torch.rand(5), torch.tensor([1., 1., 1., 0., .3])
    loss = Listens(num_classes=C)
    loss(scores, (labels, quality), weight)
    seen, relevance, context = loss.given
    assert torch.equal(seen, scores[[0, 2, 4], :C])
    assert torch.equal(relevance, torch.tensor(
        [[1, 0, 0], [0, 0, 0], [0, 1, 0]]).bool())
    assert torch.equal(context.quality, quality[[0, 2, 4]])
    assert context.valid is None and context.comm is None
    assert context.learning and context.memory_scores is None


def test_a_leaf_that_masks_sees_all_rows_and_which_take_part():
    scores = torch.randn(5, C, requires_grad=True)
    labels = torch.tensor([0, -1, C, 2, 1])
    loss = Masks(memory_batches=1)
    loss(scores, labels, torch.tensor([1., 1., 1., 0., .3]))
    seen, relevance, context = loss.given
    assert torch.equal(seen, scores)
    assert context.valid.tolist() == [True, False, True, False, True]
    assert relevance.any(1).tolist() == [True, False, False, False, True]
    assert torch.equal(loss.memory.read()['labels'],
                       torch.tensor([0, C, 1]))


def test_a_leaf_is_handed_the_memory_while_it_learns():
    loss = Listens(memory_batches=2)
    batches = [batch(seed=seed) for seed in range(4)]
    for scores, labels in batches:
        loss(scores, labels)
    context = loss.given[2]
    kept = [(s.detach()[y >= 0], y[y >= 0]) for s, y in batches[1:3]]
    assert torch.equal(context.memory_scores, torch.cat([s for s, _ in kept]))
    assert torch.equal(
        context.memory_relevance,
        torch.cat([y for _, y in kept])[:, None] == torch.arange(C))
    loss.eval()(*batches[0])
    assert loss.given[2].memory_scores is None
    assert not loss.given[2].learning
    assert len(loss.memory) == 2


def test_other_terms_are_logged_beside_the_loss():
    scores, labels = batch()
    loss = Listens(loss_weight=3.)
    value = loss(scores, labels)
    assert value == 3 * loss.given[1].sum()
    logged = loss.get_accuracy(scores, labels)
    assert set(logged) == {'acc_classes', 'part'}
    assert not any(term.requires_grad for term in logged.values())


@pytest.mark.parametrize('terms', [dict(value=1.), dict(loss=1., loss_a=2.)])
def test_terms_that_a_runner_would_misread_are_refused_by_name(terms):

    class Strange(RankingLoss):

        def ranking_terms(self, scores, relevance, context):
            return {name: scores.sum() for name in terms}

    with pytest.raises(ValueError, match=f'Strange.*{list(terms)[-1]}'):
        Strange()(*batch())


def test_a_leaf_without_terms_is_named():
    with pytest.raises(NotImplementedError, match='RankingLoss.*terms'):
        RankingLoss()(*batch())


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_a_leaf_computes_in_float32_under_autocast(dtype):

    class Product(RankingLoss):

        def ranking_terms(self, scores, relevance, context):
            product = scores.T @ scores
            assert product.dtype == torch.float32
            return dict(loss=product.mean())

    features, labels = torch.randn(12, 5), batch()[1]
    layer = nn.Linear(5, C)
    with torch.autocast('cpu', torch.bfloat16):
        value = Product()(layer(features).to(dtype), labels)
    assert value.dtype == torch.float32
    value.backward()
    assert layer.weight.grad.any()


def test_smooth_ap_learns_from_half_precision_logits():
    scores, labels = batch()
    half = scores.detach().bfloat16().requires_grad_()
    with torch.autocast('cpu', torch.bfloat16):
        value = ThirtyLineSmoothAP()(half, labels)
    value.backward()
    whole = half.detach().float().requires_grad_()
    expected = ThirtyLineSmoothAP()(whole, labels)
    expected.backward()
    assert torch.equal(value, expected)
    assert torch.equal(half.grad, whole.grad.bfloat16()) and half.grad.any()


@pytest.mark.parametrize('labels', [
    torch.zeros(0).long(), torch.full((4, ), C), torch.full((4, ), -1)])
def test_nothing_to_rank_is_zero_with_a_gradient(labels):
    scores = torch.randn(len(labels), C, requires_grad=True)
    value = ThirtyLineSmoothAP()(scores, labels)
    value.backward()
    assert value == 0 and not scores.grad.any()


def test_fifty_batches_without_positives_are_one_warning_with_the_name():
    loss = ThirtyLineSmoothAP()
    with pytest.warns(UserWarning, match='ThirtyLineSmoothAP teaches noth'):
        for _ in range(50):
            loss(torch.randn(4, C, requires_grad=True), torch.full((4, ), C))


# -- two processes ----------------------------------------------------------

def on_this_process(kind, options, batches):
    """Value and gradient of each step; the second batch's rows may be 0."""
    import torch.distributed as dist
    index = dist.get_rank() if dist.is_initialized() else None
    loss, results = kind(**options), []
    for scores, labels, quality in batches:
        scores = scores.clone().requires_grad_()
        mine = slice(None) if index is None else slice(
            *((0, 5), (5, None))[index])
        value = loss(scores[mine], (labels[mine], quality[mine]))
        value.backward()
        results.append((value.item(), scores.grad))
    return results, loss.memory.read()


class Weighs(RankingLoss):
    """Uses all that a leaf can be given."""

    def ranking_terms(self, scores, relevance, context):
        value = (scores.sigmoid() * relevance * context.quality[:, None]).sum()
        if context.memory_scores is not None:
            above = context.memory_scores[:, None] > scores
            value = value + (scores * above.sum(0)).mean()
        return dict(loss=value)


@pytest.mark.parametrize('kind', [ThirtyLineSmoothAP, Weighs])
@pytest.mark.parametrize('rows', [(12, 9), (12, 5, 8)])
def test_two_processes_equal_one_on_the_joined_batch(kind, rows, processes):
    batches = [(*batch(n, seed), torch.rand(n))
               for seed, n in enumerate(rows)]
    batches = [(s.detach().double(), y, q) for s, y, q in batches]
    options = dict(memory_batches=2)
    (first, seen), (second, seen_too) = processes(2).run(
        on_this_process, kind, options, batches)
    alone, remembered = on_this_process(kind, options, batches)
    for (value, one), (same, other), (expected, gradient) in zip(
            first, second, alone, strict=True):
        assert value == same == pytest.approx(expected, rel=1e-12)
        # what DDP's mean makes of the two
        torch.testing.assert_close((one + other) / 2, gradient)
    for name, tensor in remembered.items():
        assert torch.equal(seen[name], tensor)
        assert torch.equal(seen_too[name], tensor)


def test_local_losses_are_each_process_s_own(processes):
    batches = [(*batch(), torch.rand(12))]
    batches = [(s.detach(), y, q) for s, y, q in batches]
    (first, _), (second, _) = processes(2).run(
        on_this_process, ThirtyLineSmoothAP, dict(distributed='local'),
        batches)
    scores, labels, _ = batches[0]
    loss = ThirtyLineSmoothAP()
    assert first[0][0] == pytest.approx(loss(scores[:5], labels[:5]).item())
    assert second[0][0] == pytest.approx(loss(scores[5:], labels[5:]).item())
