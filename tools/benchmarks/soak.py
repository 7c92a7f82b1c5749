"""Memory over a long run: the resident set must stay flat.

Every loss is stepped for 2,000 iterations with batches of changing size and
its memories in use; the resident set is read every 100. A line a loss tells
its growth over the second half in MB, and the exit code is 1 if one grows by
more than ``--most`` MB.

    python tools/benchmarks/soak.py
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

from measuring.cost import resident
from measuring.record import command, made_by, record

from mmrank.models import losses

CLASSES, WIDTH = 50, 64


def detection(loss: losses.RaMBOLoss) -> Callable[[int], Tensor]:
    linear = nn.Linear(WIDTH, CLASSES)

    def step(size: int) -> Tensor:
        labels = torch.randint(CLASSES + 1, (size, ))
        return loss(linear(torch.randn(size, WIDTH)), labels)

    return step


def metric_learning(loss: nn.Module) -> Callable[[int], Tensor]:
    linear = nn.Linear(WIDTH, WIDTH)
    proxies = nn.Parameter(torch.randn(CLASSES, WIDTH))

    def step(size: int) -> Tensor:
        labels = torch.randint(CLASSES, (size, ))
        return loss(linear(torch.randn(size, WIDTH)), labels, proxies=proxies)

    return step


def triplets(loss: losses.HingeTripletLoss) -> Callable[[int], Tensor]:
    linear = nn.Linear(WIDTH, WIDTH)

    def step(size: int) -> Tensor:
        pairs = F.normalize(linear(torch.randn(2, size, WIDTH)), dim=-1)
        return loss(pairs[0], pairs[1])

    return step


def cases() -> dict[str, Callable[[int], Tensor]]:
    return {
        'RaMBO mAP, memory 7': detection(losses.RaMBOLoss()),
        'RaMBO recall, memory 3': metric_learning(losses.RaMBORecallLoss()),
        'Proxy-Anchor': metric_learning(losses.ProxyAnchorLoss()),
        'Proxy-ISA, queue 5,000': metric_learning(losses.ProxyISALoss(
            CLASSES, WIDTH, memory_size=5000, by_epoch=False)),
        'hinge triplet': triplets(losses.HingeTripletLoss()),
    }


def soak(step: Callable[[int], Tensor], iterations: int) -> list[float]:
    """Resident megabytes every 100 iterations."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for iteration in range(iterations):
        size = int(torch.randint(64, 257, (1, ), generator=generator))
        step(size).backward()
        if iteration % 100 == 99:
            found.append(resident() / 2**20)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--iterations', type=int, default=2000)
    parser.add_argument('--most', type=float, default=8.)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(made_by(record(command(__file__))))
    worst = 0.
    for name, step in cases().items():
        start = time.perf_counter()
        found = soak(step, args.iterations)
        half = found[len(found) // 2:]
        growth = max(half) - half[0]
        worst = max(worst, growth)
        print(f'{name}: {args.iterations} iterations in '
              f'{time.perf_counter() - start:.0f} s, {found[-1]:.0f} MB '
              f'resident, {growth:+.1f} MB in the second half', flush=True)
    return int(worst > args.most)


if __name__ == '__main__':
    sys.exit(main())
