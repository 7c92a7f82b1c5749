"""Each metric on processes between which the items do not divide.

Of seven items for two processes the second gets the first one once more, as
MMEngine's sampler does it, and that counts once.
"""

from multiprocessing.pool import ThreadPool
from unittest import mock

import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler

from mmrank.datasets.generators.photo_patches import write_tasks
from mmrank.datasets.readers.hpatches import STRIPS
from mmrank.evaluation import (
    HPatchesMetric,
    PatchVerificationMetric,
    RetrievalMetric,
)
from mmrank.registry import METRICS

from ..test_evaluation.test_retrieval_metric import sample


def figures(metric, items):
    """The metric of this process's share of the items, one a batch."""
    sampler = DefaultSampler(items, shuffle=False)
    for index in sampler:
        metric.process({}, [items[index]])
    return metric.evaluate(len(items))


def verification():
    distances = [1., 2., 3., 4., 2.5, 9., 0.5]
    return figures(PatchVerificationMetric(recall=.75), [
        dict(descriptors=torch.tensor([[0.], [distance]]), match=index < 4)
        for index, distance in enumerate(distances)])


def hpatches(folder):
    rng = np.random.default_rng(1)
    items = []
    for name, count in (('v_a', 6), ('i_b', 5)):
        base = rng.normal(size=(count, 6))
        items += [
            dict(sequence=name, strip=strip, descriptors=torch.from_numpy(
                base + rng.normal(size=base.shape))) for strip in STRIPS]
    metric = HPatchesMetric(pool_sizes=(7, 100))
    metric.dataset_meta = dict(split='a', tasks_dir=folder)
    return figures(metric, items)


def retrieval():
    return figures(RetrievalMetric(ks=(1, 2)),
                   [sample(index).to_dict() for index in range(31)])


def detection():
    boxes = torch.tensor([[0., 0., 9., 9.], [20., 0., 29., 9.]])
    items = []
    for index in range(7):
        hit = index % 3 != 1
        items.append(dict(
            gt_instances=dict(bboxes=boxes[:1], labels=torch.tensor([0])),
            ignored_instances=dict(
                bboxes=boxes[:0], labels=torch.zeros(0, dtype=torch.long)),
            pred_instances=dict(
                bboxes=boxes[:1] if hit else boxes[1:],
                scores=torch.tensor([1 - index / 10]),
                labels=torch.tensor([0]))))
    metric = METRICS.build(dict(type='mmrank.VOCPrecisionRecallMetric'))
    metric.dataset_meta = dict(classes=('cat', ), dataset_type='VOC2007')
    # the test's processes are daemons, which may have no children
    with mock.patch('mmdet.evaluation.functional.mean_ap.Pool', ThreadPool):
        return figures(metric, items)


def no_matching_pair(folder):
    return figures(PatchVerificationMetric(), [
        dict(descriptors=torch.zeros(2, 3), match=False)] * 3)


def no_task_files(folder):
    hpatches(f'{folder}/none')


def an_outfile_below_a_file(folder):
    figures(RetrievalMetric(outfile=f'{folder}/file/found.pt'),
            [sample(index).to_dict() for index in range(3)])


def no_images(folder):
    METRICS.build(dict(type='mmrank.VOCPrecisionRecallMetric')).evaluate(0)


def an_error_of_an_unusual_kind(folder):
    with mock.patch.object(PatchVerificationMetric, 'compute_metrics',
                           side_effect=UnicodeDecodeError('u', b'', 0, 0, '')):
        verification()


def error_of(evaluate, folder):
    """What a process sees, and that it then goes on with the others."""
    with pytest.raises(Exception) as caught:
        evaluate(folder)
    error = caught.value
    return isinstance(error, ValueError), str(error), verification()


def shares_of(count):
    return list(DefaultSampler(range(count), shuffle=False))


def test_the_shares_are_padded_with_an_item_of_the_other_process(processes):
    assert processes(2).run(shares_of, 7) == [[0, 2, 4, 6], [1, 3, 5, 0]]


@pytest.mark.parametrize('metric', [verification, retrieval, detection])
def test_two_processes_have_the_figures_of_one(processes, metric):
    if metric is detection:
        pytest.importorskip('mmdet')
    alone = metric()
    assert processes(2).run(metric) == [alone] * 2


@pytest.mark.parametrize('evaluate, words', [
    (no_matching_pair, 'match'),
    (no_task_files, 'csv is missing; set tasks_dir'),
    (an_outfile_below_a_file, 'file'),
    (no_images, 'VOCPrecisionRecallMetric saw no images'),
    (an_error_of_an_unusual_kind, "can't decode bytes")])
def test_an_error_of_the_main_process_is_raised_by_both(
        processes, tmp_path, evaluate, words):
    if evaluate is no_images:
        pytest.importorskip('mmdet')
    (tmp_path / 'file').touch()
    first, second = processes(2).run(error_of, evaluate, str(tmp_path))
    assert first == second
    assert words in first[1]
    assert first[2] == verification()


def test_the_first_pair_seen_twice_would_change_the_rate():
    # 3 of 4 matches at or below 3, and 2 of 3 others
    assert verification() == {'pairs/FPR75': pytest.approx(200 / 3)}


def test_the_hpatches_tasks_have_the_figures_of_one_process(
        processes, tmp_path):
    write_tasks(tmp_path, 'a', dict(v_a=6, i_b=5), 40,
                np.random.default_rng(0))
    alone = hpatches(str(tmp_path))  # 32 strips
    assert 0 < alone['hpatches/retrieval'] < 100
    assert processes(3).run(hpatches, str(tmp_path)) == [alone] * 3
