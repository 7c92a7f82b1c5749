
import pytest
import torch

from mmrank.functional import average_precision


@pytest.mark.parametrize('convention, value', [
    ('finite', 5 / 6), ('trapezoid', .791667), ('threshold', 5 / 6)])
def test_each_convention_of_average_precision_has_its_own_number(
        convention, value):
    found = average_precision(
        torch.tensor([4., 3., 2., 1.]), torch.tensor([1, 0, 1, 0]),
        convention=convention)
    assert found.item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize('convention', ['finite', 'trapezoid', 'threshold'])
def test_average_precision_of_ties_does_not_depend_on_the_order(convention):
    scores, relevance = torch.ones(4), torch.tensor([1, 0, 0, 0])
    found = {round(average_precision(
        scores, relevance.roll(shift), convention=convention).item(), 9)
        for shift in range(4)}
    assert len(found) == 1
    if convention != 'trapezoid':
        assert found == {0.25}


def test_constant_descriptors_have_average_precision_near_chance():
    relevance = torch.zeros(100)
    relevance[:5] = 1
    found = average_precision(
        torch.zeros(100), relevance, convention='threshold')
    assert found.item() == pytest.approx(0.05)


def test_threshold_average_precision_equals_scikit_learns():
    sklearn = pytest.importorskip('sklearn.metrics')
    scores = torch.randint(0, 6, (7, 30)).float()
    relevance = torch.rand(7, 30) < .3
    relevance[:, 0] = True
    found = average_precision(scores, relevance, convention='threshold')
    for row in range(7):
        assert found[row].item() == pytest.approx(
            sklearn.average_precision_score(relevance[row], scores[row]))


def test_average_precision_of_nothing_relevant_is_nan():
    assert average_precision(torch.ones(3), torch.zeros(3)).isnan()
    with pytest.raises(ValueError, match='convention'):
        average_precision(torch.ones(3), torch.ones(3), convention='area')


@pytest.mark.parametrize('convention', ['finite', 'trapezoid', 'threshold'])
def test_shared_ties_give_the_share_that_each_order_has(convention):
    """Of two tied items one is relevant: both are half relevant."""
    scores = torch.tensor([3., 2., 2., 1.])
    halves = torch.tensor([1., .5, .5, 1.])
    found = {average_precision(
        scores, torch.tensor(listed), convention=convention,
        ties='shared').item() for listed in ([1, 1, 0, 1], [1, 0, 1, 1])}
    assert found == {average_precision(
        scores, halves, convention=convention, ties='shared').item()}


def test_without_ties_both_rules_agree():
    scores = torch.randperm(40).double().view(4, 10)
    relevance = (torch.arange(40).view(4, 10) % 3 == 0)
    for convention in ('finite', 'trapezoid', 'threshold'):
        both = [average_precision(scores, relevance, convention=convention,
                                  ties=ties) for ties in ('worst', 'shared')]
        assert torch.equal(*both)
    with pytest.raises(ValueError, match='ties must be worst or shared'):
        average_precision(scores, relevance, ties='random')


def test_relevant_items_that_are_not_listed_count_as_never_found():
    scores, relevance = torch.tensor([2., 1.]), torch.tensor([1, 0])
    assert average_precision(scores, relevance, positives=4.).item() == .25
