
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
