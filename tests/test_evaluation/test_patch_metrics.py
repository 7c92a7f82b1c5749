"""FPR95 and the HPatches tasks, against slow definitions."""

import numpy as np
import pytest
import torch

from mmrank.datasets.generators.photo_patches import write_tasks
from mmrank.datasets.readers.hpatches import STRIPS
from mmrank.evaluation import HPatchesMetric, PatchVerificationMetric
from mmrank.evaluation.metrics.hpatches_metric import (
    ranked_average_precision,
)


# ---------------------------------------------------------------------- FPR95
def fpr(pairs, matches):
    metric = PatchVerificationMetric()
    metric.process({}, [dict(descriptors=torch.tensor(pair), match=match)
                        for pair, match in zip(pairs, matches)])
    return metric.compute_metrics(metric.results)['FPR95']


def test_fpr95_counts_the_negatives_below_the_95_percent_recall_distance():
    # 20 matches at distances 1..20: the 19th is the threshold
    distances = [*range(1, 21), 18.5, 19.5, 30., 40.]
    pairs = [[[0.], [float(d)]] for d in distances]
    assert fpr(pairs, [True] * 20 + [False] * 4) == 25.


def test_constant_descriptors_have_a_false_positive_rate_of_100_percent():
    pairs = [[[1., 0.], [1., 0.]]] * 10
    assert fpr(pairs, [True, False] * 5) == 100.


# ---------------------------------------------------------- average precision
def trapezoid(order_of_labels, positives):
    """The area under the curve through every rank, from (0, 1)."""
    area, recall, precision, found = 0., 0., 1., 0
    for rank, label in enumerate(order_of_labels, 1):
        found += label
        now = found / rank
        area += (found / positives - recall) * (precision + now) / 2
        recall, precision = found / positives, now
    return area


def test_both_conventions_give_their_known_values():
    d, gains = np.arange(4.), np.array([1, 0, 1, 0])
    assert ranked_average_precision(d, gains) == \
        pytest.approx(.791667, abs=1e-6)
    assert ranked_average_precision(d, gains, convention='finite') == \
        pytest.approx(5 / 6)


@pytest.mark.parametrize('seed', range(5))
def test_area_without_ties_is_that_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    d, gains = rng.permutation(np.arange(30.)), rng.integers(0, 2, 30)
    want = trapezoid(gains[np.argsort(d)], gains.sum() + 2)
    got = ranked_average_precision(d, gains, positives=gains.sum() + 2)
    assert got == pytest.approx(want)


@pytest.mark.parametrize('convention', ['trapezoid', 'finite'])
def test_ties_do_not_depend_on_the_order_of_items(convention):
    d = np.array([1., 2., 2., 2., 3.])
    gains = np.array([0, 1, 0, 0, 1])
    values = set()
    for order in ([0, 1, 2, 3, 4], [0, 2, 3, 1, 4], [4, 3, 2, 1, 0]):
        values.add(round(ranked_average_precision(
            d[order], gains[order], convention=convention), 12))
    assert len(values) == 1


def test_constant_descriptors_score_near_chance_whatever_is_listed_first():
    gains = np.repeat([1., 0.], [5, 95])
    for order in (gains, gains[::-1], np.random.permutation(gains)):
        finite = ranked_average_precision(np.zeros(100), order,
                                          convention='finite')
        assert finite == pytest.approx(.05)
        area = ranked_average_precision(np.zeros(100), order)
        assert .05 <= area <= .072


def test_nothing_relevant_gives_zero():
    assert ranked_average_precision(np.arange(3.), np.zeros(3)) == 0
    assert ranked_average_precision(np.zeros(0), np.zeros(0)) == 0


# ------------------------------------------------------------------- HPatches
LENGTHS = dict(v_a=7, v_b=5, i_c=6)
NAMES = dict(e='easy', h='hard', t='tough')


@pytest.fixture(scope='module')
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tasks')
    write_tasks(folder, 'a', LENGTHS, 40, np.random.default_rng(0))
    return folder


def random_descriptors(constant=False):
    rng = np.random.default_rng(1)
    table = {}
    for name, count in LENGTHS.items():
        base = rng.normal(size=(count, 6))
        for strip in STRIPS:
            rows = base + .7 * rng.normal(size=base.shape)
            if constant:
                rows = np.ones_like(rows)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            table[name, strip] = rows.astype(np.float32)
    return table


def evaluate(table, tasks, **kwargs):
    metric = HPatchesMetric(**kwargs)
    metric.dataset_meta = dict(split='a', tasks_dir=str(tasks))
    metric.process({}, [dict(sequence=s, strip=t,
                             descriptors=torch.from_numpy(rows))
                        for (s, t), rows in table.items()])
    return metric.compute_metrics(metric.results)


def rows_of(path):
    return [line.split(',') for line in path.read_text().split()[1:]]


def area(distances, labels, positives=None):
    order = np.argsort(distances, kind='stable')
    labels = np.asarray(labels)[order]
    return trapezoid(labels, positives or labels.sum())


def toolkit_verification(table, tasks):
    """All negatives and the first fifth of the positives, pair by pair."""
    scores = {}
    for kind in ('inter', 'intra'):
        for key, name in NAMES.items():
            def distance(row, key=key):
                ends = [table[row[i], 'ref' if row[i + 1] == '0'
                              else key + row[i + 1]][int(row[i + 2])]
                        for i in (0, 3)]
                return np.linalg.norm(ends[0].astype(float) - ends[1])
            right = [distance(row) for row in
                     rows_of(tasks / 'verif_pos_split-a.csv')]
            wrong = [distance(row) for row in
                     rows_of(tasks / f'verif_neg_{kind}_split-a.csv')]
            few = right[:len(right) // 5]
            scores[f'verification/{kind}/{name}'] = area(
                wrong + few, [0] * len(wrong) + [1] * len(few))
    return scores


def toolkit_matching(table):
    scores = {}
    for kind, label in (('v', 'viewpoint'), ('i', 'illumination')):
        for key, name in NAMES.items():
            means = []
            for sequence in (s for s in LENGTHS if s[0] == kind):
                ref, areas = table[sequence, 'ref'].astype(float), []
                for image in range(1, 6):
                    other = table[sequence, f'{key}{image}']
                    d = np.linalg.norm(ref[:, None] - other[None], axis=2)
                    areas.append(area(
                        d.min(1), d.argmin(1) == np.arange(len(ref)),
                        len(ref)))
                means.append(np.mean(areas))
            scores[f'matching/{label}/{name}'] = np.mean(means)
    return scores


def toolkit_retrieval(table, tasks, pools):
    queries = rows_of(tasks / 'retr_queries_split-a.csv')
    distractors = rows_of(tasks / 'retr_distractors_split-a.csv')
    scores = {}
    for key, name in NAMES.items():
        means = []
        for sequence, index in queries:
            query = table[sequence, 'ref'][int(index)].astype(float)
            items = [table[sequence, f'{key}{i}'][int(index)]
                     for i in range(1, 6)]
            items += [table[s, 'ref'][int(i)] for s, i in distractors
                      if s != sequence]
            labels = [1] * 5 + [0] * (len(items) - 5)
            d = [np.linalg.norm(query - item) for item in items]
            means += [area(d[:k], labels[:k]) for k in pools]
        scores[f'retrieval/{name}'] = np.mean(means)
    return scores


def test_all_tasks_equal_the_benchmarks_protocol(tasks):
    table, pools = random_descriptors(), (7, 9, 100)
    got = evaluate(table, tasks, pool_sizes=pools)
    want = {**toolkit_verification(table, tasks), **toolkit_matching(table),
            **toolkit_retrieval(table, tasks, pools)}
    assert set(want) <= set(got)
    for key, value in want.items():
        assert got[key] == pytest.approx(100 * value, abs=1e-4), key
    for task in ('verification', 'retrieval'):
        parts = [v for k, v in want.items() if k.startswith(task)]
        assert got[task] == pytest.approx(100 * np.mean(parts), abs=1e-4)
    assert got['matching'] == pytest.approx(100 * np.mean(
        [v for k, v in want.items() if k.startswith('matching')]), abs=1e-4)


def test_golden_numbers_of_both_conventions(tasks):
    keys = ('verification', 'matching', 'retrieval')
    table = random_descriptors()
    got = [evaluate(table, tasks, convention=convention)
           for convention in ('trapezoid', 'finite')]
    for scores, want in zip(got, GOLDEN):
        assert [scores[k] for k in keys] == pytest.approx(want, abs=1e-3)


GOLDEN = ([71.356, 63.645, 88.38], [73.353, 65.311, 90.009])


def test_constant_descriptors_score_near_chance_in_all_three_tasks(tasks):
    got = evaluate(random_descriptors(constant=True), tasks)
    # chance: 8 of 48 pairs; 1 of 5..7 patches; 5 of 5 + distractors
    assert 15 <= got['verification'] <= 22
    assert got['matching'] <= 100 / 5
    count = len(rows_of(tasks / 'retr_distractors_split-a.csv'))
    chance = 100 * 5 / (5 + count)
    assert chance <= got['retrieval'] <= 65
    full = evaluate(random_descriptors(), tasks)
    assert all(full[k] > got[k] + 10
               for k in ('verification', 'matching', 'retrieval'))


def test_perfect_descriptors_score_100(tasks):
    rng = np.random.default_rng(0)
    table = {}
    for name, count in LENGTHS.items():
        base = rng.normal(size=(count, 6)).astype(np.float32)
        table |= {(name, strip): base for strip in STRIPS}
    got = evaluate(table, tasks)
    for key in ('verification', 'matching', 'retrieval'):
        assert got[key] == pytest.approx(100)


def test_clear_errors(tasks, tmp_path):
    table = random_descriptors()
    with pytest.raises(ValueError, match="tasks must be of.*'stitching'"):
        HPatchesMetric(tasks=['stitching'])
    with pytest.raises(ValueError, match="convention must be.*'11point'"):
        HPatchesMetric(convention='11point')
    with pytest.raises(FileNotFoundError, match='tasks_dir'):
        evaluate(table, tmp_path)
    short = dict(table)
    del short['v_a', 'h3']
    with pytest.raises(ValueError, match="'v_a', 'h3'.*1 in all"):
        evaluate(short, tasks)
    fewer = {key: rows[:2] for key, rows in table.items()}
    with pytest.raises(ValueError, match='the split holds 2 patches'):
        evaluate(fewer, tasks)
    (tmp_path / 'verif_pos_split-a.csv').write_text('s1,t1\nv_a,1\n')
    with pytest.raises(ValueError, match='line 2: expected 6 columns'):
        evaluate(table, tmp_path)
