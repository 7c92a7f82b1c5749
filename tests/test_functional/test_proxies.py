"""Proxy-Anchor and Proxy-ISA against slow twins and hand-made numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.functional import (
    cosine_similarities,
    proxy_anchor_loss,
    proxy_isa_loss,
)


def slow_loss(embeddings, labels, proxies, positive=None, negative=None,
              margin=0.1, alpha=32.0):
    """Both losses, term by term; without weights it is Proxy-Anchor."""
    attract, repel, weight_attract, weight_repel = 0., 0., 0., 0.
    for c, proxy in enumerate(proxies):
        own, others, own_weights, other_weights = [], [], [], []
        for b, x in enumerate(embeddings):
            s = (x @ proxy) / (x.norm() * proxy.norm())
            if labels[b] == c:
                w = 1. if positive is None else positive[b]
                own.append(torch.exp(alpha * (margin - s) * w))
                own_weights.append(w)
            else:
                w = 1. if negative is None else negative[b, c]
                others.append(torch.exp(alpha * (s + margin) * w))
                other_weights.append(w)
        if own:
            attract = attract + torch.log1p(sum(own))
            weight_attract = weight_attract + sum(own_weights) / len(own)
        if others:
            repel = repel + torch.log1p(sum(others))
            weight_repel = weight_repel + sum(other_weights) / len(others)
        else:
            weight_repel = weight_repel + 1.
    return attract / weight_attract + repel / weight_repel


def leaves(num_samples, num_classes, width=5, dtype=torch.float64):
    embeddings = torch.randn(num_samples, width, dtype=dtype)
    proxies = torch.randn(num_classes, width, dtype=dtype)
    return embeddings.requires_grad_(), proxies.requires_grad_()


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, inputs)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9),
       st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_proxy_anchor_equals_its_slow_twin_in_value_and_gradient(
        labels, seed):
    torch.manual_seed(seed)
    inputs = leaves(len(labels), 6)
    labels = torch.tensor(labels)
    fast = proxy_anchor_loss(inputs[0], labels, inputs[1])
    slow = slow_loss(inputs[0], labels, inputs[1])
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(
        gradients(fast, *inputs), gradients(slow, *inputs))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9),
       st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_proxy_isa_equals_its_slow_twin_in_value_and_gradient(labels, seed):
    torch.manual_seed(seed)
    inputs = leaves(len(labels), 6)
    labels = torch.tensor(labels)
    positive = torch.rand(len(labels), dtype=torch.float64) + 0.1
    negative = torch.rand(len(labels), 6, dtype=torch.float64) + 0.1
    fast = proxy_isa_loss(
        cosine_similarities(*inputs), labels, positive, negative)
    slow = slow_loss(inputs[0], labels, inputs[1], positive, negative)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(
        gradients(fast, *inputs), gradients(slow, *inputs))


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_proxy_anchor_equals_pytorch_metric_learnings(dtype):
    library = pytest.importorskip('pytorch_metric_learning.losses')
    embeddings, proxies = leaves(40, 12, 16, dtype)
    labels = torch.randint(0, 9, (40, ))
    theirs = library.ProxyAnchorLoss(12, 16)
    theirs.proxies.data = proxies.detach().clone()
    expected = theirs(embeddings, labels)
    found = proxy_anchor_loss(embeddings, labels, proxies)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    found_gradients = gradients(found, embeddings, proxies)
    expected_gradients = gradients(expected, embeddings, theirs.proxies)
    for one, other in zip(found_gradients, expected_gradients):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


def test_gradcheck_of_both_losses():
    embeddings, proxies = leaves(6, 4)
    labels = torch.tensor([0, 0, 1, 2, 2, 2])
    weights = torch.rand(6).double() + .5, torch.rand(6, 4).double() + .5
    assert torch.autograd.gradcheck(
        lambda x, p: proxy_anchor_loss(x, labels, p, alpha=4.),
        (embeddings, proxies))
    assert torch.autograd.gradcheck(
        lambda x, p: proxy_isa_loss(
            cosine_similarities(x, p), labels, *weights, alpha=4.),
        (embeddings, proxies))


def test_the_known_values_of_the_local_and_the_global_batch():
    # cosines with three orthogonal proxies; a fourth direction completes
    # the length to 1
    cosines = torch.tensor([[.5, .1, -.2], [.3, 0, .4],
                            [.2, .6, .1], [0, .5, -.1]])
    rest = (1 - cosines.square().sum(1, keepdim=True)).sqrt()
    embeddings = torch.cat([cosines, rest], 1)
    proxies, labels = torch.eye(4)[:3], torch.tensor([0, 0, 1, 1])
    first = proxy_anchor_loss(embeddings[:2], labels[:2], proxies).item()
    second = proxy_anchor_loss(embeddings[2:], labels[2:], proxies).item()
    joined = proxy_anchor_loss(embeddings, labels, proxies).item()
    assert first == pytest.approx(7.482179, abs=2e-6)
    assert second == pytest.approx(5.335018, abs=2e-6)
    assert joined == pytest.approx(10.681948, abs=2e-6)


@pytest.mark.parametrize('dtype',
                         [torch.float16, torch.bfloat16, torch.float32])
def test_exponentials_beyond_half_precision_do_not_overflow(dtype):
    """alpha (1 + delta) = 35.2, and e^35.2 = 1.9e15 is beyond 65504."""
    x = torch.tensor([[1., 0.]], dtype=dtype, requires_grad=True)
    proxies = torch.tensor([[-1., 0.], [1., 0.]], dtype=dtype)
    proxies.requires_grad_()
    worst = proxy_anchor_loss(x, torch.tensor([0]), proxies)
    assert worst.item() == pytest.approx(35.2 + 35.2 / 2, rel=1e-6)
    worst.backward()
    assert x.grad.dtype == proxies.grad.dtype == dtype
    assert x.grad.isfinite().all() and proxies.grad.isfinite().all()


@pytest.mark.parametrize('dtype',
                         [torch.float16, torch.bfloat16, torch.float32])
def test_a_perfect_batch_has_a_tiny_loss_that_is_not_rounded_away(dtype):
    x = torch.tensor([[1., 0.]], dtype=dtype)
    proxies = torch.tensor([[-1., 0.], [1., 0.]], dtype=dtype)
    perfect = proxy_anchor_loss(x, torch.tensor([1]), proxies)
    assert perfect.item() == pytest.approx(
        1.5 * math.exp(-32 * 0.9), rel=1e-4)


def test_float32_inside_autocast():
    embeddings, proxies = leaves(8, 4, dtype=torch.float32)
    labels = torch.arange(8) % 4
    plain = proxy_anchor_loss(embeddings, labels, proxies)
    with torch.autocast('cpu', torch.bfloat16):
        cast = proxy_anchor_loss(embeddings, labels, proxies)
    assert cast.dtype == torch.float32
    assert torch.equal(plain, cast)


@pytest.mark.parametrize('scale', [1e-4, 1., 65536.])
def test_the_gradient_scales_with_the_incoming_gradient(scale):
    inputs = leaves(8, 4)
    labels = torch.arange(8) % 3
    loss = proxy_anchor_loss(inputs[0], labels, inputs[1])
    once = torch.autograd.grad(loss, inputs, retain_graph=True)
    scaled = torch.autograd.grad(scale * loss, inputs)
    for one, other in zip(once, scaled):
        torch.testing.assert_close(scale * one, other)


def isa_with_ones(embeddings, labels, proxies):
    cosines = cosine_similarities(embeddings, proxies)
    return proxy_isa_loss(cosines, labels, torch.ones(len(labels)),
                          torch.ones(cosines.shape))


@pytest.mark.parametrize('loss', [proxy_anchor_loss, isa_with_ones])
class TestBoth:

    def test_an_empty_batch_gives_zero_with_zero_gradients(self, loss):
        embeddings, proxies = leaves(0, 3)
        value = loss(embeddings, torch.empty(0, dtype=torch.int64), proxies)
        value.backward()
        assert value.item() == 0
        assert proxies.grad is not None and not proxies.grad.any()
        assert embeddings.grad.shape == (0, 5)

    def test_a_batch_of_one_class_is_defined(self, loss):
        embeddings, proxies = leaves(4, 3, dtype=torch.float32)
        labels = torch.full((4, ), 1)
        value = loss(embeddings, labels, proxies)
        torch.testing.assert_close(
            value, slow_loss(embeddings, labels, proxies))
        value.backward()
        assert embeddings.grad.isfinite().all()

    def test_a_single_class_at_all_is_defined(self, loss):
        embeddings, proxies = leaves(4, 1, dtype=torch.float32)
        value = loss(embeddings, torch.zeros(4, dtype=torch.int64), proxies)
        value.backward()
        assert value.isfinite() and embeddings.grad.isfinite().all()

    def test_a_zero_embedding_stays_finite(self, loss):
        embeddings = torch.zeros(2, 5, requires_grad=True)
        proxies = torch.randn(3, 5, requires_grad=True)
        value = loss(embeddings, torch.tensor([0, 1]), proxies)
        value.backward()
        assert value.isfinite() and embeddings.grad.isfinite().all()

    @pytest.mark.parametrize('wrong', [[0, 3], [-1, 0], [7, 3]])
    def test_labels_without_a_proxy_are_named(self, loss, wrong):
        embeddings, proxies = leaves(2, 3)
        outside = str(sorted(x for x in wrong if x not in range(3)))
        with pytest.raises(ValueError) as error:
            loss(embeddings, torch.tensor(wrong), proxies)
        assert outside in str(error.value)
        assert 'num_classes' in str(error.value)

    def test_labels_of_another_shape_or_dtype_are_refused(self, loss):
        embeddings, proxies = leaves(2, 3)
        for labels in (torch.zeros(3, dtype=torch.int64), torch.zeros(2)):
            with pytest.raises(ValueError, match='labels must be integers'):
                loss(embeddings, labels, proxies)

    def test_small_integer_labels_serve(self, loss):
        embeddings, proxies = leaves(3, 3)
        labels = torch.tensor([2, 0, 1])
        for dtype in (torch.int32, torch.uint8):
            torch.testing.assert_close(
                loss(embeddings, labels.to(dtype), proxies),
                loss(embeddings, labels, proxies))

    def test_the_order_of_the_batch_does_not_matter(self, loss):
        embeddings, proxies = leaves(6, 4)
        labels = torch.tensor([0, 0, 0, 1, 1, 2])
        order = torch.randperm(6)
        torch.testing.assert_close(
            loss(embeddings[order], labels[order], proxies),
            loss(embeddings, labels, proxies))

    def test_widths_that_do_not_fit_are_refused(self, loss):
        with pytest.raises(ValueError, match=r'\(2, 5\) and \(3, 4\)'):
            loss(torch.randn(2, 5), torch.tensor([0, 1]), torch.randn(3, 4))

    @pytest.mark.parametrize('backend', ['eager', 'aot_eager'])
    def test_torch_compile_changes_nothing(self, loss, backend):
        embeddings, proxies = leaves(6, 4, dtype=torch.float32)
        labels = torch.tensor([0, 0, 0, 1, 1, 2])
        expected = loss(embeddings, labels, proxies)
        found = torch.compile(loss, backend=backend)(
            embeddings, labels, proxies)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            gradients(found, embeddings, proxies),
            gradients(expected, embeddings, proxies))
