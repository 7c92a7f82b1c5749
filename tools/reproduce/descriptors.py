"""AdaSample's Tables 2 and 3 in small, on PhotoPatches.

    python tools/reproduce/descriptors.py data/photo_patches

Table 2: lambda in {0, 1, 2, 5, 10, 20, inf}, angular (AHT) and Euclidean (HT)
hinge triplets, one seed. Table 3: HardNet (lambda 0) against AdaSample
(lambda 10), five seeds, one-sided Mann-Whitney test. Every cell is a row of
OUT.csv with its command, seed, commit, hardware and date; cells that are
there already are not run again, so an interrupted run goes on.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

if __package__ is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

from measuring import patches, report
from measuring.grid import Grid
from measuring.record import command

from mmrank.datasets import HPatchesDataset, PhotoTourDataset
from mmrank.datasets.generators.photo_patches import write_photo_patches
from mmrank.datasets.samplers import DistinctClassSampler
from mmrank.engine.hooks.descriptor_bank_hook import describe_classes
from mmrank.evaluation.metrics import HPatchesMetric, PatchVerificationMetric
from mmrank.registry import MODELS

LAMBDAS = (0., 1., 2., 5., 10., 20., float('inf'))
LOSSES = dict(AHT='angular', HT='euclidean')
SCORES = ('FPR95', 'verification', 'matching', 'retrieval')
SETTINGS = ('steps', 'batch', 'width', 'keypoints')
CELL = ('lambda', 'loss', 'seed', *SETTINGS)


def cells(seeds: int) -> list[tuple[float, str, int]]:
    """SIFT and Table 3 first: they alone answer the main question."""
    rows = [(value, 'AHT', seed) for seed in range(seeds)
            for value in (0., 10.)]
    grid = [(value, loss, 0) for loss in LOSSES for value in LAMBDAS]
    return [(0., 'SIFT', 0)] + rows + [cell for cell in grid
                                       if cell not in rows]


def build(value: float, loss: str, width: int, seed: int) -> torch.nn.Module:
    return MODELS.build(
        dict(
            type='mmrank.DescriptorLearner',
            backbone=dict(type='mmrank.L2Net',
                          widths=(width, 2 * width, 4 * width)),
            loss=dict(type='mmrank.HingeTripletLoss', distance=LOSSES[loss]),
            sampler=dict(type='mmrank.AdaSample', lambda_val=value,
                         mode='bank', seed=seed)))


def build_sift() -> torch.nn.Module:
    """The reference row; nothing of it is trained."""
    return MODELS.build(
        dict(
            type='mmrank.DescriptorLearner',
            data_preprocessor=dict(type='mmrank.PatchDataPreprocessor',
                                   patch_size=64),
            backbone=dict(type='mmrank.SIFTPatches', patch_size=64),
            loss=dict(type='mmrank.HingeTripletLoss')))


def train(model: torch.nn.Module, dataset: PhotoTourDataset,
          args: argparse.Namespace, seed: int) -> None:
    """SGD, the learning rate falling linearly; the bank every 40 steps."""
    peak = 10 * args.batch / 1024
    optimizer = patches.sgd(model, args.batch)
    sampler = DistinctClassSampler(dataset, args.batch,
                                   args.steps * args.batch, seed)
    order = np.array(list(sampler)).reshape(args.steps, args.batch)
    model.train()
    for step, batch in enumerate(order):
        if step % 40 == 0 and model.sampler.needs_descriptors:
            model.sampler.set_bank(describe_classes(model, dataset, 32))
        for group in optimizer.param_groups:
            group['lr'] = peak * (1 - step / args.steps)
        patches.train_step(model, optimizer, dataset, batch)


def predict(model: torch.nn.Module, dataset: torch.utils.data.Dataset,
            metric: object) -> dict:
    """The metric over the data set, by its own methods."""
    metric.dataset_meta = dataset.metainfo
    for start in range(0, len(dataset), 128):
        items = [dataset[i] for i in
                 range(start, min(start + 128, len(dataset)))]
        metric.process({}, model([item['inputs'] for item in items],
                                 [item['data_samples'] for item in items],
                                 mode='predict'))
    return metric.compute_metrics(metric.results)


def run(value: float, loss: str, seed: int, args: argparse.Namespace,
        data: Path) -> dict:
    torch.manual_seed(seed)
    if loss == 'SIFT':
        model, side = build_sift(), 64
    else:
        model, side = build(value, loss, args.width, seed), 32
        train(model, PhotoTourDataset(data / 'phototour', 'photos_train'),
              args, seed)
    model.eval()
    model.chunk_size = 256
    test = dict(test_mode=True, patch_size=side)
    pairs = PhotoTourDataset(data / 'phototour', 'photos_test', **test)
    scores = predict(model, pairs, PatchVerificationMetric())
    scores |= predict(model, HPatchesDataset(data / 'hpatches', 'a', **test),
                      HPatchesMetric())
    return {name: f'{scores[name]:.3f}' for name in SCORES}


def read(grid: Grid, args: argparse.Namespace) -> dict:
    """Cell to row, of the same settings."""
    return {(row['lambda'], row['loss'], int(row['seed'])): row
            for row in grid.rows()
            if all(row[k] == str(getattr(args, k)) for k in SETTINGS)}


def tables(done: dict) -> str:
    """Both tables, from the cells there are."""
    cells = [(value, loss, 0) for loss in LOSSES for value in LAMBDAS]
    rows = [('-' if loss == 'SIFT' else f'{value:g}', loss, *(
        done[value, loss, 0][score] for score in SCORES))
        for value, loss, _ in [*cells, (0., 'SIFT', 0)]
        if (value, loss, 0) in done]
    return '\n\n'.join([
        'Table 2 (seed 0)', report.table(('lambda', 'loss', *SCORES), rows),
        'Table 3 (AHT; p: one-sided Mann-Whitney)',
        report.table(('score', 'HardNet (lambda 0)', 'AdaSample (lambda 10)',
                      'seeds', 'p'),
                     [_compare(done, name) for name in SCORES])])


def _compare(done: dict, name: str) -> tuple:
    from scipy.stats import mannwhitneyu
    sides = [[float(row[name]) for (value, loss, _), row in done.items()
              if value == wanted and loss == 'AHT'] for wanted in (0., 10.)]
    if min(map(len, sides)) < 2:
        return name, '-', '-', len(sides[0]), '-'
    better = 'less' if name == 'FPR95' else 'greater'
    p = mannwhitneyu(sides[1], sides[0], alternative=better).pvalue
    return (name, *(report.spread(side, factor=1.) for side in sides),
            f'{len(sides[0])}, {len(sides[1])}', f'{p:.3f}')


def plot(done: dict, path: Path) -> None:
    figure, axes = report.pyplot().subplots(1, 4, figsize=(14, 3.2))
    for axis, name in zip(axes, SCORES):
        for loss in LOSSES:
            rows = [done.get((value, loss, 0)) for value in LAMBDAS]
            places = [i for i, row in enumerate(rows) if row]
            axis.plot(places, [float(rows[i][name]) for i in places], 'o-',
                      label=loss)
        axis.set_xticks(range(len(LAMBDAS)),
                        [f'{value:g}' for value in LAMBDAS])
        axis.set(title=name, xlabel='lambda', ylabel='%')
    axes[0].legend()
    report.save(figure, path)


def main() -> None:
    parser = patches.parser(__doc__, 'docs/benchmarks/descriptors')
    parser.add_argument('--keypoints', type=int, default=80)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--max-cells', type=int, default=None,
                        help='stop after so many new cells')
    args = parser.parse_args()
    if not args.data.exists():
        write_photo_patches(str(args.data),
                            keypoints_per_photo=args.keypoints)
    table = args.out.with_suffix('.csv')
    grid = Grid(table, CELL, (*CELL, *SCORES, 'seconds'), ('lambda', 'seed'),
                command(__file__))
    settings = {k: getattr(args, k) for k in SETTINGS}
    todo = [{'lambda': value, 'loss': loss, 'seed': seed, **settings}
            for value, loss, seed in cells(args.seeds)]
    grid.run(lambda _: todo,
             lambda cell: run(cell['lambda'], cell['loss'], cell['seed'],
                              args, args.data), args.max_cells)
    done = read(grid, args)
    text = tables(done)
    args.out.with_suffix('.md').write_text(
        f'# Descriptors on PhotoPatches\n\nGenerated from {table.name}, '
        f'whose rows carry command, commit, hardware and date.\n\n{text}\n')
    plot(done, args.out.with_suffix('.svg'))
    print(text)


if __name__ == '__main__':
    main()
