"""Fits the score calibration of a ranking loss on the validation set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from mmengine.dist import all_gather_object
from mmengine.hooks import EMAHook, Hook
from mmengine.logging import print_log
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from mmrank.models.losses import RankingLoss
from mmrank.registry import HOOKS

from ..bare_model import bare_model


@HOOKS.register_module()
class ScoreCalibrationHook(Hook):
    """Calibrates a trained detector's scores, and saves the result.

    A rank loss trains the order of the scores and leaves their scale free:
    ``score_thr=0.05`` then means nothing in particular. After training this
    hook runs the detector once over the validation set, marks each detection
    as correct or wrong, and fits
    :class:`~mmrank.models.losses.score_calibration.ScoreCalibration`. From
    then on a score is an estimate of the probability that the detection is
    correct. The order of the detections, hence AP, does not change; what a
    threshold lets through does.

    The calibrated model is written to ``calibrated.pth`` in the work
    directory; with an EMA hook these are the averaged weights, and the map
    is fitted to their detections. Under several processes every process
    fits the same map to the detections of all.

    Args:
        iou_thr (float): the overlap from which a detection is correct.
        filename (str): the checkpoint's name.

    Raises:
        ValueError: before training, if there is no validation data loader or
            no part of the model can be calibrated; after it, if the
            validation data carry no annotations.
    """

    priority = 'LOW'

    def __init__(self, iou_thr: float = 0.5,
                 filename: str = 'calibrated.pth') -> None:
        if not 0 < iou_thr < 1:
            raise ValueError(
                f'iou_thr must lie between 0 and 1, but got {iou_thr}')
        self.iou_thr = iou_thr
        self.filename = filename

    def before_train(self, runner: Runner) -> None:
        if runner.val_loop is None:
            raise ValueError('ScoreCalibrationHook fits on the validation '
                             'set, but the config has no val_dataloader')
        _calibrations(bare_model(runner))

    def after_train(self, runner: Runner) -> None:
        with _averaged(runner) as model:
            fitted = calibrate_detector(
                model, runner.val_loop.dataloader, self.iou_thr)
        if fitted:
            runner.save_checkpoint(
                runner.work_dir, self.filename, save_optimizer=False,
                save_param_scheduler=False, by_epoch=False)


def calibrate_detector(model: nn.Module, dataloader: DataLoader,
                       iou_thr: float = 0.5) -> bool:
    """Fit the calibration of every ranking loss in a detector.

    Args:
        model (nn.Module): a detector of mmdet, trained with a ranking loss.
        dataloader (DataLoader): its samples carry ``gt_instances``, in the
            frame of the predictions, as mmdet's test pipelines pack them.
        iou_thr (float): the overlap from which a detection is correct.

    Returns:
        bool: False, with a warning, if all detections are wrong or all are
        correct: the model then stays uncalibrated.

    Raises:
        ValueError: if there is nothing to calibrate or nothing to fit to.
    """
    calibrations = _calibrations(model)
    for calibration in calibrations:
        calibration.reset()
    scores, matches = _detections(model, dataloader, iou_thr)
    try:
        calibrations[0].fit(torch.from_numpy(scores),
                            torch.from_numpy(matches))
    except ValueError as error:
        print_log(f'the scores stay uncalibrated: {error}', 'current', 30)
        return False
    for calibration in calibrations[1:]:
        calibration.load_state_dict(calibrations[0].state_dict())
    print_log(
        f'calibrated the scores on {len(scores)} detections, '
        f'{int(matches.sum())} of them correct: a score of 0.05 was '
        f'{calibrations[0].inverse(0.05):.4f} before', 'current')
    return True


def _calibrations(model: nn.Module) -> list[Any]:
    losses = {
        name: module for name, module in model.named_modules()
        if isinstance(module, RankingLoss)
        and not name.startswith('rpn_head.')
    }
    if not losses:
        raise ValueError(
            f'ScoreCalibrationHook: {type(model).__name__} has no ranking '
            'loss such as mmrank.RaMBOLoss to calibrate')
    for name in losses:
        head = model.get_submodule(name.rpartition('.')[0])
        if hasattr(head, 'centerness_target') and \
                not getattr(head, 'calibrates_scores', False):
            raise ValueError(
                f'ScoreCalibrationHook: {type(head).__name__} multiplies '
                'its scores after the loss has seen them, so a calibration '
                'there would change their order; use mmrank.RankFCOSHead')
    return [loss.calibration for loss in losses.values()]


@contextmanager
def _averaged(runner: Runner) -> Iterator[nn.Module]:
    """The weights that a checkpoint holds: the averaged ones, with EMA.

    An EMA hook exchanges both models' values in what is saved, so both get
    the calibration.
    """
    model = bare_model(runner)
    hooks = [hook for hook in runner.hooks if isinstance(hook, EMAHook)]
    for hook in hooks:
        hook.before_val_epoch(runner)
    try:
        yield model
        fitted = [
            {name: value.clone() for name, value in part.state_dict().items()}
            for part in _calibrations(model)]
    finally:
        for hook in hooks:
            hook.after_val_epoch(runner)
    for one in (model, *(hook.ema_model.module for hook in hooks)):
        for part, values in zip(_calibrations(one), fitted):
            part.load_state_dict(values)


@torch.no_grad()
def _detections(model: Any, dataloader: DataLoader,
                iou_thr: float) -> tuple[np.ndarray, np.ndarray]:
    """Score and correctness of every detection, on all processes."""
    training = model.training
    model.eval()
    found = []
    with _no_threshold(model):
        for batch in dataloader:
            for sample in model.val_step(batch):
                found.append(_matched(sample, iou_thr))
    model.train(training)
    # image i was seen by process i modulo their number; what pads the last
    # round is an image that was counted before
    rounds = zip_longest(*all_gather_object(found))
    pieces = [piece for each in rounds for piece in each if piece is not None]
    pieces = pieces[:len(dataloader.dataset)]  # type: ignore[arg-type]
    if not pieces:
        return np.zeros(0, np.float32), np.zeros(0, bool)
    scores, matches = zip(*pieces)
    return np.concatenate(scores), np.concatenate(matches)


def _matched(sample: Any, iou_thr: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores and correctness of one image's detections.

    mmdet's own matching of the VOC metric, class by class; detections of
    ignored objects are left out.
    """
    from mmdet.evaluation.functional.mean_ap import tpfp_default
    if 'gt_instances' not in sample:
        raise ValueError(
            'ScoreCalibrationHook: the validation data carry no gt_instances;'
            ' add LoadAnnotations to the pipeline of val_dataloader')
    predicted = sample.pred_instances.cpu().numpy()
    truth = sample.gt_instances.cpu().numpy()
    ignored = sample.get('ignored_instances')
    ignored = ignored.cpu().numpy() if ignored is not None else None
    scores, matches = [np.zeros(0, np.float32)], [np.zeros(0, bool)]
    for label in np.unique(predicted.labels):
        mine = predicted.labels == label
        boxes = np.concatenate([predicted.bboxes[mine],
                                predicted.scores[mine, None]], axis=1)
        true, false = tpfp_default(
            boxes, _boxes(truth, label), _boxes(ignored, label), iou_thr)
        counted = (true + false)[0] > 0
        scores.append(predicted.scores[mine][counted])
        matches.append(true[0][counted] > 0)
    return np.concatenate(scores), np.concatenate(matches)


def _boxes(instances: Any, label: int) -> np.ndarray:
    if instances is None or len(instances.labels) == 0:
        return np.zeros((0, 4), np.float32)
    boxes = instances.bboxes
    boxes = boxes.tensor.numpy() if hasattr(boxes, 'tensor') else boxes
    return np.asarray(boxes, np.float32)[instances.labels == label]


@contextmanager
def _no_threshold(model: nn.Module) -> Iterator[None]:
    """Within the block no head drops a detection for its score."""
    cut = [
        cfg for cfg in (
            getattr(module, 'test_cfg', None) for module in model.modules())
        if isinstance(cfg, dict) and 'score_thr' in cfg
    ]
    usual = [cfg['score_thr'] for cfg in cut]
    for cfg in cut:
        cfg['score_thr'] = -1.0
    try:
        yield
    finally:
        for cfg, threshold in zip(cut, usual):
            cfg['score_thr'] = threshold
