"""Draw what the parameters of the losses do, measured on small trainings.

The data are the handwritten digits that scikit-learn carries, so nothing is
downloaded. ``rambo``: a small classifier of five digits, with the other five
as background and noise on the pixels, is trained with ``RaMBOLoss``; drawn is
its mean AP on held-out digits for values of lambda, alpha (margin) and tau
(memory_batches). ``proxy_isa``: an embedding of five digits, a fifth of
whose labels are drawn at random, is trained with ``ProxyISALoss``; drawn are
its weights and MAP@R on held-out digits, for values of k and V.

These are trends of a toy, to show in which direction a parameter acts. They
are no settings for a real data set.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from mmengine.utils import ProgressBar
from sklearn.datasets import load_digits
from torch import Tensor, nn

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank import functional as F
from mmrank.models.losses import ProxyISALoss, RaMBOLoss

CLASSES = 5
RAMBO = dict(lambda_val=.5, margin=.15, memory_batches=7)
RAMBO_VALUES = dict(
    lambda_val=(.01, .1, .5, 2., 10., 50.),
    margin=(0., .05, .15, .5, 2.),
    memory_batches=(0, 1, 3, 7, 15, 31))
ISA = dict(k=.9, V=100.)
ISA_VALUES = dict(k=(.1, .4, .9, 2., 5.), V=(3., 10., 30., 100., 300.))
SYMBOLS = dict(lambda_val=r'$\lambda$ (lambda_val)',
               margin=r'$\alpha$ (margin)',
               memory_batches=r'$\tau$ (memory_batches)', k='k', V='V')


def digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 64) in [0, 1] and labels (1797,)."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images).float() / 16, torch.tensor(labels)


def network(outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


def train_ranking(seed: int, steps: int, **settings: float) -> float:
    """Mean AP on held-out digits after training with ``RaMBOLoss``."""
    torch.manual_seed(seed)
    images, labels = digits()
    labels = labels.clamp(max=CLASSES)
    images = images + .6 * torch.randn(images.shape)
    held_out = torch.arange(len(images)) % 2 == 1
    model, criterion = network(CLASSES), RaMBOLoss(**settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    pool = (~held_out).nonzero().flatten()
    for _ in range(steps):
        batch = pool[torch.randint(len(pool), (12, ))]
        loss = criterion(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        scores = model(images[held_out])
    relevance = labels[held_out][:, None] == torch.arange(CLASSES)
    return 1 - F.blackbox_map_loss(
        scores, relevance, cross_class_weight=0.).item()


def train_embedding(seed: int, steps: int, **settings: float) -> float:
    """MAP@R on held-out digits after training with ``ProxyISALoss``."""
    torch.manual_seed(seed)
    images, labels = digits()
    images = images + .3 * torch.randn(images.shape)
    held_out = torch.arange(len(images)) % 2 == 1
    pool = ((labels < CLASSES) & ~held_out).nonzero().flatten()
    wrong = torch.rand(len(labels)) < .2
    noisy = torch.where(wrong, torch.randint(CLASSES, labels.shape), labels)
    model, proxies = network(32), nn.Parameter(torch.randn(CLASSES, 32))
    criterion = ProxyISALoss(
        CLASSES, 32, memory_size=600, by_epoch=False,
        queue_start=steps // 10, weighting_start=steps // 6, **settings)
    optimizer = torch.optim.Adam([
        dict(params=model.parameters(), lr=1e-3),
        dict(params=[proxies], lr=1e-2)])
    for _ in range(steps):
        batch = pool[torch.randint(len(pool), (60, ))]
        loss = criterion(model(images[batch]), noisy[batch], proxies=proxies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        clean = held_out & (labels < CLASSES)
        found = F.retrieval_metrics(
            model(images[clean]), labels[clean], with_map=False)
    return found['MAP@R']


def sweep(train: Callable[..., float], defaults: dict, values: dict,
          seeds: int, steps: int) -> dict[str, list[tuple[float, ...]]]:
    """For each parameter (value, mean, deviation) with the others at rest."""
    bar = ProgressBar(sum(map(len, values.values())) * seeds, file=sys.stderr)
    result: dict[str, list[tuple[float, ...]]] = {}
    for name, tried in values.items():
        result[name] = []
        for value in tried:
            runs = []
            for seed in range(seeds):
                runs.append(train(seed, steps, **{**defaults, name: value}))
                bar.update()
            found = torch.tensor(runs)
            result[name].append((value, found.mean().item(),
                                 found.std(correction=0).item()))
    bar.file.write('\n')
    return result


def draw_sweep(axes, name: str, points: list[tuple[float, ...]],
               label: str) -> None:
    places = range(len(points))
    axes.errorbar(places, [point[1] for point in points],
                  [point[2] for point in points], marker='o', capsize=3)
    axes.set_xticks(list(places), [f'{point[0]:g}' for point in points])
    axes.set_xlabel(SYMBOLS[name])
    axes.set_ylabel(label)
    axes.grid(alpha=.3)


def draw_weights(first, second) -> None:
    """How V times the decay of sigma, and k widens the informative band."""
    counts = torch.arange(0, 1500)
    for value in ISA_VALUES['V']:
        sigma = F.proxy_isa_schedule(
            counts, torch.ones(len(counts)), V=value)[1]
        first.plot(counts, sigma, label=f'V = {value:g}')
    first.set_xlabel('clean samples seen of a class')
    first.set_ylabel(r'$\sigma$, weight of easy positives')
    similarity = torch.linspace(0, 1, 50)
    for value in ISA_VALUES['k']:
        eta = F.proxy_isa_schedule(
            torch.full((50, ), 100), similarity, k=value)[2]
        second.plot(similarity, eta, label=f'k = {value:g}')
    second.set_xlabel('learned similarity S of a class')
    second.set_ylabel(r'$\eta$, width of the band')
    for axes in (first, second):
        axes.legend(fontsize=8)
        axes.grid(alpha=.3)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('method', choices=['rambo', 'proxy_isa'])
    parser.add_argument('out', type=Path, help='the picture to write (.png)')
    parser.add_argument('--seeds', type=int, default=2)
    parser.add_argument('--steps', type=int, default=200)
    args = parser.parse_args(arguments)

    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    torch.set_num_threads(1)
    if args.method == 'rambo':
        found = sweep(train_ranking, RAMBO, RAMBO_VALUES, args.seeds,
                      args.steps)
        figure, panels = plt.subplots(1, 3, figsize=(10, 3))
        label = 'mAP, held-out digits'
    else:
        found = sweep(train_embedding, ISA, ISA_VALUES, args.seeds,
                      args.steps)
        figure, panels = plt.subplots(1, 4, figsize=(13, 3))
        draw_weights(*panels[:2])
        panels, label = panels[2:], 'MAP@R, held-out digits'
    for axes, (name, points) in zip(panels, found.items()):
        draw_sweep(axes, name, points, label)
        for value, mean, deviation in points:
            print(f'{name} = {value:g}: {mean:.4f} +- {deviation:.4f}')
    figure.tight_layout()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=80)
    print(args.out)


if __name__ == '__main__':
    main()
