import numpy as np
import pytest
import torch

pytest.importorskip('mmdet')

from mmrank.registry import METRICS
from mmrank.visualization.precision_recall import (
    draw_precision_recall,
)

BOXES = torch.tensor([[0., 0., 9., 9.], [20., 0., 29., 9.],
                      [40., 0., 49., 9.], [0., 40., 9., 49.]])


def image(truth, found, scores, ignored=(), labels=None):
    """Boxes by their number in BOXES; all of class 0 without ``labels``."""
    def zeros(of):
        return torch.zeros(len(of), dtype=torch.long)
    pick = [torch.as_tensor(list(x), dtype=torch.long)
            for x in (truth, found, ignored)]
    return dict(
        gt_instances=dict(bboxes=BOXES[pick[0]], labels=zeros(truth)),
        ignored_instances=dict(bboxes=BOXES[pick[2]], labels=zeros(ignored)),
        pred_instances=dict(
            bboxes=BOXES[pick[1]], scores=torch.tensor(scores),
            labels=zeros(found) if labels is None else torch.tensor(labels)))


def evaluate(samples, **options):
    metric = METRICS.build(
        dict(type='mmrank.VOCPrecisionRecallMetric', **options))
    metric.dataset_meta = dict(
        classes=('cat', 'dog'), dataset_type='VOC2007')
    metric.process({}, samples)
    return metric.evaluate(size=len(samples))


# three objects; the best and the worst of three detections are right
HIT_MISS_HIT = [image([0, 1, 2], [0, 3, 1], [.9, .8, .7]),
                image([], [], [])]


def test_area_and_11_points_are_both_reached():
    area = evaluate(HIT_MISS_HIT, eval_mode='area')
    points = evaluate(HIT_MISS_HIT, eval_mode='11points')
    # recall 1/3 at precision 1, then 2/3 at precision 2/3
    assert area['pascal_voc/AP50'] == pytest.approx(
        1 / 3 + 1 / 3 * 2 / 3, abs=1e-4)
    # recalls 0 to .3 at 1, .4 to .6 at 2/3, the rest at 0
    assert points['pascal_voc/AP50'] == pytest.approx(
        (4 * 1 + 3 * 2 / 3) / 11, abs=1e-4)


def test_the_area_is_the_default_for_voc_2007_without_a_warning(recwarn):
    assert evaluate(HIT_MISS_HIT) == evaluate(HIT_MISS_HIT, eval_mode='area')
    assert not [w for w in recwarn if 'VOC2007' in str(w.message)]


def test_each_class_is_named_as_in_the_data_set():
    values = evaluate([
        image([0], [0, 1], [.9, .8], labels=[0, 1]), image([], [], [])])
    assert values['pascal_voc/AP50_cat'] == 1
    assert values['pascal_voc/AP50_dog'] == 0
    # a class without objects does not count in the mean
    assert values['pascal_voc/AP50'] == 1


def test_a_difficult_object_neither_counts_nor_costs():
    plain = evaluate([image([0], [0], [.5]), image([], [], [])])
    difficult = evaluate(
        [image([0], [0, 1], [.5, .9], ignored=[1]), image([], [], [])])
    assert difficult == plain


def test_several_overlaps_are_averaged():
    values = evaluate(HIT_MISS_HIT, iou_thrs=[0.5, 0.75])
    assert values['pascal_voc/mAP'] == pytest.approx(
        (values['pascal_voc/AP50'] + values['pascal_voc/AP75']) / 2,
        abs=1e-4)


def test_recall_is_refused():
    with pytest.raises(ValueError, match="metric='mAP' only, got 'recall'"):
        METRICS.build(dict(
            type='mmrank.VOCPrecisionRecallMetric', metric='recall'))


def test_curves_of_two_runs_are_drawn_a_class_without_detections_too():
    curve = dict(recall=np.array([.5, 1.]), precision=np.array([1., .5]),
                 ap=.75)
    empty = dict(recall=np.zeros(0), precision=np.zeros(0), ap=0.)
    picture = draw_precision_recall(
        dict(ours=[curve, empty], theirs=[empty, curve]), ['cat', 'dog'])
    assert picture.ndim == 3 and picture.shape[2] == 3
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50
    with pytest.raises(ValueError, match="run 'ours' has 1 curves for 2"):
        draw_precision_recall(dict(ours=[curve]), ['cat', 'dog'])
