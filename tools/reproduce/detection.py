"""Cross-entropy against RaMBO on DigitsOnPhotos, with equal budgets.

As in the paper, the detectors start from pretrained weights: backbone, FPN and
RPN of a detector that cross-entropy has trained on the same images, the same
for all; the box head, to which the compared loss belongs, is new. Every cell
is one training of such a small Faster R-CNN, one line of the CSV file.
First the settings of cross-entropy and of RaMBO are searched alike, six cells
each, on the validation split. Then every method is trained from five seeds
with the best of them and measured on the test split: cross-entropy, RaMBO,
the ablations of the paper's Table 8 (lambda a fifth and five times of what was
chosen, no margin), and the memory tau 0, 3 and 7. A run goes on where the file
ends, so it can be interrupted between cells.

    python tools/reproduce/detection.py
    python tools/reproduce/detection.py --list
    python tools/reproduce/detection.py --cell test/ce/seed0
    python tools/reproduce/detection.py --report

The report fills the table in configs/rambo/README.md and draws the plot.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault('OMP_NUM_THREADS', '1')
ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec('mmrank') is None:
    sys.path.insert(0, str(ROOT))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

import numpy as np  # noqa: E402
import torch  # noqa: E402
from measuring import report  # noqa: E402
from measuring.grid import Grid  # noqa: E402
from measuring.record import made_by  # noqa: E402

from mmrank import config_path  # noqa: E402

STEPS, BATCH = 250, 8
SEEDS, TUNE_SEED = range(5), 100
# what all cells start from, some minutes of training, done once
TRUNK_STEPS, TRUNK_LR, TRUNK_SEED = 1400, 2e-3, 1000
# The search, equally wide for both: learning rates, and for cross-entropy the
# weight of the loss among the others, for RaMBO lambda, which stands for a
# distance of scores and so depends on how well the ranking starts.
LRS = (1e-3, 2e-3, 4e-3)
CE_WEIGHTS, LAMBDAS = (1., 2.), (0.5, 5.)
# RaMBO's gradient is the smaller one. In the paper it learns at ten times the
# rate; Adam, here, sees no more of that than the ratio of the losses.
RAMBO_WEIGHT = 10.
NUMBERS = ('lr', 'loss_weight', 'lambda_val', 'AP50', 'loss', 'seconds')
COLUMNS = ('cell', 'stage', 'method', 'lr', 'loss_weight', 'lambda_val',
           'seed', 'AP50', 'loss', 'seconds', 'steps')
README_TABLE = ('<!-- digits table: by reproduce/detection.py --report -->',
                '<!-- end of digits table -->')
# method -> its name in the table, the factor of lambda, other changes; the
# factor None stands for cross-entropy
METHODS: dict[str, tuple[str, float | None, dict]] = {
    'ce': ('Cross-entropy', None, {}),
    'rambo': ('RaMBO', 1., {}),
    'rambo-no-margin': ('RaMBO, no margin', 1., dict(margin=0.)),
    'rambo-lambda-fifth': ('RaMBO, λ / 5', 1 / 5, {}),
    'rambo-lambda-fivefold': ('RaMBO, 5 λ', 5., {}),
    'rambo-tau0': ('RaMBO, τ 0', 1., dict(memory_batches=0)),
    'rambo-tau3': ('RaMBO, τ 3', 1., dict(memory_batches=3)),
}
# the paper's Table 8: AP50 on VOC 07, lambda 0.5, 0.1 and 2.5
PUBLISHED = {'ce': 74.2, 'rambo': 75.7, 'rambo-no-margin': 74.6,
             'rambo-lambda-fifth': 75.2, 'rambo-lambda-fivefold': 74.3}


def grid(path: Path, lock: str | None = None) -> Grid:
    """All cells of a file."""
    return Grid(path, ('cell', ), COLUMNS, NUMBERS,
                'python tools/reproduce/detection.py', lock)


class Setting(NamedTuple):
    """What is searched for; ``lambda_val`` is 0 for cross-entropy."""
    lr: float
    loss_weight: float
    lambda_val: float


SEARCH = {
    'ce': [Setting(lr, weight, 0.)
           for lr, weight in itertools.product(LRS, CE_WEIGHTS)],
    'rambo': [Setting(lr, RAMBO_WEIGHT, lambda_val)
              for lr, lambda_val in itertools.product(LRS, LAMBDAS)],
}


class Cell(NamedTuple):
    """One training."""
    stage: str
    method: str
    setting: Setting | None
    seed: int

    @property
    def name(self) -> str:
        if self.setting is not None:
            lr, weight, lambda_val = self.setting
            other = f'lambda{lambda_val:g}' if lambda_val else \
                f'weight{weight:g}'
            return f'tune/{self.method}/lr{lr:g}/{other}'
        return f'test/{self.method}/seed{self.seed}'


CELLS = [
    Cell('tune', method, setting, TUNE_SEED)
    for method, settings in SEARCH.items() for setting in settings
]
# seed by seed, so that an interrupted run compares all methods
CELLS += [
    Cell('test', method, None, seed) for seed in SEEDS for method in METHODS
]


def tuned(method: str, rows: list[dict]) -> Setting:
    """The setting that did best on the validation split.

    The ablations are run with that of RaMBO, as the paper's were.
    """
    family = 'ce' if method == 'ce' else 'rambo'
    missing = [cell.name for cell in CELLS
               if cell.stage == 'tune' and cell.method == family
               and cell.name not in {row['cell'] for row in rows}]
    if missing:
        raise ValueError(f'first do the cells of the search: {missing}')
    best = max((row for row in rows if row['stage'] == 'tune'
                and row['method'] == family), key=lambda row: row['AP50'])
    factor = METHODS[method][1] or 0.
    return Setting(best['lr'], best['loss_weight'],
                   best['lambda_val'] * factor)


def configure(cell: Cell, setting: Setting, data: Path, work_dir: str,
              steps: int, trunk: Path | None = None):
    """The digits config of mmrank in a width and length for a minute or two.

    Both methods get the same network, data order, schedule and number of
    steps, and neither has its detections cut off by a score.

    Args:
        cell (Cell): what is compared.
        setting (Setting): its learning rate, weight and lambda.
        data (Path): the data set.
        work_dir (str): for the logs.
        steps (int): the number of iterations.
        trunk (Path, optional): a checkpoint to start from.
    """
    from mmengine.config import Config
    _, factor, changes = METHODS[cell.method]
    kind = 'ce' if factor is None else 'rambo'
    cfg = Config.fromfile(
        config_path(f'rambo/faster-rcnn_r18_fpn_{kind}_digits.py'))
    model = cfg.model
    model.backbone.base_channels = 16
    model.neck.update(in_channels=[16, 32, 64], out_channels=32)
    model.rpn_head.update(in_channels=32, feat_channels=32)
    model.roi_head.bbox_roi_extractor.out_channels = 32
    head = model.roi_head.bbox_head
    head.update(in_channels=32, fc_out_channels=128)
    head.loss_cls.loss_weight = setting.loss_weight
    if factor is not None:
        head.loss_cls.update(
            lambda_val=setting.lambda_val, margin=0.15, memory_batches=7)
    head.loss_cls.update(changes)
    model.train_cfg.rcnn.sampler.num = 64
    model.test_cfg.rcnn.score_thr = 0.0
    for split in ('train', 'val', 'test'):
        loader = cfg[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = f'{data}/'
    cfg.train_dataloader.batch_size = BATCH
    cfg.train_dataloader.sampler = dict(type='InfiniteSampler', shuffle=True)
    cfg.train_cfg = dict(
        type='IterBasedTrainLoop', max_iters=steps, val_interval=10 * steps)
    cfg.optim_wrapper.optimizer.lr = setting.lr
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0,
             end=50),
        dict(type='CosineAnnealingLR', by_epoch=False, begin=0, end=steps,
             T_max=steps, eta_min_ratio=0.01),
    ]
    cfg.default_hooks.update(
        checkpoint=None, logger=dict(type='LoggerHook', interval=50))
    if cell.stage == 'tune':
        cfg.test_dataloader = cfg.val_dataloader
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.test_evaluator = dict(type='VOCMetric', metric='mAP',
                              eval_mode='area')
    cfg.load_from = None if trunk is None else str(trunk)
    cfg.randomness = dict(seed=cell.seed)
    cfg.log_level = 'WARNING'
    cfg.work_dir = work_dir
    # two runners of a process share a visualizer of one name
    cfg.visualizer.name = Path(work_dir).name
    return cfg


def ensure_trunk(path: Path, data: Path) -> None:
    """Train what all cells start from, unless it is there."""
    from mmengine.runner import Runner
    if path.exists():
        return
    print(f'training {path}: {TRUNK_STEPS} steps', flush=True)
    start = Cell('tune', 'ce', None, TRUNK_SEED)
    with tempfile.TemporaryDirectory() as work_dir:
        runner = Runner.from_cfg(configure(
            start, Setting(TRUNK_LR, 1., 0.), data, work_dir, TRUNK_STEPS))
        runner.train()
    weights = {name: tensor
               for name, tensor in runner.model.state_dict().items()
               if not name.startswith('roi_head.bbox_head')}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix('.part')
    torch.save(dict(state_dict=weights), draft)
    draft.replace(path)


def train_and_test(cell: Cell, setting: Setting, data: Path,
                   trunk: Path) -> dict[str, float]:
    """AP50 of the trained detector, and its last classification loss."""
    from mmengine.logging import MessageHub
    from mmengine.runner import Runner
    with tempfile.TemporaryDirectory() as work_dir:
        runner = Runner.from_cfg(
            configure(cell, setting, data, work_dir, STEPS, trunk))
        runner.train()
        history = MessageHub.get_current_instance().get_scalar(
            'train/loss_cls')
        loss = float(np.mean(history.data[0][-50:]))
        figures = runner.test()
    value = next(figures[name] for name in figures if name.endswith('AP50'))
    return dict(AP50=float(value), loss=loss)


def run_cell(name: str, path: Path, data: Path, trunk: Path,
             lock: str | None) -> None:
    """Do one cell, unless it is done."""
    cell = next((cell for cell in CELLS if cell.name == name), None)
    if cell is None:
        raise ValueError(f'no cell is named {name!r}; --list names them all')
    cells = grid(path, lock)
    rows = cells.rows()
    if any(row['cell'] == name for row in rows):
        print(f'{name}: done before')
        return
    setting = cell.setting or tuned(cell.method, rows)

    def figures(_: dict) -> dict:
        found = train_and_test(cell, setting, data, trunk)
        return {key: f'{value:.5f}' for key, value in found.items()}

    cells.do(
        {'cell': name, 'stage': cell.stage, 'method': cell.method,
         'seed': cell.seed, 'steps': STEPS,
         **{key: f'{value:g}' for key, value in setting._asdict().items()}},
        figures)


def run(path: Path, data: Path, trunk: Path, most: int | None,
        lock: str | None) -> None:
    """Do what is missing, at most ``most`` cells, each in a fresh process."""
    todo = grid(path).missing({'cell': cell.name} for cell in CELLS)
    for name in (cell['cell'] for cell in todo[:most]):
        command = [sys.executable, __file__, '--cell', name, '--csv',
                   str(path), '--data', str(data), '--trunk', str(trunk)]
        subprocess.run(command + (['--lock', lock] if lock else []),
                       check=True)


def table(rows: list[dict]) -> str:
    """The results in Markdown, with the Mann-Whitney test."""
    from scipy.stats import mannwhitneyu
    found = report.by_method(rows, METHODS, 'AP50')

    def line(method: str, values: list[float]) -> list[object]:
        row = next(row for row in rows if row['stage'] == 'test'
                   and row['method'] == method)
        p = '' if method == 'ce' or 'ce' not in found else \
            f'{mannwhitneyu(values, found["ce"]).pvalue:.4f}'
        return [METHODS[method][0], report.spread(values), len(values),
                f'{row["lr"]:g}', f'{row["loss_weight"]:g}',
                '' if method == 'ce' else row['lambda_val'], p,
                PUBLISHED.get(method, '')]

    return '\n\n'.join([
        report.table(
            ('Method', 'AP50, DigitsOnPhotos', 'seeds', 'lr', 'weight', 'λ',
             'p, against cross-entropy', 'AP50, VOC 07, as published'),
            itertools.starmap(line, found.items())),
        f'In percent, mean ± standard deviation over seeds; {STEPS} steps '
        f'of {BATCH} images with a new box head on a pretrained backbone, FPN '
        'and RPN; p is that of the two-sided '
        f'Mann-Whitney test. {made_by(rows[-1])} The last column stands in '
        "the paper's Table 8.",
        'The search, AP50 on the validation split:',
        report.table(('cell', 'AP50'), [
            (f'`{row["cell"]}`', f'{100 * row["AP50"]:.2f}')
            for row in rows if row['stage'] == 'tune'])])


def write_report(path: Path) -> None:
    """Print the table, put it into the README, and plot."""
    rows = grid(path).rows()
    found = report.by_method(rows, METHODS, 'AP50')
    if not found:
        raise ValueError(f'{path} holds no finished cell of the test stage')
    text = table(rows)
    print(text)
    report.fill_readmes(ROOT / 'configs', README_TABLE, text)
    report.plot_seeds(
        {METHODS[method][0]: values for method, values in found.items()},
        'AP50 on the test split of DigitsOnPhotos, %',
        path.with_suffix('.svg'),
        left=max(0., 100 * min(map(min, found.values())) - 5))


def ensure_data(data: Path) -> None:
    from mmrank.datasets.generators.digits_on_photos import (
        DigitsOnPhotosOptions,
        make_digits_on_photos,
    )
    if not (data / 'VOC2007').exists():
        make_digits_on_photos(data, DigitsOnPhotosOptions())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--csv', type=Path, default=ROOT / 'docs' /
                        'benchmarks' / 'detection.csv')
    parser.add_argument('--data', type=Path,
                        default=ROOT / 'data' / 'digits_on_photos')
    parser.add_argument('--trunk', type=Path, default=ROOT / 'work_dirs' /
                        'detection' / f'trunk_{TRUNK_STEPS}.pth',
                        help='the pretrained weights; made if missing')
    parser.add_argument('--cell', metavar='NAME', help='do this cell only')
    parser.add_argument('--max-cells', type=int)
    parser.add_argument('--lock', help='hold this file during a cell')
    parser.add_argument('--list', action='store_true', help='name the cells')
    parser.add_argument('--report', action='store_true')
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    warnings.simplefilter('ignore')
    try:
        if args.list:
            print('\n'.join(cell.name for cell in CELLS))
        elif args.report:
            write_report(args.csv)
        else:
            ensure_data(args.data)
            ensure_trunk(args.trunk, args.data)
            if args.cell:
                run_cell(args.cell, args.csv, args.data, args.trunk,
                         args.lock)
            else:
                run(args.csv, args.data, args.trunk, args.max_cells,
                    args.lock)
    except ValueError as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()
