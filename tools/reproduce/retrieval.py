"""Metric losses compared on GlyphRetrieval, with equal budgets.

Every cell is one training of a small network, one line of the CSV file:
first the settings of each method on a validation split of the training
classes, then five seeds with the best of them on the test classes. A run
goes on where the file ends, so it can be interrupted between any two cells.

    python tools/reproduce/retrieval.py
    python tools/reproduce/retrieval.py --report

The report fills the tables in the READMEs of the configs and draws the plot.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec('mmrank') is None:
    sys.path.insert(0, str(ROOT))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

import numpy as np  # noqa: E402
import torch  # noqa: E402
from measuring import grid  # noqa: E402
from measuring.grid import (  # noqa: E402
    by_method,
    circumstances,
    fill_readmes,
    made_by,
    spread,
    turn,
)
from mmengine.dataset import InfiniteSampler  # noqa: E402

from mmrank.datasets import (  # noqa: E402
    ClassBalancedBatchSampler,
    GlyphRetrievalDataset,
)
from mmrank.functional import retrieval_metrics  # noqa: E402
from mmrank.registry import MODELS  # noqa: E402
from mmrank.structures import RetrievalDataSample  # noqa: E402

STEPS, BATCH, PER_CLASS, WIDTH = 400, 96, 4, 128
SEEDS = range(5)
# What is tuned: the learning rate, and one parameter more where there is one.
LRS = (1e-3, 3e-3, 1e-2)
PROXY_LRS = (3e-4, 2e-3)
LAMBDAS = (0.2, 4.)
COLUMNS = ('stage', 'method', 'lr', 'proxy_lr', 'lambda_val', 'seed', 'R@1',
           'MAP@R', 'seconds', 'steps', 'commit', 'hardware', 'torch', 'date',
           'command')
read = functools.partial(grid.read, numbers=(
    'lr', 'proxy_lr', 'lambda_val', 'R@1', 'MAP@R', 'seconds'))
append = functools.partial(grid.append, columns=COLUMNS)
README_TABLE = ('<!-- glyph table: by reproduce/retrieval.py --report -->',
                '<!-- end of glyph table -->')


def rambo(weighting: str, memory: bool, margin: bool) -> dict:
    """RaMBO for recall with Table 7's parts on or off."""
    return dict(
        type='mmrank.RaMBORecallLoss',
        weighting=weighting,
        margin=0.02 if margin else 0.,
        memory_batches=3 if memory else 0)


def library(name: str) -> dict:
    """A loss of pytorch-metric-learning with its default parameters."""
    return dict(type='mmrank.PytorchMetricLearningLoss', loss=name)


# name in the table -> (the method whose tuned settings it takes, loss)
METHODS: dict[str, tuple[str, dict]] = {
    'Contrastive': ('Contrastive', library('ContrastiveLoss')),
    'Triplet': ('Triplet', library('TripletMarginLoss')),
    'Proxy-NCA': ('Proxy-NCA', library('ProxyNCALoss')),
    'FastAP': ('FastAP', library('FastAPLoss')),
    'Proxy-Anchor': ('Proxy-Anchor', dict(type='mmrank.ProxyAnchorLoss')),
    # the paper's epochs 2 and 3 of about 60, as shares of the budget
    'Proxy-ISA': ('Proxy-ISA',
                  dict(
                      type='mmrank.ProxyISALoss',
                      by_epoch=False,
                      queue_start=60,
                      weighting_start=90)),
}
for _w in ('log', 'loglog'):
    _tuned = f'RaMBO {_w}'
    METHODS[_tuned] = (_tuned, rambo(_w, True, True))
    METHODS[f'{_tuned}, no memory'] = (_tuned, rambo(_w, False, True))
    METHODS[f'{_tuned}, no margin'] = (_tuned, rambo(_w, True, False))
    METHODS[f'{_tuned}, neither'] = (_tuned, rambo(_w, False, False))
BASELINES = ('Contrastive', 'Triplet', 'Proxy-NCA', 'FastAP')

Split = tuple[torch.Tensor, torch.Tensor, GlyphRetrievalDataset]


def load(split: str) -> Split:
    """All images of a split at once: (N, 1, 32, 32), normalised."""
    data = GlyphRetrievalDataset(split=split)
    data.full_init()
    images = np.stack([
        data.get_data_info(index)['img'] for index in range(len(data))])
    pixels = torch.from_numpy(images)[:, None].float()
    return (pixels - 190) / 60, torch.from_numpy(data.get_labels()), data


def build(loss: dict, num_classes: int, lambda_val: float) -> torch.nn.Module:
    """The network: the same for all methods."""
    if loss['type'].endswith('RaMBORecallLoss'):
        loss = dict(loss, lambda_val=lambda_val)
    return MODELS.build(
        dict(
            type='mmrank.MetricLearner',
            backbone=dict(type='mmrank.SmallConvNet'),
            head=dict(
                type='mmrank.MetricLearningHead',
                in_channels=128,
                embedding_size=WIDTH,
                num_classes=num_classes,
                loss=loss)))


def train_and_test(cell: dict, train: Split,
                   test: Split) -> dict[str, float]:
    """One cell: the figures of the trained network on ``test``."""
    torch.manual_seed(cell['seed'])
    images, labels, data = train
    model = build(METHODS[cell['method']][1], int(labels.max()) + 1,
                  cell['lambda_val'])
    proxies = [p for n, p in model.named_parameters() if 'proxies' in n]
    rest = [p for n, p in model.named_parameters() if 'proxies' not in n]
    groups = [dict(params=rest)]
    if proxies:
        groups.append(
            dict(params=proxies, lr=cell['proxy_lr'], weight_decay=0))
    optimizer = torch.optim.AdamW(groups, lr=cell['lr'], weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    batches = ClassBalancedBatchSampler(
        InfiniteSampler(data, seed=cell['seed']), BATCH, PER_CLASS)
    samples = [RetrievalDataSample().set_gt_label(c) for c in labels]
    model.train()
    for batch in itertools.islice(batches, STEPS):
        losses = model(
            images[batch], [samples[index] for index in batch], mode='loss')
        optimizer.zero_grad()
        sum(v for n, v in losses.items() if 'loss' in n).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 10)
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        embeddings = torch.cat([model(part) for part in test[0].split(512)])
    if not embeddings.isfinite().all():
        return {'R@1': float('nan'), 'MAP@R': float('nan')}
    return retrieval_metrics(embeddings, test[1], with_map=False)


def cells(rows: list[dict]) -> Iterator[dict]:
    """What is to do, in order; later cells follow from earlier results."""
    for method in dict.fromkeys(tuned for tuned, _ in METHODS.values()):
        proxy_lrs = PROXY_LRS if method.startswith('Proxy') else (0., )
        lambdas = LAMBDAS if method.startswith('RaMBO') else (0., )
        for lr, proxy_lr, lambda_val in itertools.product(
                LRS, proxy_lrs, lambdas):
            yield dict(stage='tune', method=method, lr=lr, proxy_lr=proxy_lr,
                       lambda_val=lambda_val, seed=100)
    # seed by seed, so that an interrupted run compares all methods
    for seed, (method, (tuned, _)) in itertools.product(
            SEEDS, METHODS.items()):
        best = max((row for row in rows if row['stage'] == 'tune'
                    and row['method'] == tuned
                    and row['MAP@R'] == row['MAP@R']),
                   key=lambda row: row['MAP@R'])
        yield dict(stage='test', method=method, lr=best['lr'],
                   proxy_lr=best['proxy_lr'],
                   lambda_val=best['lambda_val'], seed=seed)


def key(row: dict) -> tuple:
    """What tells a cell from others."""
    return (row['stage'], row['method'], float(row['lr']),
            float(row['proxy_lr']), float(row['lambda_val']),
            int(row['seed']))


def run(path: Path, most: int | None, lock: str | None) -> None:
    """Do what is missing, at most ``most`` cells."""
    splits = {split: load(split) for split in ('fit', 'val', 'train', 'test')}
    facts = circumstances('python tools/reproduce/retrieval.py')
    done = 0
    while most is None or done < most:
        rows = read(path)
        finished = {key(row) for row in rows}
        cell = next((c for c in cells(rows) if key(c) not in finished), None)
        if cell is None:
            return
        train, test = (('fit', 'val') if cell['stage'] == 'tune' else
                       ('train', 'test'))
        with turn(lock):
            start = time.time()
            found = train_and_test(cell, splits[train], splits[test])
            seconds = time.time() - start
        append(path, {
            **cell, **facts, 'steps': STEPS, 'seconds': f'{seconds:.1f}',
            'R@1': f'{found["R@1"]:.5f}', 'MAP@R': f'{found["MAP@R"]:.5f}'})
        print(f'{cell} {found} {seconds:.1f} s', flush=True)
        done += 1


def table(rows: list[dict]) -> str:
    """The results in Markdown, with the Mann-Whitney test."""
    from scipy.stats import mannwhitneyu
    recall = by_method(rows, METHODS, 'R@1')
    precision = by_method(rows, METHODS, 'MAP@R')
    best = max((m for m in BASELINES if m in precision),
               key=lambda m: np.mean(precision[m]))
    lines = [
        '| Method | R@1 | MAP@R | seeds | lr | proxies lr or λ | '
        f'p (MAP@R, against {best}) |', '|---|---|---|---|---|---|---|']
    for method, values in precision.items():
        settings = next(row for row in rows if row['stage'] == 'test'
                        and row['method'] == method)
        p = '' if method == best else \
            f'{mannwhitneyu(values, precision[best]).pvalue:.4f}'
        further = settings['proxy_lr'] or settings['lambda_val']
        further = f'{further:g}' if further else ''
        lines.append(
            f'| {method} | {spread(recall[method])} | {spread(values)} | '
            f'{len(values)} | {settings["lr"]:g} | {further} | {p} |')
    lines += [
        '', f'In percent, mean ± standard deviation over seeds; {STEPS} steps '
        f'of {BATCH} images; settings tuned on held-out training classes. '
        'p is that of the two-sided Mann-Whitney test. '
        f'{made_by(rows[-1])}']
    return '\n'.join(lines)


def report(path: Path) -> None:
    """Print the table, put it into the READMEs that want it, and plot."""
    rows = read(path)
    text = table(rows)
    print(text)
    fill_readmes(ROOT / 'configs', README_TABLE, text)
    grid.plot(
        by_method(rows, METHODS, 'MAP@R'),
        'MAP@R on the test classes of GlyphRetrieval, %',
        path.with_suffix('.svg'))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--csv', type=Path, default=ROOT / 'docs' /
                        'benchmarks' / 'reproduce_retrieval.csv')
    parser.add_argument('--max-cells', type=int)
    parser.add_argument('--lock', help='hold this file during a cell')
    parser.add_argument('--report', action='store_true')
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.report:
        report(args.csv)
    else:
        run(args.csv, args.max_cells, args.lock)


if __name__ == '__main__':
    main()
