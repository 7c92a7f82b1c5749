"""The ranking losses against slow oracles, and their promises."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.functional import (
    blackbox_ap_loss,
    blackbox_map_loss,
    blackbox_map_terms,
    blackbox_recall_loss,
    rank_counts,
)

from ..oracles import argsort_ap_loss, pairwise_ap, pairwise_map
from .ranking_cases import CASES, assert_same, draw_scores, lift

DEVICES = ['cpu'] + ['cuda'] * torch.cuda.is_available()
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(**CASES, remembered=st.integers(0, 60))
def test_ap_loss_equals_the_pairwise_oracle(seed, n, density, dtype, levels,
                                            margin, exponent, remembered):
    generator = torch.Generator().manual_seed(seed)
    scores = draw_scores(generator, n + remembered, 1, dtype, levels)[:, 0]
    relevance = torch.rand(n + remembered, generator=generator) < density
    leaf = scores[:n].clone().requires_grad_()
    loss = blackbox_ap_loss(
        leaf, relevance[:n], margin=margin, lambda_val=10**exponent,
        memory_scores=scores[n:], memory_relevance=relevance[n:])
    loss.backward()
    value, slope = pairwise_ap(
        lift(scores), relevance, margin, 10**exponent)
    assert_same(loss, leaf.grad, (value, slope[:n]), dtype)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(**{**CASES, 'n': st.integers(0, 60)}, classes=st.integers(1, 6),
       remembered=st.integers(0, 40), widen=st.booleans(),
       weights=st.sampled_from([(2., 1.), (1., 0.), (0., 1.), (.5, 3.)]))
def test_map_loss_equals_the_pairwise_oracle(
        seed, n, density, dtype, levels, margin, exponent, classes,
        remembered, widen, weights):
    generator = torch.Generator().manual_seed(seed)
    scores = draw_scores(generator, n + remembered, classes, dtype, levels)
    relevance = torch.rand(scores.shape, generator=generator) < density
    leaf = scores[:n].clone().requires_grad_()
    settings_ = dict(
        margin=margin, lambda_val=10**exponent, map_weight=weights[0],
        cross_class_weight=weights[1], memory_in_cross_class=widen)
    loss = blackbox_map_loss(
        leaf, relevance[:n], memory_scores=scores[n:],
        memory_relevance=relevance[n:], **settings_)
    loss.backward()
    lifted = lift(scores)
    assert_same(loss, leaf.grad, pairwise_map(
        lifted[:n], relevance[:n], memory=(lifted[n:], relevance[n:]),
        **settings_), dtype)


@pytest.mark.parametrize('size', [1, 16, 40, 100])
def test_blocks_of_any_size_give_the_same_ranks(monkeypatch, size):
    monkeypatch.setattr(rank_counts, '_BLOCK_CPU', size)
    scores, relevance = torch.randn(90, 5), torch.rand(90, 5) < .3
    leaf = scores[:40].clone().requires_grad_()
    loss = blackbox_map_loss(
        leaf, relevance[:40], margin=.15, lambda_val=3.,
        memory_scores=scores[40:], memory_relevance=relevance[40:])
    loss.backward()
    assert_same(loss, leaf.grad, pairwise_map(
        scores[:40], relevance[:40], .15, 3.,
        memory=(scores[40:], relevance[40:])), torch.float32)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('lambda_val', [.01, .5, 30.])
def test_without_ties_it_is_the_papers_algorithm_with_sorts(dtype,
                                                            lambda_val):
    # all distinct, also after the margin; the moved ones in float64 only
    scores = (torch.randperm(400).to(dtype) / 37).requires_grad_()
    relevance = torch.rand(400) < .2
    gradients = []
    for loss in (argsort_ap_loss, blackbox_ap_loss):
        value = loss(scores, relevance, margin=.1, lambda_val=lambda_val)
        gradients.append((value, *torch.autograd.grad(value, scores)))
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('spread', ['heavy_tail', 'clusters', 'constant',
                                    'offset', 'tiny', 'huge', 'infinite'])
def test_unfavourable_scores_are_ranked_exactly(spread):
    noise = torch.randn(300)
    scores = dict(
        heavy_tail=noise**15, clusters=noise.sign() + 1e-6 * noise,
        constant=torch.full_like(noise, 3.), offset=1e6 + noise,
        tiny=noise * 1e-42, huge=noise * 1e38,
        infinite=torch.where(noise > 1, math.inf, noise).where(
            noise > -1, torch.tensor(-math.inf)))[spread]
    relevance = torch.rand(300) < .3
    leaf = scores.clone().requires_grad_()
    loss = blackbox_ap_loss(leaf, relevance, margin=.15, lambda_val=.5)
    loss.backward()
    assert_same(loss, leaf.grad,
                pairwise_ap(scores, relevance, .15, .5), torch.float32)


def test_gradient_of_a_worked_example_has_the_right_sign_and_size():
    # 1 - (1/1 + 2/3) / 2; ranks are divided by n = 4, so that 0.25 and 2.5
    # are what 1 and 10 are to plain ranks
    relevance = torch.tensor([1, 0, 1, 0])
    for lambda_val, step in ((.25, 0.), (1., 0.), (2.5, .1), (3., 1 / 12),
                             (10., 1 / 40)):
        scores = torch.tensor([4., 3., 2., 1.], requires_grad=True)
        loss = blackbox_ap_loss(scores, relevance, lambda_val=lambda_val)
        loss.backward()
        assert loss.item() == pytest.approx(1 / 6)
        torch.testing.assert_close(
            scores.grad, torch.tensor([0., step, -step, 0.]))


@pytest.mark.parametrize('scale', [1e-4, 1., 2., 65536.])
def test_gradient_is_linear_in_the_incoming_gradient(scale):
    scores = torch.randn(50, 3, requires_grad=True)
    relevance = torch.rand(50, 3) < .2
    for loss in (blackbox_map_loss, blackbox_recall_loss):
        value = loss(scores, relevance, lambda_val=30.)
        unit, = torch.autograd.grad(value, scores, retain_graph=True)
        scaled, = torch.autograd.grad(scale * value, scores)
        torch.testing.assert_close(scaled, scale * unit)
        assert unit.abs().sum() > 0


@pytest.mark.parametrize('scale', [2., 65536.])
@pytest.mark.parametrize('lambda_val, step', [(1.25, 0.), (2.5, .1)])
def test_a_loss_scale_does_not_act_like_another_lambda(
        scale, lambda_val, step):
    # the incoming gradient times lambda, before the second ranking, would
    # make 2 x 1.25 of one and 1.6e5 of the other
    scores = torch.tensor([4., 3., 2., 1.], requires_grad=True)
    loss = blackbox_ap_loss(
        scores, torch.tensor([1, 0, 1, 0]), lambda_val=lambda_val)
    (scale * loss).backward()
    torch.testing.assert_close(
        scores.grad / scale, torch.tensor([0., step, -step, 0.]))


def test_a_descent_step_moves_the_low_positive_up():
    scores = torch.tensor([4., 3., 2., 1.], requires_grad=True)
    loss = blackbox_ap_loss(
        scores, torch.tensor([1, 0, 1, 0]), lambda_val=10.)
    loss.backward()
    moved = scores - 50 * scores.grad
    assert blackbox_ap_loss(moved, torch.tensor([1, 0, 1, 0])) < loss


def test_every_list_gradient_sums_to_zero():
    scores = torch.randn(80, 4, dtype=torch.float64, requires_grad=True)
    loss = blackbox_map_loss(
        scores, torch.rand(80, 4) < .2, cross_class_weight=0., lambda_val=5.)
    loss.backward()
    torch.testing.assert_close(
        scores.grad.sum(0), torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize('device', DEVICES)
@pytest.mark.parametrize('position', range(4))
def test_tied_scores_do_not_depend_on_order_or_device(position, device):
    relevance = torch.arange(4, device=device) == position
    scores = torch.ones(4, device=device, requires_grad=True)
    loss = blackbox_ap_loss(scores, relevance, lambda_val=10.)
    loss.backward()
    assert loss.item() == 0.75  # the positive stands last
    assert scores.grad[position] == pytest.approx(-.075)
    assert scores.grad.sum().item() == pytest.approx(0, abs=1e-8)


def test_two_tied_items_have_the_same_ap_both_ways():
    for relevance in ([1, 0], [0, 1]):
        assert blackbox_ap_loss(
            torch.zeros(2), torch.tensor(relevance)).item() == 0.5


def test_shuffling_the_items_shuffles_the_gradient():
    scores = (torch.randn(60, 2) * 2).round()
    relevance = torch.rand(60, 2) < .3
    order = torch.randperm(60)
    leaves = scores.clone().requires_grad_(), scores[order].requires_grad_()
    losses = [blackbox_map_loss(leaf, target) for leaf, target in zip(
        leaves, (relevance, relevance[order]))]
    sum(losses).backward()
    assert losses[0] == losses[1]
    assert torch.equal(leaves[0].grad[order], leaves[1].grad)


def test_margin_raises_the_loss_and_a_margin_equal_to_the_gap_is_a_tie():
    scores, relevance = torch.tensor([4., 3., 2., 1.]), torch.tensor(
        [1, 0, 1, 0])
    losses = [
        blackbox_ap_loss(scores, relevance, margin=margin).item()
        for margin in (.5, 1., 1.5)
    ]
    # at 1.0 the tied negatives count as above: ranks 2 and 4, as at 1.5
    assert losses == pytest.approx([1 / 6, 1 / 2, 1 / 2])


def test_per_class_and_cross_class_parts_are_returned_beside_the_total():
    scores = torch.tensor([[.9, .25], [.5, .3]], requires_grad=True)
    terms = blackbox_map_terms(
        scores, torch.eye(2).long(), map_weight=.7, cross_class_weight=.3)
    assert terms.per_class == 0
    assert terms.cross_class.item() == pytest.approx(1 / 6)
    assert terms.loss.item() == pytest.approx(.05)
    assert terms.loss.requires_grad and not terms.per_class.requires_grad


@pytest.mark.parametrize('shape', [(8, 4), (0, 4), (5, 1), (0, 1), (3, 0)])
def test_nothing_relevant_gives_exactly_zero_with_a_zero_gradient(shape):
    for loss in (blackbox_map_loss, blackbox_recall_loss):
        scores = torch.randn(shape, requires_grad=True)
        value = loss(scores, torch.zeros(shape, dtype=torch.bool))
        value.backward()
        assert value == 0 and torch.equal(
            scores.grad, torch.zeros(shape))


def test_a_list_without_positives_gives_exactly_zero():
    scores = torch.randn(8, requires_grad=True)
    value = blackbox_ap_loss(scores, torch.zeros(8, dtype=torch.int64))
    value.backward()
    assert value == 0 and torch.equal(scores.grad, torch.zeros(8))


def test_everything_relevant_gives_exactly_zero():
    scores = torch.randn(9, 3, requires_grad=True)
    loss = blackbox_map_loss(scores, torch.ones(9, 3, dtype=torch.int64))
    loss.backward()
    assert loss == 0 and not scores.grad.any()


@pytest.mark.parametrize('loss', [blackbox_map_loss, blackbox_recall_loss])
def test_nan_scores_give_nan_and_never_a_silent_rank(loss):
    scores = torch.randn(6, 3)
    scores[4, 1] = math.nan
    scores.requires_grad_()
    value = loss(scores, torch.rand(6, 3) < .4)
    value.backward()
    assert value.isnan() and scores.grad.isnan().all()


def test_infinite_scores_have_their_place_in_the_order():
    scores = torch.tensor([math.inf, 1., -math.inf])
    assert blackbox_ap_loss(scores, torch.tensor([1, 0, 0])) == 0
    assert blackbox_ap_loss(
        scores, torch.tensor([0, 0, 1])).item() == pytest.approx(2 / 3)


def test_classes_without_positives_do_not_enter_the_mean():
    scores, relevance = torch.randn(30, 4), torch.rand(30, 4) < .3
    relevance[:, 2] = False
    kept = [0, 1, 3]
    assert blackbox_map_terms(scores, relevance).per_class == pytest.approx(
        blackbox_map_terms(scores[:, kept], relevance[:, kept]).per_class)


def test_one_ranking_over_all_images_of_a_batch():
    scores = torch.tensor([.4, .1, .9, .6])
    relevance = torch.tensor([1, 0, 1, 0])
    assert blackbox_ap_loss(scores, relevance).item() == pytest.approx(1 / 6)
    # image by image there would be nothing to learn
    for image in (slice(2), slice(2, 4)):
        assert blackbox_ap_loss(scores[image], relevance[image]) == 0


def test_one_ranking_over_levels_is_not_the_mean_over_levels():
    scores, relevance = torch.tensor([.3, .2, .9]), torch.tensor([1, 0, 0])
    assert blackbox_ap_loss(scores, relevance).item() == .5
    assert blackbox_ap_loss(scores[:2], relevance[:2]) == 0


def test_no_matrix_of_pairs_and_no_loop_over_positives_at_dense_head_size():
    # a 100th of 200 700 anchors x 80 classes; a pair matrix would be 100 GB
    scores = torch.randn(20_070, 8, requires_grad=True)
    relevance = torch.rand(20_070, 8) < .01
    with torch.profiler.profile(profile_memory=True) as profile:
        blackbox_map_loss(scores, relevance).backward()
    operators = sum(event.count for event in profile.key_averages())
    largest = max(abs(event.cpu_memory_usage)
                  if hasattr(event, 'cpu_memory_usage') else 0
                  for event in profile.events())
    assert operators < 4_000
    assert largest < 20 * scores.numel() * 4


def test_counts_are_exact_beyond_what_float32_can_count():
    n = (1 << 24) + 3
    scores = torch.zeros(n)
    relevance = torch.zeros(n, dtype=torch.bool)
    relevance[5] = True
    similarity = scores[None]
    loss = blackbox_recall_loss(similarity, relevance[None])
    assert loss.item() == pytest.approx(math.log(n), rel=1e-7)
    value = blackbox_ap_loss(scores.double(), relevance)
    assert 1 - value.item() == pytest.approx(1 / n, rel=1e-7)


def test_relevance_may_be_integers_of_any_kind():
    scores, relevance = torch.randn(20, 2), torch.rand(20, 2) < .4
    values = {
        float(blackbox_map_loss(scores, relevance.to(dtype)))
        for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64)
    }
    assert len(values) == 1


def test_strided_scores_are_ranked_like_contiguous_ones():
    scores, relevance = torch.randn(4, 30).t(), (torch.rand(4, 30) < .3).t()
    leaves = (scores.clone(memory_format=torch.preserve_format),
              scores.contiguous())
    gradients = [
        torch.autograd.grad(blackbox_map_loss(
            leaf.requires_grad_(), relevance), leaf)[0] for leaf in leaves
    ]
    assert torch.equal(*gradients)


@pytest.mark.parametrize(('change', 'message'), [
    (dict(lambda_val=0.), 'lambda_val'),
    (dict(lambda_val=[.5]), r'lambda_val must be a number, but got \[0.5\]'),
    (dict(margin='.15'), 'margin must be a number'),
    (dict(relevance=torch.tensor([[2, 0], [1, 0], [0, 1]])), 'such as 2'),
    (dict(relevance=-torch.eye(3, 2).long()), 'such as -1'),
    (dict(lambda_val=math.nan), 'lambda_val'),
    (dict(margin=-1.), 'margin'),
    (dict(margin=math.inf), 'margin'),
    (dict(map_weight=-1.), 'map_weight'),
    (dict(map_weight=0., cross_class_weight=0.), 'both'),
    (dict(scores=torch.zeros(3)), r'\(N, C\)'),
    (dict(scores=torch.zeros(3, 2).long()), 'floating'),
    (dict(relevance=torch.zeros(3, 3).bool()), 'relevance'),
    (dict(relevance=torch.rand(3, 2)), 'soft'),
    (dict(memory_scores=torch.zeros(3, 2)), 'together'),
    (dict(memory_scores=torch.zeros(3, 4),
          memory_relevance=torch.zeros(3, 4).bool()), 'memory_scores'),
])
def test_bad_input_is_named(change, message):
    usual = dict(scores=torch.zeros(3, 2),
                 relevance=torch.zeros(3, 2).bool())
    with pytest.raises(ValueError, match=message):
        blackbox_map_loss(**{**usual, **change})


@pytest.mark.parametrize('backend', ['eager', 'aot_eager'])
def test_a_compiled_loss_equals_the_uncompiled_one(backend):
    def loss(scores, relevance):
        return 3 * blackbox_map_loss(scores * 2, relevance, margin=.1)

    scores = torch.randn(20, 3, requires_grad=True)
    relevance = torch.rand(20, 3) < .3
    results = []
    for function in (loss, torch.compile(loss, backend=backend)):
        value = function(scores, relevance)
        results.append((value, *torch.autograd.grad(value, scores)))
    torch.testing.assert_close(*results)
