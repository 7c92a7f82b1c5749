import math

import pytest
import torch

from mmrank.functional import fpr_at_recall


def test_fpr_at_95_accepts_exactly_95_of_100_matches():
    distances = torch.cat([torch.arange(100) / 100., torch.tensor(
        [.935, .94, .945, .99])])
    matches = torch.arange(104) < 100
    # the 95th match lies at 0.94; two of four others at or below it
    assert fpr_at_recall(distances, matches).item() == 0.5


def test_fpr_of_a_constant_distance_is_one():
    matches = torch.tensor([1, 0, 1, 0])
    assert fpr_at_recall(torch.zeros(4), matches).item() == 1.0


@pytest.mark.parametrize('distances, matches, word', [
    ([1., 2.], [1, 1], 'non-matching'), ([1., 2.], [0, 0], 'matching'),
    ([1., math.nan], [0, 1], 'NaN'), ([1.], [0, 1], 'length')])
def test_fpr_without_both_kinds_of_pairs_is_an_error(
        distances, matches, word):
    with pytest.raises(ValueError, match=word):
        fpr_at_recall(torch.tensor(distances), torch.tensor(matches))
