"""The base of all losses of embeddings, through a leaf of three lines."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.models.losses import EmbeddingLoss
from mmrank.state import current


class Pull(EmbeddingLoss):
    """Elements of one class together."""

    needs_pairs = True

    def batch_loss(self, embeddings, labels, context):
        assert embeddings[context.own].dtype == embeddings.dtype
        gap = torch.cdist(embeddings, embeddings)
        return (gap * (labels[:, None] == labels)).sum()


class Attract(EmbeddingLoss):
    """Elements to their proxies."""

    needs_proxies = True

    def batch_loss(self, embeddings, labels, context):
        return (embeddings - context.proxies[labels]).square().sum()


def batch(n=6):
    return torch.randn(n, 4, requires_grad=True), torch.arange(n) // 2


@pytest.mark.parametrize('wrong, message', [
    ((torch.zeros(3, 2), torch.zeros(2).long()), r'\(B, D\).*\(3, 2\)'),
    ((torch.zeros(3), torch.zeros(3).long()), r'\(B, D\).*\(3,\)'),
    ((torch.zeros(3, 2), torch.zeros(3)), 'integers.*float32'),
])
def test_batches_that_do_not_fit_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Pull()(*wrong)


def test_missing_proxies_are_named_with_their_remedy():
    with pytest.raises(ValueError, match='Attract needs.*num_classes'):
        Attract()(*batch())


@pytest.mark.parametrize('options', [
    dict(distributed='both'), dict(loss_weight=-1.)])
def test_bad_options_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Pull(**options)


def test_a_subclass_without_its_method_says_which():
    with pytest.raises(NotImplementedError, match='batch_loss'):
        EmbeddingLoss()(*batch())


@pytest.mark.parametrize('dtype', [
    torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_leaf_sees_float32_or_wider_also_under_autocast(dtype):
    embeddings, labels = batch()
    leaf = embeddings.detach().to(dtype).requires_grad_()
    expected = Pull()(leaf, labels)
    with torch.autocast('cpu', torch.bfloat16):
        value = Pull(loss_weight=2.)(leaf, labels)
    value.backward()
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    assert torch.equal(value, 2 * expected) and leaf.grad.dtype == dtype


def test_fifty_batches_without_a_pair_warn_once():
    loss = Pull()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for step in range(110):
            loss(torch.randn(3, 4), torch.arange(3))
            assert len(caught) == (step >= 49)
    assert 'Pull teaches nothing' in str(caught[0].message)
    loss = Pull()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for step in range(110):
            # a pair once in a while is enough
            loss(torch.randn(3, 4), torch.arange(3) % (2 + (step % 40 > 0)))


class Model(nn.Module):

    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.loss = Pull(**options)

    def forward(self, inputs, labels):
        return self.loss(self.linear(inputs), labels)


def halves():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(7, 4, generator=generator), torch.arange(7) % 2


def one_step():
    mine = current().index
    model = Model()
    parts = [part.split((5, 2))[mine] for part in halves()]
    wrapped = DistributedDataParallel(model)
    value = wrapped(*parts)
    value.backward()
    gradient = model.linear.weight.grad.clone()
    with torch.no_grad():
        own = model(*parts).item()
    # one process may have a batch more to evaluate: nobody is waited for
    if mine == 0:
        own = model.eval()(*parts).item()
    return value.item(), gradient, own


def test_two_processes_learn_what_one_learns_and_evaluate_apart(processes):
    model = Model()
    value = model(*halves())
    value.backward()
    for index, (found, gradient, own) in enumerate(
            processes(2).run(one_step)):
        assert found == pytest.approx(value.item())
        torch.testing.assert_close(gradient, model.linear.weight.grad)
        parts = [part.split((5, 2))[index] for part in halves()]
        assert own == pytest.approx(model(*parts).item())
