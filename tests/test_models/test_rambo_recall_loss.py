"""RaMBO's recall loss for embeddings."""

import copy
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from mmrank.models.losses import RaMBORecallLoss

from ..oracles import pairwise_recall

QUIET = dict(margin=0., memory_batches=0)


def batch(n=12, classes=4, width=5, dtype=torch.float32):
    return (torch.randn(n, width, dtype=dtype).requires_grad_(),
            torch.arange(n) % classes)


@pytest.mark.parametrize('weighting', ['log', 'loglog'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_loss_equals_the_oracle_with_a_growing_memory(weighting, dtype):
    loss = RaMBORecallLoss(lambda_val=4., memory_batches=2,
                           weighting=weighting, memory='embeddings')
    seen = []
    for n in (12, 5, 9, 12):
        embeddings, labels = batch(n, dtype=dtype)
        value = loss(embeddings, labels)
        value.backward()
        rows = F.normalize(embeddings.detach())
        gallery = torch.cat([rows, *(one[0] for one in seen[-2:])])
        targets = torch.cat([labels, *(one[1] for one in seen[-2:])])
        expected, slope = pairwise_recall(
            rows @ gallery.t(), labels[:, None] == targets, .02, 4.,
            weighting, ~torch.eye(n, len(gallery)).bool())
        assert value.item() == pytest.approx(expected.item(), rel=1e-6)
        # through the similarity matrix by hand; no gradient to the memory
        leaf = embeddings.detach().clone().requires_grad_()
        own = F.normalize(leaf)
        (own @ torch.cat([own, gallery[n:]]).t()
         ).backward(slope.to(dtype))
        torch.testing.assert_close(
            embeddings.grad, leaf.grad, rtol=1e-4, atol=1e-6)
        seen.append((rows, labels))


def test_permuting_unequal_classes_leaves_the_loss_as_it_is():
    embeddings = torch.randn(6, 4)
    labels = torch.tensor([0, 0, 0, 1, 2, 2])  # class 1 is alone
    order = torch.tensor([4, 0, 3, 5, 2, 1])
    loss = RaMBORecallLoss(**QUIET)
    assert loss(embeddings, labels).item() == pytest.approx(
        loss(embeddings[order], labels[order]).item())


def test_a_singleton_is_no_query_but_a_negative_of_the_others():
    embeddings = torch.tensor([[1., 0.], [0., 1.], [1., .1]])
    # each of the pair has one other element above its partner, or none
    loss = RaMBORecallLoss(**QUIET)
    value = loss(embeddings, torch.tensor([0, 0, 1]))
    assert value.item() == pytest.approx((math.log(2) + math.log(2)) / 2)
    assert loss(embeddings, torch.tensor([0, 1, 0])) == 0


@pytest.mark.parametrize('n', [0, 1, 5])
def test_batches_without_pairs_are_zero_and_keep_the_graph(n):
    embeddings = torch.randn(n, 4, requires_grad=True)
    value = RaMBORecallLoss()(embeddings, torch.arange(n))
    value.backward()
    assert value == 0
    assert torch.equal(embeddings.grad, torch.zeros(n, 4))


def test_fifty_batches_without_a_pair_are_zero_and_warn_once():
    loss = RaMBORecallLoss(memory_batches=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for step in range(120):
            embeddings = torch.randn(8, 4, requires_grad=True)
            value = loss(embeddings, torch.arange(8) + 8 * step)
            value.backward()
            assert value == 0 and value.requires_grad
            assert torch.equal(embeddings.grad, torch.zeros(8, 4))
            assert len(caught) == (step >= 49)
    assert 'ClassBalancedBatchSampler' in str(caught[0].message)


def test_a_pair_with_the_memory_is_a_pair():
    loss = RaMBORecallLoss(memory_batches=1, memory='embeddings')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for _ in range(60):
            # pairs that are ranked perfectly have a loss of 0 too
            loss(torch.eye(8), torch.arange(8))


def test_equal_and_zero_embeddings_give_finite_gradients():
    for rows in (torch.ones(6, 4), torch.zeros(6, 4)):
        rows.requires_grad_()
        value = RaMBORecallLoss(lambda_val=4.)(rows, torch.arange(6) // 2)
        value.backward()
        assert value.isfinite() and rows.grad.isfinite().all()


def test_warm_up_equals_the_plain_loss_and_leaves_no_stale_entry():
    loss = RaMBORecallLoss(warmup_iters=10, memory_batches=2)
    plain = RaMBORecallLoss(memory_batches=0)
    for _ in range(10):
        embeddings, labels = batch()
        assert loss(embeddings, labels) == plain(embeddings, labels)
        assert len(loss.memory) == 0
    # the iteration count survives a resumption
    resumed = RaMBORecallLoss(warmup_iters=10, memory_batches=2)
    resumed.load_state_dict(copy.deepcopy(loss.state_dict()))
    for _ in range(3):
        embeddings, labels = batch()
        assert loss(embeddings, labels) == resumed(embeddings, labels)
    assert len(loss.memory) == len(resumed.memory) == 2
    loss.reset()
    assert len(loss.memory) == 0
    assert loss(embeddings, labels) == plain(embeddings, labels)


def test_batches_of_any_size_push_the_oldest_batch_out():
    for memory, length in (('embeddings', 1 + 7), ('scores', 1 + 7 * 7)):
        loss = RaMBORecallLoss(memory_batches=2, memory=memory)
        for n in (4, 4, 1, 7):
            loss(*batch(n))
        remembered = loss.memory.read().values()
        assert {len(tensor) for tensor in remembered} == {length}


def test_evaluation_touches_no_memory_and_has_no_margin():
    loss = RaMBORecallLoss(margin=.5)
    loss(*batch())
    steps, before = loss.steps.clone(), loss.memory.read()
    embeddings, labels = batch()
    plain = RaMBORecallLoss(**QUIET)(embeddings, labels)
    assert loss.eval()(embeddings, labels) == plain
    with torch.no_grad():
        assert loss.train()(embeddings, labels) == plain
    assert loss.steps == steps
    assert torch.equal(loss.memory.read()['scores'], before['scores'])


def test_another_embedding_width_empties_the_memory_with_a_warning():
    loss = RaMBORecallLoss(memory='embeddings')
    loss(*batch(width=5))
    embeddings, labels = batch(width=3)
    with pytest.warns(UserWarning, match='5 dimensions.* 3'):
        value = loss(embeddings, labels)
    assert value == RaMBORecallLoss()(embeddings, labels)


def test_nan_embeddings_give_nan_and_are_not_remembered():
    loss = RaMBORecallLoss()
    embeddings, labels = batch()
    assert loss(embeddings * math.nan, labels).isnan()
    assert len(loss.memory) == 0


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_similarities_are_float32_also_under_autocast(dtype):
    embeddings, labels = batch(40)
    expected = RaMBORecallLoss()(embeddings, labels)
    with torch.autocast('cpu', torch.bfloat16):
        assert RaMBORecallLoss()(embeddings, labels) == expected
    leaf = embeddings.detach().to(dtype).requires_grad_()
    value = RaMBORecallLoss(lambda_val=4.)(leaf, labels)
    value.backward()
    assert value.dtype == torch.float32 and leaf.grad.dtype == dtype


def test_loss_weight_multiplies_and_leaves_lambda_alone():
    embeddings, labels = batch(30)
    gradients = [
        torch.autograd.grad(RaMBORecallLoss(
            lambda_val=4., loss_weight=weight)(embeddings, labels),
            embeddings)[0] for weight in (1., 7.)
    ]
    assert gradients[0].any()
    torch.testing.assert_close(7 * gradients[0], gradients[1])


@pytest.mark.parametrize('options', [
    dict(lambda_val=0.), dict(margin=-1.), dict(memory_batches=-1),
    dict(weighting='cubic'), dict(warmup_iters=-1), dict(loss_weight=-1),
    dict(distributed='both'),
])
def test_bad_options_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        RaMBORecallLoss(**options)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r'\(B, D\)'):
        RaMBORecallLoss()(torch.zeros(3, 2), torch.zeros(2).long())
