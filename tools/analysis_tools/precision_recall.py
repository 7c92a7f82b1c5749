"""Compares detectors by their results on one test set.

Prints AP of each class and overall, side by side, and writes PNGs:
precision-recall curves of all runs, and test images with the detections of
each run. The results come from `tools/test.py CONFIG CHECKPOINT --out FILE`.
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mmdet.registry import DATASETS, VISUALIZERS
from mmdet.structures import DetDataSample
from mmengine.config import Config, DictAction
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData
from mmengine.visualization import Visualizer

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.evaluation.metrics.voc_precision_recall_metric import (
    VOCPrecisionRecallMetric,
)
from mmrank.files import load_results
from mmrank.visualization.precision_recall import draw_precision_recall


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config whose test set is taken')
    parser.add_argument(
        'runs', nargs='+', metavar='NAME=RESULTS.pkl',
        help='results of a run and the name to print for it')
    parser.add_argument('--out-dir', required=True, help='folder of the PNGs')
    parser.add_argument('--iou-thr', type=float, default=0.5)
    parser.add_argument(
        '--eval-mode', choices=('area', '11points'), default='area')
    parser.add_argument(
        '--images', type=int, default=12,
        help='how many test images are drawn for each run')
    parser.add_argument(
        '--zoom', type=int, default=1, help='enlarges the drawn images')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    return parser.parse_args()


def named_results(arguments: list[str]) -> dict[str, Path]:
    """NAME=FILE arguments as a dictionary of existing files."""
    files = {}
    for argument in arguments:
        name, equals, file = argument.partition('=')
        if not equals or not name:
            raise ValueError(f'{argument!r} is not of the form NAME=FILE')
        if name in files:
            raise ValueError(f'two runs are called {name!r}')
        if not Path(file).is_file():
            raise FileNotFoundError(
                f'{file} does not exist; `tools/test.py CONFIG CHECKPOINT '
                f'--out {file}` writes it')
        files[name] = Path(file)
    return files


def ground_truth(dataset: Any, index: int) -> dict[str, np.ndarray]:
    """An image's boxes; the ignored (difficult) ones apart."""
    instances = dataset.get_data_info(index)['instances']
    parts = {}
    for suffix, flag in (('', 0), ('_ignore', 1)):
        chosen = [i for i in instances if i['ignore_flag'] == flag]
        parts[f'bboxes{suffix}'] = np.array(
            [i['bbox'] for i in chosen], np.float32).reshape(-1, 4)
        parts[f'labels{suffix}'] = np.array(
            [i['bbox_label'] for i in chosen], np.int64)
    return parts


def detections(sample: dict, num_classes: int) -> list[np.ndarray]:
    """An image's detections of each class, (n, 5) with the score last."""
    found = sample['pred_instances']
    boxes = np.hstack([np.asarray(found['bboxes']).reshape(-1, 4),
                       np.asarray(found['scores']).reshape(-1, 1)])
    labels = np.asarray(found['labels'])
    return [boxes[labels == label] for label in range(num_classes)]


def best_thresholds(curves: list[dict],
                    results: list[tuple]) -> np.ndarray:
    """For each class the score at which F1 is highest.

    A ranking loss fixes the order of the scores, not their size: one
    threshold for all losses and classes would mean nothing.
    """
    thresholds = []
    for label, curve in enumerate(curves):
        scores = np.sort(np.concatenate(
            [dets[label][:, 4] for _, dets in results]))[::-1]
        total = curve['recall'] + curve['precision']
        f1 = curve['recall'] * curve['precision'] / np.maximum(total, 1e-9)
        thresholds.append(scores[f1.argmax()] if len(scores) else np.inf)
    return np.array(thresholds)


def draw_detections(visualizer: Visualizer, run: str, dataset: Any,
                    samples: list[dict], thresholds: np.ndarray,
                    count: int, zoom: int) -> None:
    """Ground truth on the left, detections on the right, for some images."""
    import cv2
    steps = np.linspace(0, len(dataset) - 1, min(count, len(dataset)))
    for index in np.unique(steps.round().astype(int)):
        info = dataset.get_data_info(int(index))
        image = cv2.imread(info['img_path'])[..., ::-1]
        image = cv2.resize(np.ascontiguousarray(image), None, fx=zoom,
                           fy=zoom, interpolation=cv2.INTER_CUBIC)
        found = samples[index]['pred_instances']
        keep = np.asarray(found['scores']) >= thresholds[
            np.asarray(found['labels'])]
        truth = ground_truth(dataset, int(index))
        sample = DetDataSample(
            gt_instances=InstanceData(
                bboxes=zoom * truth['bboxes'], labels=truth['labels']),
            pred_instances=InstanceData(
                bboxes=zoom * np.asarray(found['bboxes'])[keep],
                scores=np.asarray(found['scores'])[keep],
                labels=np.asarray(found['labels'])[keep]))
        visualizer.add_datasample(
            f'{run}_{info["img_id"]}', image, sample.to_tensor(),
            pred_score_thr=-np.inf)


def print_table(curves: dict[str, list[dict]], means: dict[str, float],
                classes: tuple[str, ...], name: str) -> None:
    print(f'{name:>16}' + ''.join(f'{run:>12}' for run in curves))
    for label, class_name in enumerate(classes):
        print(f'{class_name:>16}' + ''.join(
            f'{float(np.mean(c[label]["ap"])):12.3f}'
            for c in curves.values()))
    print(f'{"overall":>16}' + ''.join(f'{m:12.3f}' for m in means.values()))


def main() -> None:
    args = parse_args()
    files = named_results(args.runs)
    cfg = Config.fromfile(args.config)
    if args.cfg_options is not None:
        cfg.merge_from_dict(args.cfg_options)
    init_default_scope(cfg.get('default_scope', 'mmdet'))
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    classes = tuple(dataset.metainfo['classes'])
    metric = VOCPrecisionRecallMetric(
        iou_thrs=args.iou_thr, eval_mode=args.eval_mode)
    metric.dataset_meta = dataset.metainfo
    visualizer = VISUALIZERS.build(dict(
        type='mmdet.DetLocalVisualizer', name='precision_recall',
        vis_backends=[dict(
            type='LocalVisBackend', save_dir=args.out_dir,
            img_save_dir='.')]))
    visualizer.dataset_meta = dataset.metainfo
    truths = [ground_truth(dataset, i) for i in range(len(dataset))]
    curves, means = {}, {}
    for run, file in files.items():
        samples = load_results(file)
        if len(samples) != len(dataset):
            raise ValueError(
                f'{file} holds results of {len(samples)} images, the test '
                f'set of {args.config} has {len(dataset)}')
        results = [(truth, detections(sample, len(classes)))
                   for truth, sample in zip(truths, samples)]
        means[run], curves[run] = metric.curves(results, args.iou_thr)
        draw_detections(visualizer, run, dataset, samples,
                        best_thresholds(curves[run], results), args.images,
                        args.zoom)
    name = f'AP{round(args.iou_thr * 100):02d} ({args.eval_mode})'
    visualizer.add_image('precision_recall', draw_precision_recall(
        curves, classes, title=name))
    print_table(curves, means, classes, name)
    summary = Path(args.out_dir) / 'precision_recall.json'
    summary.write_text(json.dumps({
        run: dict(overall=float(means[run]), classes={
            c: float(np.mean(k['ap'])) for c, k in zip(classes, curve)})
        for run, curve in curves.items()}, indent=2) + '\n')
    print(f'PNGs are in {args.out_dir}')


if __name__ == '__main__':
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f'error: {error}')
