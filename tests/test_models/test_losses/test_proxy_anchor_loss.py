import pytest
import torch

from mmrank.functional import proxy_anchor_loss
from mmrank.models.losses import ProxyAnchorLoss


def test_is_the_function_times_its_weight():
    embeddings, proxies = torch.randn(6, 4), torch.randn(3, 4)
    labels = torch.arange(6) % 3
    found = ProxyAnchorLoss(margin=.2, alpha=8., loss_weight=.5)(
        embeddings, labels, proxies=proxies)
    expected = proxy_anchor_loss(
        embeddings, labels, proxies, margin=.2, alpha=8.)
    assert found.item() == pytest.approx(expected.item() / 2)


def test_has_no_parameters_of_its_own():
    """The head owns the proxies, or two names would lead to one tensor."""
    assert not list(ProxyAnchorLoss().parameters())


@pytest.mark.parametrize('wrong, named', [
    (dict(alpha=0), 'alpha'),
    (dict(distributed='mean'), "'mean'"),
])
def test_values_out_of_range_are_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        ProxyAnchorLoss(**wrong)


def test_missing_proxies_are_named():
    with pytest.raises(ValueError, match='ProxyAnchorLoss needs proxies'):
        ProxyAnchorLoss()(torch.randn(2, 3), torch.tensor([0, 1]))
