import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mmrank.models.losses.score_calibration import ScoreCalibration


def calibration(scale, bias):
    result = ScoreCalibration()
    result.scale.fill_(scale)
    result.bias.fill_(bias)
    return result


def test_it_is_the_identity_until_it_is_fitted():
    scores = torch.rand(5)
    result = ScoreCalibration()
    assert not result.fitted
    assert result(scores) is scores
    assert result.inverse(0.05) == pytest.approx(0.05, rel=1e-12)


@given(st.floats(.1, 3), st.floats(-5, 5),
       st.lists(st.integers(1, 999), min_size=2, unique=True))
def test_it_keeps_the_order_of_the_scores(scale, bias, thousandths):
    scores = torch.tensor(sorted(thousandths), dtype=torch.float64) / 1000
    mapped = calibration(scale, bias)(scores)
    assert (mapped.diff() > 0).all()
    assert ((mapped > 0) & (mapped < 1)).all()


def test_the_ends_stay_and_the_dtype_too():
    ends = torch.tensor([0., 1.], dtype=torch.float16)
    mapped = calibration(2., -1.)(ends)
    assert mapped.dtype == torch.float16
    assert mapped.tolist() == [0, 1]


@given(st.floats(.1, 10), st.floats(-5, 5), st.floats(.01, .99))
def test_the_inverse_undoes_it(scale, bias, threshold):
    result = calibration(scale, bias)
    before = torch.tensor(result.inverse(threshold), dtype=torch.float64)
    if 1e-9 < before < 1 - 1e-9:
        assert float(result(before)) == pytest.approx(threshold, rel=1e-4)


def test_thresholds_that_cut_nothing_or_all_stay():
    assert [calibration(2., 1.).inverse(t) for t in (-1., 0., 1.)] == [
        -1, 0, 1]


def test_it_finds_the_probabilities_that_drew_the_matches():
    # narrow scores about a half, as margins of 0.15 leave them
    logits = torch.randn(20000) * 0.1
    truth = torch.sigmoid(20 * logits - 2)
    matches = torch.rand(20000) < truth
    fitted = ScoreCalibration().fit(logits.sigmoid(), matches)
    assert float(fitted.scale) == pytest.approx(20, rel=0.05)
    assert float(fitted.bias) == pytest.approx(-2, abs=0.1)


def test_separable_scores_give_a_finite_map():
    scores = torch.tensor([.1, .2, .8, .9])
    fitted = ScoreCalibration().fit(scores, scores > .5)
    assert fitted.scale.isfinite() and fitted.bias.isfinite()
    assert (fitted(scores).diff() > 0).all()


def test_scores_that_are_the_wrong_way_round_keep_their_order():
    scores = torch.linspace(.3, .7, 100)
    calibration = ScoreCalibration()
    with pytest.raises(ValueError, match='higher scores'):
        calibration.fit(scores, scores < .5)
    assert torch.equal(calibration(scores), scores)


@pytest.mark.parametrize('matches', [[], [True, True], [False, False]])
def test_without_correct_and_wrong_detections_there_is_nothing_to_fit(
        matches):
    matches = torch.tensor(matches, dtype=torch.bool)
    with pytest.raises(ValueError, match='correct and wrong'):
        ScoreCalibration().fit(torch.rand(len(matches)), matches)


def test_a_checkpoint_without_a_calibration_resets_it_silently():
    result = calibration(2., 1.)
    keys = result.load_state_dict({})
    assert not keys.missing_keys and not result.fitted
    result.load_state_dict(calibration(3., 1.).state_dict())
    assert float(result.scale) == 3
