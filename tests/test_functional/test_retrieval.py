import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.functional import (
    nearest_neighbours,
    retrieval_metrics,
)


def oracle(queries, query_labels, gallery=None, gallery_labels=None, ks=(1, )):
    """One query, one item and one rank at a time."""
    itself = gallery is None
    if itself:
        gallery, gallery_labels = queries, query_labels
    rows, skipped = [], 0
    for q in range(len(queries)):
        items = []
        for g in range(len(gallery)):
            if itself and g == q:
                continue
            cosine = torch.nn.functional.cosine_similarity(
                queries[q].double(), gallery[g].double(), dim=0).item()
            items.append((cosine, bool(query_labels[q] == gallery_labels[g])))
        # equal similarities: the irrelevant first
        items.sort(key=lambda pair: (-round(pair[0], 9), pair[1]))
        hits = [relevant for _, relevant in items]
        number = sum(hits)
        if number == 0:
            skipped += 1
            continue
        gains = [hit * sum(hits[:i + 1]) / (i + 1)
                 for i, hit in enumerate(hits)]
        row = {f'R@{k}': float(any(hits[:k])) for k in ks}
        row['R-precision'] = sum(hits[:number]) / number
        row['MAP@R'] = sum(gains[:number]) / number
        row['mAP'] = sum(gains) / number
        rows.append(row)
    mean = {name: sum(row[name] for row in rows) / len(rows)
            for name in rows[0]} if rows else {}
    return {**mean, 'num_queries': len(rows), 'num_skipped': skipped}


def exact_index(gallery):
    """Lists equals in the order of their indices, as faiss does."""

    def search(queries, k):
        values, order = (queries @ gallery.T).sort(
            dim=1, descending=True, stable=True)
        return values[:, :k], order[:, :k]

    return search


def assert_equals_oracle(*args, ks=(1, 2, 5, 100)):
    expected = oracle(*args, ks=ks)
    for chunk_size in (None, 1, 3):
        found = retrieval_metrics(*args, ks=ks, chunk_size=chunk_size)
        assert {name: found[name] for name in expected} == pytest.approx(
            expected, abs=1e-6)
    found = retrieval_metrics(*args, ks=ks, with_map=False,
                              index=exact_index)
    expected.pop('mAP', None)
    assert {name: found[name] for name in expected} == pytest.approx(
        expected, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_metrics_equal_the_oracle_with_ties_duplicates_and_singletons(data):
    size = data.draw(st.integers(1, 14))
    # few integer coordinates: most items have duplicates and ties
    vectors = st.lists(st.integers(-1, 2), min_size=2, max_size=2)
    points = data.draw(st.lists(vectors, min_size=size, max_size=size))
    labels = data.draw(
        st.lists(st.integers(0, 4), min_size=size, max_size=size))
    x, y = torch.tensor(points).float(), torch.tensor(labels)
    assert_equals_oracle(x, y)
    half = size // 2
    assert_equals_oracle(x[:half], y[:half], x[half:], y[half:])


def test_metrics_equal_the_oracle_on_random_embeddings():
    x, y = torch.randn(60, 8), torch.randint(0, 12, (60, ))
    assert_equals_oracle(x, y)
    assert_equals_oracle(x[:20], y[:20], x[20:], y[20:])


@pytest.mark.parametrize('with_map', [True, False])
def test_every_figure_is_the_same_whether_or_not_map_is_asked_for(with_map):
    x, y = torch.randn(80, 8), torch.randint(0, 20, (80, ))
    found = retrieval_metrics(x, y, ks=(1, 10, 50), with_map=with_map)
    assert ('mAP' in found) is with_map
    expected = oracle(x, y, ks=(1, 10, 50))
    for name in ('R@1', 'R@10', 'R@50', 'R-precision', 'MAP@R'):
        assert found[name] == pytest.approx(expected[name], abs=1e-6)


@pytest.mark.parametrize('separate', [True, False])
def test_metrics_equal_pytorch_metric_learnings(separate):
    calculators = pytest.importorskip(
        'pytorch_metric_learning.utils.accuracy_calculator')
    pytest.importorskip('faiss')
    x, y = torch.randn(200, 16), torch.randint(0, 30, (200, ))
    x = torch.nn.functional.normalize(x + torch.randn(30, 16)[y])
    args = (x[:80], y[:80], x[80:], y[80:]) if separate else (x, y)
    names = ('precision_at_1', 'r_precision',
             'mean_average_precision_at_r', 'mean_average_precision')
    their = calculators.AccuracyCalculator(
        include=names, k='max_bin_count', device=torch.device('cpu'))
    theirs = their.get_accuracy(*args)
    found = retrieval_metrics(*args)
    for name, same in zip(names[:3], ('R@1', 'R-precision', 'MAP@R')):
        assert found[same] == pytest.approx(theirs[name], abs=1e-6)
    whole = calculators.AccuracyCalculator(
        include=names[3:],
        k=len(args[-1]) - (not separate),
        device=torch.device('cpu'))
    assert found['mAP'] == pytest.approx(
        whole.get_accuracy(*args)[names[3]], abs=1e-6)


def test_a_query_is_left_out_by_index_and_its_duplicate_is_kept():
    x = torch.tensor([[1., 0.], [1., 0.], [0., 1.]])
    found = retrieval_metrics(x, torch.tensor([0, 0, 1]))
    assert found['R@1'] == 1.0
    assert retrieval_metrics(x, torch.tensor([0, 1, 1]))['R@1'] == 0.0


def test_a_separate_gallery_excludes_nothing():
    x, y = torch.eye(3), torch.arange(3)
    assert retrieval_metrics(x, y, x, y)['R@1'] == 1.0
    assert retrieval_metrics(x, y)['num_skipped'] == 3


def test_a_query_with_nothing_to_find_is_left_out_and_counted():
    x = torch.tensor([[1., 0.], [1., .1], [0., 1.]])
    found = retrieval_metrics(x, torch.tensor([0, 0, 1]))
    assert found['R@1'] == 1.0
    assert (found['num_queries'], found['num_skipped']) == (2, 1)


def test_a_query_whose_class_the_gallery_lacks_is_left_out_and_counted():
    x = torch.tensor([[1., 0.], [0., 1.]])
    found = retrieval_metrics(x, torch.tensor([0, 9]), x,
                              torch.tensor([0, 1]))
    assert found['R@1'] == found['MAP@R'] == 1.0
    assert (found['num_queries'], found['num_skipped']) == (1, 1)


def test_no_query_at_all_gives_nan_and_not_a_division_by_zero():
    found = retrieval_metrics(torch.eye(2), torch.tensor([0, 1]))
    assert math.isnan(found['R@1']) and math.isnan(found['MAP@R'])
    empty = torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)
    assert retrieval_metrics(*empty)['num_queries'] == 0
    assert retrieval_metrics(torch.eye(3), torch.arange(3),
                             *empty)['num_skipped'] == 3


def test_enough_neighbours_are_searched_for_a_class_of_150():
    x = torch.randn(320, 16)
    y = torch.cat([torch.zeros(150), torch.arange(1, 171)]).long()
    expected = oracle(x, y)
    found = retrieval_metrics(x, y, with_map=False)
    assert found['R-precision'] == pytest.approx(expected['R-precision'])
    assert found['MAP@R'] == pytest.approx(expected['MAP@R'], abs=1e-6)


def test_an_item_retrieved_twice_does_not_lift_map_above_one():
    x = torch.tensor([[1., 0.], [1., 0.], [1., 0.], [0., 1.]])
    found = retrieval_metrics(
        x[:1], torch.tensor([7]), x[1:], torch.tensor([7, 7, 3]))
    assert found['mAP'] == found['MAP@R'] == 1.0


def test_constant_embeddings_score_as_badly_as_possible_in_any_order():
    x = torch.randn(1, 64).expand(100, -1)
    y = torch.zeros(100).long()
    y[5:] = torch.arange(1, 96)
    for order in (torch.arange(100), torch.randperm(100)):
        found = retrieval_metrics(x, y[order])
        assert found['R@1'] == found['R-precision'] == found['MAP@R'] == 0
        # the four relevant ones stand at 96..99 of 99
        expected = (1 / 96 + 2 / 97 + 3 / 98 + 4 / 99) / 4
        assert found['mAP'] == pytest.approx(expected, abs=1e-6)


def test_a_tie_that_an_index_cuts_off_is_still_pessimistic():
    """The relevant item is found first of 30 equals and stands last."""
    x = torch.zeros(31, 2)
    x[:, 0] = 1
    y = torch.arange(31).clamp(min=1)
    for ks, expected in (((1, 29), 0.), ((30, ), 1.)):
        found = retrieval_metrics(x[:1], y[:1], x[1:], y[1:], ks=ks,
                                  with_map=False, index=exact_index)
        assert found[f'R@{ks[-1]}'] == expected
        assert found['MAP@R'] == 0


def test_half_precision_is_lifted_and_double_is_kept():
    x, y = torch.randn(40, 8), torch.randint(0, 8, (40, ))
    half = retrieval_metrics(x.half(), y)
    assert half['MAP@R'] == pytest.approx(
        retrieval_metrics(x.half().float(), y)['MAP@R'], abs=1e-7)
    assert retrieval_metrics(x.double(), y)['R@1'] == retrieval_metrics(
        x, y)['R@1']


@pytest.mark.parametrize('changed, word', [
    (dict(queries=torch.full((4, 2), math.nan)), 'finite'),
    (dict(query_labels=torch.zeros(3).long()), 'shapes'),
    (dict(query_labels=torch.zeros(4)), 'integer'),
    (dict(ks=(0, 1)), 'at least 1'),
    (dict(gallery=torch.eye(2)), 'both'),
    (dict(index=lambda gallery: None), 'with_map=False'),
    (dict(gallery=torch.eye(3), gallery_labels=torch.arange(3)), 'wide'),
])
def test_bad_input_is_named(changed, word):
    good = dict(queries=torch.ones(4, 2), query_labels=torch.zeros(4).long())
    with pytest.raises(ValueError, match=word):
        retrieval_metrics(**{**good, **changed})


@pytest.mark.parametrize('scale', [2.**100, 2.**-100])
def test_lengths_whose_squares_overflow_or_vanish_change_nothing(scale):
    x = torch.randn(
        12, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 3
    assert retrieval_metrics(x * scale, labels) == retrieval_metrics(
        x, labels)
    assert torch.equal(nearest_neighbours(x * scale, k=4)[1],
                       nearest_neighbours(x, k=4)[1])


def test_labels_may_be_booleans():
    x = torch.randn(6, 3)
    labels = torch.arange(6) % 2
    assert retrieval_metrics(x, labels.bool()) == retrieval_metrics(
        x, labels)
