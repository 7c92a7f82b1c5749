"""Metric losses compared on GlyphRetrieval, each as its paper trains it.

All methods get the same trunk, which cross-entropy has trained on the
training classes, the same number of forward passes and the same number of
tuning trials: two learning rates times two values of the one hyperparameter
that its paper calls the main one, on classes that occur neither in training
nor in the test. Each keeps what its paper says of the batch (proxies: random
images; pairs and rankings: four of a class), of frozen first steps and of the
proxies' learning rate. The embedding layer begins as a rotation, so step 0 is
the trunk's own features, the row ``Warm start``.

Three data columns: clean; 20 % of the training labels permuted; long-tailed
classes. Every cell is one training, one line of the CSV file, and a run goes
on where the file ends.

    python tools/reproduce/retrieval.py
    python tools/reproduce/retrieval.py --report
    python tools/reproduce/retrieval.py --quick --csv quick.csv

The report writes the page and the plot beside the CSV file, and a table into
the READMEs of the configs.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec('mmrank') is None:
    sys.path.insert(0, str(ROOT))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from measuring import paired, report  # noqa: E402
from measuring.grid import Grid  # noqa: E402
from measuring.record import made_by  # noqa: E402
from mmengine.dataset import InfiniteSampler  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from mmrank.datasets import (  # noqa: E402
    ClassBalancedBatchSampler,
    GlyphRetrievalDataset,
)
from mmrank.functional import retrieval_metrics  # noqa: E402
from mmrank.registry import MODELS  # noqa: E402

WIDTH = 128
LRS = (1e-3, 4e-3)
# Proxy-Anchor's 1e-4 times 100; SoftTriple's centres learn at 1e-2 as well
PROXY_LR = 1e-2
DATA = ('clean', 'permuted', 'long-tailed')
FLOOR = 'Warm start'
TUNE_SEED = 100
MARKS = ('<!-- glyph table: by reproduce/retrieval.py --report -->',
         '<!-- end of glyph table -->')


class Protocol(NamedTuple):
    """How long everything is."""
    steps: int = 240
    batch: int = 64
    trunk_steps: int = 500
    moments: int = 4
    seeds: int = 10
    classes: int | None = None

    @property
    def name(self) -> str:
        return f'{self.trunk_steps}x{self.batch}-{self.classes or "all"}'


#: some seconds for all
QUICK = Protocol(steps=4, batch=16, trunk_steps=3, moments=2, seeds=2,
                 classes=24)


class Method(NamedTuple):
    """A loss with what its paper says of its training.

    Attributes:
        tuned (str): the method whose tuned settings it takes.
        loss (dict): its config.
        parameter (str): the hyperparameter that is tuned.
        values (tuple): of which one is chosen.
        per_class (int): images of a class in a batch; 1 for random images.
        frozen (float): share of the steps in which the trunk rests.
    """
    tuned: str
    loss: dict
    parameter: str
    values: tuple[float, ...]
    per_class: int = 4
    frozen: float = 0.


def library(name: str, **kwargs: object) -> dict:
    """A loss of pytorch-metric-learning."""
    return dict(type='mmrank.PytorchMetricLearningLoss', loss=name, **kwargs)


def rambo(weighting: str) -> Iterator[tuple[str, Method]]:
    """RaMBO for recall, with the parts of the paper's Table 7 on or off."""
    tuned = f'RaMBO {weighting}'
    for memory, margin in itertools.product(
            ('none', 'scores', 'embeddings'), (.02, 0.)):
        loss = dict(type='mmrank.RaMBORecallLoss', weighting=weighting,
                    margin=margin, memory_batches=0)
        if memory != 'none':
            # a memory waits until the embeddings have settled
            loss.update(memory_batches=3, warmup_iters=30, memory=memory)
        parts = [f'memory {memory}'] * (memory != 'none')
        parts += ['no margin'] * (not margin)
        yield ', '.join([tuned, *parts]), Method(
            tuned, loss, 'lambda_val', (.2, 4.))


# A frozen trunk: "warm", one epoch of some tens, of Proxy-Anchor's authors.
METHODS: dict[str, Method] = {
    'Proxy-Anchor': Method(
        'Proxy-Anchor', dict(type='mmrank.ProxyAnchorLoss'), 'alpha',
        (8., 32.), per_class=1, frozen=.1),
    # the paper's epochs 2 and 3 of about 60, as shares of the budget
    'Proxy-ISA': Method(
        'Proxy-ISA', dict(type='mmrank.ProxyISALoss', by_epoch=False,
                          queue_start=24, weighting_start=36), 'alpha',
        (8., 32.), per_class=1, frozen=.1),
    'Proxy-NCA++': Method(
        'Proxy-NCA++', library('ProxyNCALoss'), 'softmax_scale', (3., 9.),
        per_class=1),
    'SoftTriple': Method(
        'SoftTriple', library('SoftTripleLoss', centers_per_class=2), 'la',
        (8., 20.), per_class=1),
    'Contrastive': Method(
        'Contrastive', library('ContrastiveLoss'), 'neg_margin', (.5, 1.)),
    'Triplet, semi-hard': Method(
        'Triplet, semi-hard', library(
            'TripletMarginLoss', miner=dict(
                type='TripletMarginMiner', type_of_triplets='semihard',
                margin=.2)), 'margin', (.1, .2)),
    'Multi-similarity': Method(
        'Multi-similarity', library(
            'MultiSimilarityLoss', alpha=2, beta=50, miner=dict(
                type='MultiSimilarityMiner', epsilon=.1)), 'base', (.5, 1.)),
    'FastAP': Method(
        'FastAP', library('FastAPLoss'), 'num_bins', (10, 20)),
    'Smooth-AP': Method(
        'Smooth-AP', library('SmoothAPLoss'), 'temperature', (.01, .05)),
    'SupCon': Method(
        'SupCon', library('SupConLoss'), 'temperature', (.05, .1)),
    **dict(rambo('log')), **dict(rambo('loglog')),
}
PAIRS = ('Contrastive', 'Triplet, semi-hard', 'Multi-similarity', 'FastAP',
         'Smooth-AP', 'SupCon')


class Split(NamedTuple):
    """Images (N, 1, 32, 32), normalised, and labels (N,) from 0 on."""
    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def get_labels(self, _: str) -> np.ndarray:
        """What the batch sampler asks for."""
        return self.labels.numpy()


def load(split: str, classes: int | None = None) -> Split:
    """A split of GlyphRetrieval as a whole."""
    data = GlyphRetrievalDataset(split=split, num_classes=classes)
    data.full_init()
    images = np.stack([
        data.get_data_info(index)['img'] for index in range(len(data))])
    pixels = torch.from_numpy(images)[:, None].float()
    return Split((pixels - 190) / 60, torch.from_numpy(data.get_labels()))


def spoil(split: Split, data: str, seed: int) -> Split:
    """The training split of a data column.

    'permuted' exchanges the labels of a fifth of the images among these;
    'long-tailed' leaves of the classes, in random order, from all images
    down to 2, in geometric steps.
    """
    generator = torch.Generator().manual_seed(seed)
    images, labels = split
    if data == 'permuted':
        chosen = torch.randperm(len(labels), generator=generator)[
            :len(labels) // 5]
        labels = labels.clone()
        labels[chosen] = labels[chosen[torch.randperm(
            len(chosen), generator=generator)]]
    elif data == 'long-tailed':
        number = int(labels.max()) + 1
        place = torch.randperm(number, generator=generator)
        size = labels.bincount()
        most = (size * (2 / size) ** (place / max(1, number - 1))).round()
        order = torch.randperm(len(labels), generator=generator)
        onehot = F.one_hot(labels[order], number)
        rank = torch.empty_like(labels)
        rank[order] = (onehot.cumsum(0) * onehot).sum(1)
        kept = rank <= most[labels]
        images, labels = images[kept], labels[kept]
    return Split(images, labels)


def batches(split: Split, batch: int, per_class: int,
            seed: int) -> Iterator[list[int]]:
    """Without end: random images, or so many of each class."""
    sampler = InfiniteSampler(split, seed=seed)
    if per_class > 1:
        yield from ClassBalancedBatchSampler(sampler, batch, per_class)
    images = iter(sampler)
    while True:
        yield list(itertools.islice(images, batch))


def pooled(trunk: nn.Module, images: Tensor) -> Tensor:
    """The features that cross-entropy and the embedding layer see."""
    feats = trunk(images)[0]
    return feats.mean((2, 3)) + feats.flatten(2).amax(2)


def train_trunk(split: Split, protocol: Protocol, seed: int) -> nn.Module:
    """Plain cross-entropy on the training classes."""
    torch.manual_seed(seed)
    trunk = MODELS.build(dict(type='mmrank.SmallConvNet'))
    classifier = nn.Linear(WIDTH, int(split.labels.max()) + 1)
    optimizer = torch.optim.AdamW(
        [*trunk.parameters(), *classifier.parameters()], 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, protocol.trunk_steps)
    order = batches(split, protocol.batch, 1, seed)
    for batch in itertools.islice(order, protocol.trunk_steps):
        optimizer.zero_grad()
        F.cross_entropy(classifier(pooled(trunk, split.images[batch])),
                        split.labels[batch]).backward()
        optimizer.step()
        schedule.step()
    return trunk


def warm_trunk(cell: dict, split: Split, protocol: Protocol,
               cache: Path) -> nn.Module:
    """The trunk of a seed and data column, trained once."""
    path = cache / (f'{cell["stage"]}-{cell["data"]}-{cell["seed"]}-'
                    f'{protocol.name}.pth')
    if not path.exists():
        trunk = train_trunk(split, protocol, int(cell['seed']))
        cache.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix('.part')
        torch.save(trunk.state_dict(), draft)
        draft.replace(path)
    trunk = MODELS.build(dict(type='mmrank.SmallConvNet'))
    trunk.load_state_dict(torch.load(path, weights_only=True))
    return trunk


def build_head(cell: dict, classes: int) -> nn.Module:
    """The embedding layer, a rotation at first, and the loss."""
    method = METHODS[cell['method']]
    kind = type(method.values[0])
    loss = {**method.loss, method.parameter: kind(cell['value'])}
    if 'miner' in loss and method.parameter == 'margin':
        loss['miner'] = dict(loss['miner'], margin=cell['value'])
    head = MODELS.build(
        dict(type='mmrank.MetricLearningHead', in_channels=WIDTH,
             embedding_size=WIDTH, num_classes=classes, loss=loss))
    nn.init.orthogonal_(head.fc.weight)
    return head


@torch.no_grad()
def measure(trunk: nn.Module, head: nn.Module | None,
            test: Split) -> tuple[float, float]:
    """R@1 and MAP@R of the test classes; 0 for a training that diverged."""
    trunk.eval()
    parts = [pooled(trunk, part) for part in test.images.split(512)]
    trunk.train()
    rows = F.normalize(torch.cat(parts))
    if head is not None:
        rows = head(torch.cat(parts))
    if not rows.isfinite().all():
        return 0., 0.
    found = retrieval_metrics(rows, test.labels, with_map=False)
    return found['R@1'], found['MAP@R']


def train(cell: dict, split: Split, test: Split, trunk: nn.Module,
          protocol: Protocol) -> list[tuple[int, float, float, float]]:
    """Steps, seconds of the processor, R@1 and MAP@R at every moment."""
    if cell['method'] == FLOOR:
        return [(0, 0., *measure(trunk, None, test))]
    torch.manual_seed(int(cell['seed']))
    method = METHODS[cell['method']]
    head = build_head(cell, int(split.labels.max()) + 1)
    apart = {id(p) for name, p in head.named_parameters()
             if not name.startswith('fc.')}
    everything = [*trunk.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in everything if id(p) not in apart]),
         dict(params=[p for p in everything if id(p) in apart],
              lr=PROXY_LR, weight_decay=0)],
        lr=cell['lr'], weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, protocol.steps)
    order = batches(split, protocol.batch, method.per_class,
                    int(cell['seed']))
    # a search looks at the end alone
    moments = 1 if cell['stage'] == 'tune' else protocol.moments
    marks = set(np.linspace(0, protocol.steps, moments + 1).astype(int)[1:])
    curve, seconds = [], 0.
    for step, batch in enumerate(itertools.islice(order, protocol.steps), 1):
        start = time.process_time()
        feats = pooled(trunk, split.images[batch])
        if step <= method.frozen * protocol.steps:
            feats = feats.detach()
        loss = head.loss_module(head(feats), split.labels[batch],
                                proxies=head.proxies)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(everything, 10)
        optimizer.step()
        schedule.step()
        seconds += time.process_time() - start
        if step in marks:
            curve.append((step, seconds, *measure(trunk, head, test)))
    return curve


class Comparison:
    """The grid of all cells."""

    cell = ('stage', 'data', 'method', 'lr', 'value', 'seed')
    figures = ('R@1', 'MAP@R', 'best R@1', 'best MAP@R', 'train seconds')

    def __init__(self, path: Path, protocol: Protocol | None = None,
                 lock: str | None = None, methods: dict | None = None,
                 cache: Path = ROOT / 'work_dirs/retrieval') -> None:
        self.protocol = protocol or Protocol()
        self.methods = METHODS if methods is None else methods
        self.cache = cache
        self.grid = Grid(
            path, self.cell,
            (*self.cell, *self.figures, 'seconds', 'curve', 'steps'),
            ('lr', 'value', 'seed', *self.figures, 'seconds'),
            'python tools/reproduce/retrieval.py', lock)
        self.splits: dict[str, Split] = {}

    def tuning(self) -> list[dict]:
        """The search, equally wide for all."""
        tuned = dict.fromkeys(each.tuned for each in self.methods.values())
        return [dict(stage='tune', data='clean', method=name, lr=lr,
                     value=value, seed=TUNE_SEED) for name in tuned
                for lr, value in itertools.product(
                    LRS, METHODS[name].values)]

    def cells(self, rows: list[dict]) -> list[dict]:
        """What is to do, in order; once the search is done, all of it.

        Seed by seed, so that an interrupted run compares all methods.
        """
        search = self.tuning()
        if self.grid.missing(search):
            return search
        found = search
        for data, seed in itertools.product(DATA,
                                            range(self.protocol.seeds)):
            common = dict(stage='test', data=data, seed=seed)
            found.append(dict(common, method=FLOOR, lr=0., value=0.))
            found += [dict(common, method=name,
                           **self.chosen(method.tuned, rows))
                      for name, method in self.methods.items()]
        return found

    def chosen(self, tuned: str, rows: list[dict]) -> dict:
        """The settings that did best on the validation classes."""
        best = max((row for row in rows if row['stage'] == 'tune'
                    and row['method'] == tuned),
                   key=lambda row: row['MAP@R'])
        return dict(lr=best['lr'], value=best['value'])

    def size(self) -> int:
        """How many cells there are."""
        return len(self.tuning()) + len(DATA) * self.protocol.seeds * (
            len(self.methods) + 1)

    def split(self, name: str) -> Split:
        if name not in self.splits:
            self.splits[name] = load(name, self.protocol.classes)
        return self.splits[name]

    def do(self, cell: dict) -> dict:
        """The figures of one cell."""
        tune = cell['stage'] == 'tune'
        split = spoil(self.split('fit' if tune else 'train'), cell['data'],
                      int(cell['seed']))
        trunk = warm_trunk(cell, split, self.protocol, self.cache)
        curve = train(cell, split, self.split('val' if tune else 'test'),
                      trunk, self.protocol)
        return {
            'R@1': f'{curve[-1][2]:.5f}', 'MAP@R': f'{curve[-1][3]:.5f}',
            'best R@1': f'{max(each[2] for each in curve):.5f}',
            'best MAP@R': f'{max(each[3] for each in curve):.5f}',
            'train seconds': f'{curve[-1][1]:.1f}',
            'curve': ';'.join(f'{step}:{seconds:.2f}:{recall:.5f}:{found:.5f}'
                              for step, seconds, recall, found in curve),
            'steps': curve[-1][0]}

    def run(self, most: int | None = None) -> None:
        """Do what is missing."""
        self.grid.run(self.cells, self.do, most)

    def report(self) -> str:
        """Write page, plot and READMEs; return the page."""
        rows = self.grid.rows()
        if not rows:
            raise ValueError(f'{self.grid.path} holds no finished cell')
        text = page(rows, self.size(), self.protocol, self.best_pair(rows))
        self.grid.path.with_suffix('.md').write_text(text, encoding='utf-8')
        report.fill_readmes(ROOT / 'configs', MARKS,
                            summary(rows, self.size()))
        if of_data(rows, 'clean'):
            plot_curves(rows, self.grid.path.with_suffix('.svg'))
        return text

    def best_pair(self, rows: list[dict]) -> str:
        """The pair loss to compare with, by the validation classes alone."""
        found = {name: max((row['MAP@R'] for row in rows
                            if row['stage'] == 'tune'
                            and row['method'] == name), default=-1.)
                 for name in PAIRS}
        return max(found, key=lambda name: found[name])


def questions(best_pair: str) -> list[tuple[str, str]]:
    """What the comparison is to answer: is the first above the second?"""
    found = [('Proxy-Anchor', best_pair), ('Proxy-ISA', 'Proxy-Anchor')]
    for tuned in ('RaMBO log', 'RaMBO loglog'):
        found += [(tuned, best_pair),
                  (f'{tuned}, memory scores', tuned),
                  (f'{tuned}, memory embeddings', tuned),
                  (tuned, f'{tuned}, no margin')]
    return found


def of_data(rows: list[dict], data: str) -> dict[str, list[dict]]:
    """Method to its rows of the test stage."""
    found: dict[str, list[dict]] = {}
    for name in (FLOOR, *METHODS):
        mine = [row for row in rows if row['stage'] == 'test'
                and row['data'] == data and row['method'] == name]
        if mine:
            found[name] = mine
    return found


def method_table(methods: dict[str, list[dict]]) -> str:
    """Last and best iterate of every method."""
    def line(name: str, rows: list[dict]) -> list[object]:
        method = METHODS.get(name)
        images = '' if method is None else \
            'random' if method.per_class == 1 else \
            f'{method.per_class} a class'
        setting = '' if method is None else \
            f'{rows[0]["lr"]:g}, {method.parameter} {rows[0]["value"]:g}'
        return [name, images, setting, *(
            report.spread([row[figure] for row in rows])
            for figure in Comparison.figures[:4]), report.spread(
                [row['train seconds'] for row in rows], 1.), len(rows)]

    head = ('Method', 'batch', 'lr and setting', 'R@1', 'MAP@R', 'best R@1',
            'best MAP@R', 'seconds', 'seeds')
    return report.table(head, itertools.starmap(line, methods.items()))


def question_table(methods: dict[str, list[dict]], best_pair: str) -> str:
    """The paired tests of a data column."""
    figures = {name: {row['seed']: row['MAP@R'] for row in rows}
               for name, rows in methods.items()}
    found = paired.family(figures, questions(best_pair))
    if not found:
        return 'No question has two seeds yet.'
    return report.table(
        ('MAP@R of', 'above that of', 'by', 'pairs', 'p', 'p, Holm',
         'p, Wilcoxon', 'power', 'detectable'),
        [(a, b, f'{100 * each.difference:+.2f}', each.pairs,
          f'{each.t:.4f}', f'{each.holm:.4f}', f'{each.wilcoxon:.4f}',
          f'{each.power:.2f}', f'{100 * each.detectable:.2f}')
         for (a, b), each in found.items()])


def progress(rows: list[dict], size: int) -> list[str]:
    """A warning, unless all is done."""
    return [f'**Incomplete: {len(rows)} of {size} cells.**'] * (
        len(rows) < size)


def summary(rows: list[dict], size: int) -> str:
    """What the READMEs say: the clean column."""
    methods = of_data(rows, 'clean')
    return '\n\n'.join([
        *progress(rows, size), *[method_table(methods)] * bool(methods),
        'The [page](../../docs/benchmarks/retrieval.md) has the protocol, '
        f'the noisy columns and the tests. {made_by(rows[-1])}'])


def page(rows: list[dict], size: int, protocol: Protocol,
         best_pair: str) -> str:
    """The page, from the finished cells."""
    parts = ['# Metric losses on GlyphRetrieval', *progress(rows, size)]
    parts.append(
        f'{protocol.steps} steps of {protocol.batch} images from a trunk '
        f'that {protocol.trunk_steps} steps of cross-entropy have trained; '
        'test classes never seen. Percent, mean ± standard deviation over '
        'seeds, of the last iterate and of the best of '
        f'{protocol.moments} on the test classes, as papers report it; '
        'seconds are those of the processor in training. Settings were '
        'searched on held-out training classes of the clean column, '
        f'{len(LRS)} learning rates times 2 values for every method. A '
        'training that diverged counts as 0.\n\n'
        'p is of the two-sided paired t test over seeds; Holm corrects for '
        'all questions of a column. Power is that of the test at .05, were '
        'the observed difference the true one; detectable is the difference '
        'it would have found with power .8.')
    if of_data(rows, 'clean'):
        parts.append('The pair loss compared with is the best on the '
                     f'validation classes, {best_pair}.')
    for data in DATA:
        methods = of_data(rows, data)
        if methods:
            parts += [f'## {data.capitalize()}', method_table(methods),
                      question_table(methods, best_pair)]
    if of_data(rows, 'clean'):
        parts.append('![MAP@R against steps and seconds](retrieval.svg)')
    parts.append(made_by(rows[-1]))
    return '\n\n'.join(parts) + '\n'


def plot_curves(rows: list[dict], path: Path) -> None:
    """MAP@R, mean over seeds, against steps and against seconds."""
    present = [data for data in DATA if of_data(rows, data)]
    figure, panels = report.pyplot().subplots(
        len(present), 2, figsize=(12, 4.5 * len(present)), squeeze=False)
    for (left, right), data in zip(panels, present):
        methods = of_data(rows, data)
        start = np.mean([row['MAP@R'] for row in methods.get(FLOOR, [])]
                        or [np.nan])
        for number, (name, mine) in enumerate(methods.items()):
            points = np.mean([[[float(x) for x in point.split(':')]
                               for point in row['curve'].split(';')]
                              for row in mine], 0)
            points = np.vstack([[0, 0, 0, start], points])
            style = dict(label=name, marker='.', color=f'C{number % 10}',
                         linestyle=('-', '--', ':')[number // 10])
            left.plot(points[:, 0], 100 * points[:, 3], **style)
            right.plot(points[:, 1], 100 * points[:, 3], **style)
        left.set(title=data, xlabel='steps', ylabel='MAP@R, %')
        right.set(title=data, xlabel='seconds of the processor')
        right.legend(fontsize=6, loc='center left', bbox_to_anchor=(1, .5))
    report.save(figure, path)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--csv', type=Path, default=ROOT / 'docs' /
                        'benchmarks' / 'retrieval.csv')
    parser.add_argument('--max-cells', type=int)
    parser.add_argument('--lock', help='hold this file during a cell')
    parser.add_argument('--quick', action='store_true',
                        help='a few steps of a few classes, for a look')
    parser.add_argument('--report', action='store_true')
    args = parser.parse_args()
    torch.set_num_threads(1)
    comparison = Comparison(args.csv, QUICK if args.quick else Protocol(),
                            args.lock)
    try:
        if args.report:
            print(comparison.report())
        else:
            comparison.run(args.max_cells)
    except ValueError as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()
