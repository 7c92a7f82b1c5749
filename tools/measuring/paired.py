"""Two methods that were run from the same seeds, compared.

What the seeds share (the first weights, the order of the data, the noise)
cancels in the differences, so a paired test sees smaller effects than one of
two independent samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats


class Paired(NamedTuple):
    """A paired comparison.

    Attributes:
        pairs (int): number of seeds that both have.
        difference (float): mean of a - b.
        deviation (float): standard deviation of the differences.
        t (float): two-sided p of the paired t test.
        wilcoxon (float): two-sided p of Wilcoxon's signed-rank test.
        power (float): of the t test at the level, were the true difference
            ``effect``, or, without one, the observed difference.
        detectable (float): the smallest true difference that the t test
            would have found with power .8.
        holm (float): the t test's p with Holm's correction for the family,
            where :func:`family` made it.
    """
    pairs: int
    difference: float
    deviation: float
    t: float
    wilcoxon: float
    power: float
    detectable: float
    holm: float = math.nan


def power_of_t(effect: float, pairs: int, level: float = .05) -> float:
    """Power of the two-sided paired t test.

    Args:
        effect (float): true mean of the differences in units of their
            standard deviation.
        pairs (int): number of pairs, >= 2.
        level (float): of significance.

    Example:
        >>> round(power_of_t(0.8, 10), 3)
        0.616
    """
    if pairs < 2:
        raise ValueError(f'a paired test needs 2 pairs, but got {pairs}')
    if math.isinf(effect):
        return 1.
    free, shift = pairs - 1, abs(effect) * math.sqrt(pairs)
    bound = stats.t.ppf(1 - level / 2, free)
    above = float(stats.nct.sf(bound, free, shift))
    below = float(stats.nct.cdf(-bound, free, shift))
    # far out scipy gives up, where the power is 1 and the lower tail 0
    return min(1., (1. if math.isnan(above) else above)
               + (0. if math.isnan(below) else below))


def detectable_effect(pairs: int, power: float = .8,
                      level: float = .05) -> float:
    """The smallest effect, in standard deviations, found with that power."""
    return float(optimize.brentq(
        lambda effect: power_of_t(effect, pairs, level) - power, 0, 1000,
        xtol=1e-6))


def compare(a: Mapping[object, float], b: Mapping[object, float],
            effect: float | None = None, level: float = .05) -> Paired:
    """Method ``a`` against ``b``, each seed to figure, on shared seeds.

    Raises:
        ValueError: with less than two shared seeds, or a figure that is not
            finite.
    """
    seeds = [seed for seed in a if seed in b]
    if len(seeds) < 2:
        raise ValueError('a paired test needs 2 seeds that both methods '
                         f'have, but got {len(seeds)}')
    gaps = np.array([a[seed] - b[seed] for seed in seeds])
    if not np.isfinite(gaps).all():
        raise ValueError(f'figures must be finite, but the differences are '
                         f'{gaps.tolist()}')
    mean, deviation = float(gaps.mean()), float(gaps.std(ddof=1))
    if deviation == 0:
        # no test is defined; differences that never vary are not chance
        p = 1. if mean == 0 else 0.
        return Paired(len(gaps), mean, 0., p, 1. if mean == 0 else float(
            stats.wilcoxon(gaps).pvalue), 1. - p, 0.)
    wanted = mean if effect is None else effect
    return Paired(
        len(gaps), mean, deviation,
        float(stats.ttest_1samp(gaps, 0).pvalue),
        float(stats.wilcoxon(gaps).pvalue),
        power_of_t(wanted / deviation, len(gaps), level),
        detectable_effect(len(gaps), level=level) * deviation)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of the p of a family of tests.

    Example:
        >>> holm([.01, .04, .03])
        [0.03, 0.06, 0.06]
    """
    found, highest = [0.] * len(values), 0.
    for place, index in enumerate(np.argsort(values, kind='stable')):
        highest = max(highest, min(1., (len(values) - place)
                                   * values[index]))
        found[index] = highest
    return found


def family(figures: Mapping[str, Mapping[object, float]],
           questions: Sequence[tuple[str, str]],
           level: float = .05) -> dict[tuple[str, str], Paired]:
    """All questions (a, b) that two shared seeds can answer, corrected."""
    found = {}
    for a, b in questions:
        shared = figures.get(a, {}).keys() & figures.get(b, {}).keys()
        if len(shared) >= 2:
            found[a, b] = compare(figures[a], figures[b], level=level)
    corrected = holm([each.t for each in found.values()])
    return {question: each._replace(holm=p) for (question, each), p
            in zip(found.items(), corrected)}
