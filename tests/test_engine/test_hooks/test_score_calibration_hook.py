import pytest
import torch

pytest.importorskip('mmdet')

from mmdet.evaluation import VOCMetric
from mmengine.dataset import DefaultSampler
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import InstanceData
from torch import nn
from torch.utils.data import Dataset

from mmrank.engine.hooks import ScoreCalibrationHook
from mmrank.engine.hooks.score_calibration_hook import calibrate_detector
from mmrank.models.losses import RaMBOLoss

from ...tiny_detectors import make_batch


class Images(Dataset):
    """Samples with two objects each."""
    metainfo = dict(classes=('a', 'b'), dataset_type='VOC2007')

    def __init__(self, annotated=True):
        self.samples = make_batch([2] * 12, 2)['data_samples']
        for sample in self.samples:
            sample.ignored_instances.bboxes = torch.zeros(0, 4)
            sample.ignored_instances.labels = torch.zeros(0, dtype=int)
            if not annotated:
                del sample.gt_instances

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return dict(inputs=torch.zeros(3, 8, 8),
                    data_samples=self.samples[index])


class Guesser(BaseModel):
    """Finds one object an image, better ones with higher scores, and cries
    wolf once; drops what ``score_thr`` says."""

    def __init__(self, threshold=0.6):
        super().__init__()
        self.head = nn.Module()
        self.head.loss_cls = RaMBOLoss()
        self.head.test_cfg = dict(score_thr=threshold)
        self.weight = nn.Parameter(torch.zeros(()))
        self.truth = make_batch([2] * 12, 2)['data_samples']

    def forward(self, inputs, data_samples, mode):
        if mode == 'loss':
            return dict(loss=self.weight**2)
        loss = self.head.loss_cls
        for sample in data_samples:
            index = sample.img_id
            truth = self.truth[index].gt_instances
            logits = torch.tensor([.05, -.05]) + 0.01 * (index % 5 - 2)
            wrong = truth.bboxes[:1] + 1000
            if index == 7:  # the false alarm is the more confident one
                logits = logits.flip(0)
            scores = loss.get_activation(logits[:, None])[:, 0]
            found = InstanceData(
                bboxes=torch.cat([truth.bboxes[:1], wrong]), scores=scores,
                labels=truth.labels[:1].repeat(2))
            sample.pred_instances = found[
                scores > self.head.test_cfg['score_thr']]
        return data_samples


def collate(batch):
    return dict(inputs=[item['inputs'] for item in batch],
                data_samples=[item['data_samples'] for item in batch])


def loader(annotated=True):
    return torch.utils.data.DataLoader(
        Images(annotated), batch_size=4, collate_fn=collate)


def average_precision(model):
    metric = VOCMetric(eval_mode='area')
    metric.dataset_meta = Images.metainfo
    for batch in loader():
        samples = [sample.to_dict() for sample in model.val_step(batch)]
        metric.process({}, samples)
    return metric.evaluate(12)['pascal_voc/mAP']


def test_calibration_gives_scores_a_meaning_and_leaves_ap():
    model = Guesser(threshold=-1.).eval()
    before = average_precision(model)
    assert calibrate_detector(model, loader())
    assert average_precision(model) == before > 0
    samples = [s for batch in loader() for s in model.val_step(batch)]
    scores = torch.stack([s.pred_instances.scores for s in samples])
    right = torch.ones(12, 2, dtype=bool)
    right[:, 1] = False
    # half of the detections are right; far more of those above a half are
    assert abs(float(scores.mean()) - 0.5) < 0.05
    assert right[scores > 0.5].float().mean() > 0.8


def test_the_fit_sees_the_detections_that_the_threshold_would_drop():
    model = Guesser(threshold=0.9)  # drops all of them
    assert calibrate_detector(model, loader())
    assert model.head.test_cfg['score_thr'] == 0.9
    assert model.training


def test_a_second_fit_starts_from_the_uncalibrated_scores():
    model = Guesser()
    calibrate_detector(model, loader())
    first = model.head.loss_cls.calibration.scale.clone()
    calibrate_detector(model, loader())
    assert torch.equal(first, model.head.loss_cls.calibration.scale)


def fit_on_a_process():
    data = loader()
    del data.dataset.samples[11:]  # two processes pad 11 images to 12
    model = Guesser()
    calibrate_detector(model, torch.utils.data.DataLoader(
        data.dataset, batch_size=4, collate_fn=collate,
        sampler=DefaultSampler(data.dataset, shuffle=False)))
    return model.head.loss_cls.calibration.state_dict()


def test_two_processes_fit_what_one_does_and_count_no_image_twice(processes):
    expected = fit_on_a_process()
    for found in processes(2).run(fit_on_a_process):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(found[name], value), name


def test_detections_of_ignored_objects_do_not_count():
    model = Guesser()
    data = loader()
    for sample in data.dataset.samples:
        sample.ignored_instances = sample.gt_instances
        sample.gt_instances = sample.gt_instances[:0]
    # the found objects are ignored, only the false alarms are left
    assert not calibrate_detector(model, data)
    assert not model.head.loss_cls.calibration.fitted


def test_validation_data_without_annotations_is_an_error():
    with pytest.raises(ValueError, match='gt_instances.*LoadAnnotations'):
        calibrate_detector(Guesser(), loader(annotated=False))


def test_a_model_without_a_ranking_loss_is_an_error():
    model = Guesser()
    model.head.loss_cls = nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match='no ranking loss'):
        calibrate_detector(model, loader())


def test_a_head_that_reweighs_its_scores_later_is_refused():
    model = Guesser()
    model.head.centerness_target = None
    with pytest.raises(ValueError, match='mmrank.RankFCOSHead'):
        calibrate_detector(model, loader())


def test_iou_thr_must_be_a_share():
    with pytest.raises(ValueError, match='iou_thr.*1.5'):
        ScoreCalibrationHook(iou_thr=1.5)


def runner(tmp_path, val=True, model=None, hooks=()):
    optional = dict(
        val_dataloader=loader(), val_cfg=dict(),
        val_evaluator=[VOCMetric(eval_mode='area')]) if val else {}
    return Runner(
        model or Guesser(), str(tmp_path), train_dataloader=loader(),
        train_cfg=dict(by_epoch=True, max_epochs=1),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=.1)),
        custom_hooks=[*hooks, ScoreCalibrationHook()],
        default_scope='mmdet', experiment_name=str(tmp_path.name),
        log_level='ERROR', **optional)


def test_a_run_ends_with_a_calibrated_checkpoint(tmp_path):
    run = runner(tmp_path)
    run.train()
    state = torch.load(tmp_path / 'calibrated.pth',
                       weights_only=False)['state_dict']
    model = Guesser()
    model.load_state_dict(state, strict=False)
    assert model.head.loss_cls.calibration.fitted
    assert torch.equal(model.head.loss_cls.calibration.scale,
                       run.model.head.loss_cls.calibration.scale)


def test_a_run_without_validation_data_stops_before_it_starts(tmp_path):
    class NotReached(Hook):

        def before_train_iter(self, *args, **kwargs):
            raise AssertionError

    run = runner(tmp_path, val=False)
    run.register_hook(NotReached())
    with pytest.raises(ValueError, match='no val_dataloader'):
        run.train()


class Watched(Guesser):
    """Remembers the weight with which it last predicted."""

    def forward(self, inputs, data_samples, mode):
        if mode == 'loss':
            return dict(loss=(self.weight - 1)**2)
        self.seen = float(self.weight)
        return super().forward(inputs, data_samples, mode)


@pytest.mark.parametrize('update_buffers', [False, True])
def test_averaged_weights_are_the_ones_calibrated_and_saved(
        tmp_path, update_buffers):
    run = runner(tmp_path, model=Watched(), hooks=[dict(
        type='EMAHook', momentum=.5, update_buffers=update_buffers)])
    run.train()
    state = torch.load(tmp_path / 'calibrated.pth',
                       weights_only=False)['state_dict']
    saved = float(state['weight'])
    assert saved != float(run.model.weight)
    assert run.model.seen == saved
    scale = state['head.loss_cls.calibration.scale']
    assert scale != 1 and scale == run.model.head.loss_cls.calibration.scale


def test_an_empty_validation_set_leaves_the_scores_uncalibrated(tmp_path):
    model, empty = Guesser(), loader()
    empty.dataset.samples.clear()
    empty = torch.utils.data.DataLoader(
        empty.dataset, batch_size=4, collate_fn=collate)
    assert not calibrate_detector(model, empty)
    assert not model.head.loss_cls.calibration.fitted
