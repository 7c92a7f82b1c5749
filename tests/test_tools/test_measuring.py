import math
import mmap
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from . import loading  # noqa: F401, puts measuring on the path

from measuring import cost, paired, record, report  # isort: skip
from measuring.grid import Grid  # isort: skip


def grid(path):
    return Grid(path, ('method', 'seed'), ('method', 'seed', 'R@1', 'seconds'),
                ('seed', 'R@1'), 'python tools/some.py')


CELLS = [dict(method=method, seed=seed) for seed in range(2)
         for method in ('a', 'b')]


def test_an_interrupted_grid_goes_on_where_its_file_ends(tmp_path):
    path, calls = tmp_path / 'new/cells.csv', []

    def figures(cell):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(cell)
        return {'R@1': .5}

    cells = grid(path)
    cells.run(lambda rows: CELLS, figures, most=1)
    assert len(cells.rows()) == 1
    with pytest.raises(KeyboardInterrupt):
        cells.run(lambda rows: CELLS, figures)
    assert cells.missing(CELLS) == CELLS[3:]
    grid(path).run(lambda rows: CELLS, lambda cell: {'R@1': .25})
    assert [row['R@1'] for row in cells.rows()] == [.5, .5, .5, .25]
    cells.run(lambda rows: CELLS, lambda cell: 1 / 0)


def test_later_cells_follow_from_the_results_of_earlier_ones(tmp_path):
    cells = grid(tmp_path / 'cells.csv')
    cells.run(lambda rows: [CELLS[0]] + [
        dict(method=f'after {row["R@1"]}', seed=1) for row in rows[:1]],
        lambda cell: {'R@1': .5})
    assert [row['method'] for row in cells.rows()] == ['a', 'after 0.5']


def test_a_row_holds_its_circumstances_in_the_order_of_its_file(tmp_path):
    path = tmp_path / 'cells.csv'
    cells = grid(path)
    cells.append(dict(method='a', seed=0, **{'R@1': .5}))
    row = cells.rows()[0]
    assert {key: row[key] for key in record.RECORD} == record.record(
        'python tools/some.py')
    assert 'Made by `python tools/some.py`, commit' in record.made_by(row)
    path.write_text('command,seed,method,R@1,commit,hardware,torch,date,'
                    'seconds\n')
    grid(path).append(dict(method='a', seed=0, seconds=1, **{'R@1': .5}))
    line = path.read_text().splitlines()[1]
    assert line.startswith('python tools/some.py,0,a,0.5,')


def test_the_record_names_the_script_from_the_root(monkeypatch):
    monkeypatch.setattr('sys.argv', ['x', '--steps', '3'])
    script = record.ROOT / 'tools/reproduce/detection.py'
    assert record.command(str(script)) == \
        'python tools/reproduce/detection.py --steps 3'
    assert record.hardware().endswith(('thread', 'threads'))


def test_jobs_take_turns_and_warm_up_without_being_counted():
    order = []
    times = cost.interleaved(
        dict(a=lambda: order.append('a'), b=lambda: order.append('b')),
        repeats=2, rounds=2, warmup=1)
    assert ''.join(order) == 'aaabbb' * 2
    assert {name: len(each) for name, each in times.items()} == dict(a=4, b=4)


def test_time_is_that_of_the_job_alone():
    times = cost.interleaved(
        dict(a=lambda: None), repeats=3, warmup=0,
        prepare=lambda: time.sleep(.05))
    assert max(times['a']) < .05


def test_the_peak_of_a_block_is_told_above_what_was_before():
    # pages that no allocator has kept from an earlier test
    with mmap.mmap(-1, 64 * 2**20) as pages, cost.Peak() as peak:
        np.frombuffer(pages, np.uint8)[:] = 1
    assert 60 * 2**20 < peak.above < 80 * 2**20


def test_a_table_is_markdown():
    assert report.table(('a', 'b'), [(1, 'x')]) == \
        '| a | b |\n| --- | --- |\n| 1 | x |'


finite = st.floats(-100, 100)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(finite, finite), min_size=3, max_size=12))
def test_a_paired_comparison_is_scipys(pairs):
    a, b = (dict(enumerate(side)) for side in zip(*pairs))
    gaps = np.subtract(*zip(*pairs))
    found = paired.compare(a, b)
    assert found.pairs == len(pairs)
    assert found.difference == pytest.approx(gaps.mean())
    if gaps.std() > 1e-6:
        assert found.t == pytest.approx(
            stats.ttest_rel(*zip(*pairs)).pvalue, abs=1e-9)
        assert found.wilcoxon == stats.wilcoxon(gaps).pvalue
    swapped = paired.compare(b, a)
    assert swapped.difference == -found.difference
    assert swapped.power == pytest.approx(found.power, abs=1e-9)


def test_only_shared_seeds_are_compared():
    found = paired.compare({0: 1., 1: 2., 2: 9.}, {2: 1., 1: 1., 7: 0.})
    assert found.pairs == 2 and found.difference == 4.5
    with pytest.raises(ValueError, match='2 seeds .* got 1'):
        paired.compare({0: 1., 1: 2.}, {1: 1.})
    with pytest.raises(ValueError, match='finite'):
        paired.compare({0: math.nan, 1: 2.}, {0: 1., 1: 1.})


def test_differences_that_never_vary_are_certain_or_none():
    same = paired.compare({0: 1., 1: 2.}, {0: 1., 1: 2.})
    assert (same.t, same.power) == (1., 0.)
    above = paired.compare({0: 2., 1: 3.}, {0: 1., 1: 2.})
    assert (above.t, above.power) == (0., 1.)


def test_the_power_is_the_share_of_simulated_tests_that_find_the_effect():
    drawn = np.random.default_rng(0).normal(.8, 1, (20_000, 10))
    share = (stats.ttest_1samp(drawn, 0, axis=1).pvalue < .05).mean()
    assert paired.power_of_t(.8, 10) == pytest.approx(share, abs=.01)
    assert paired.power_of_t(0., 10) == pytest.approx(.05)
    assert paired.power_of_t(100., 10) == paired.power_of_t(math.inf, 3) == 1.


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 40), st.floats(.2, .95))
def test_the_detectable_effect_has_the_power_that_was_asked_for(pairs, power):
    effect = paired.detectable_effect(pairs, power)
    assert paired.power_of_t(effect, pairs) == pytest.approx(power, abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holms_correction_rejects_as_its_steps_do(values):
    corrected = paired.holm(values)
    assert all(c >= p for c, p in zip(corrected, values))
    for level in (.01, .05, .2):
        rejected = [False] * len(values)
        for place, index in enumerate(np.argsort(values, kind='stable')):
            if (len(values) - place) * values[index] > level:
                break
            rejected[index] = True
        assert [c <= level for c in corrected] == rejected


def test_a_family_holds_the_questions_that_can_be_answered():
    figures = dict(a={0: 1., 1: 2.1, 2: 3.}, b={0: .5, 1: 1., 2: 2.},
                   c={0: 1.})
    found = paired.family(figures, [('a', 'b'), ('b', 'a'), ('a', 'c'),
                                    ('a', 'x')])
    assert list(found) == [('a', 'b'), ('b', 'a')]
    assert found['a', 'b'].holm == pytest.approx(2 * found['a', 'b'].t)
