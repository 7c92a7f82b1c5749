"""Bytes, flops and seconds of a loss per step and process, by world size.

The other processes are simulated: a stand-in for ``Collectives`` claims a
world of ``W`` equal processes and counts what this one would receive. One
line a case is printed; ``--out`` also writes them as a Markdown table.

    python tools/benchmarks/scaling.py --out docs/scaling_table.md
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

from measuring.cost import interleaved
from measuring.record import command, made_by, record
from measuring.report import table

from mmrank.models.losses import (
    HingeTripletLoss,
    ProxyAnchorLoss,
    ProxyISALoss,
    RaMBOLoss,
    RaMBORecallLoss,
)
from mmrank.state import Collectives

WORLDS = (1, 2, 8, 64, 256, 1024)
HEADER = ('loss', 'sizes per process', 'W', 'received MB', 'Mflop',
          'seconds')
# where the losses look the other processes up
SEAM = 'mmrank.state.collectives.Collectives'


class SimulatedWorld(Collectives):
    """``size`` processes that all hold what this one holds.

    An all-reduce over a ring receives ``2 (W - 1) / W`` times the payload, a
    gather ``W - 1`` times.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def gather(self, tensor: Tensor) -> list[Tensor]:
        tensor = tensor.detach()
        self._receive(tensor, self.size - 1)
        return [tensor] * self.size

    def sum(self, tensor: Tensor) -> Tensor:
        self._receive(tensor, 2 * (self.size - 1) / self.size)
        return tensor.detach() * self.size

    def _receive(self, tensor: Tensor, times: float) -> None:
        self.received_bytes += int(
            times * tensor.numel() * tensor.element_size())


def detection(num_items: int, num_classes: int, num_positives: int,
              memory_batches: int = 0) -> tuple[RaMBOLoss, Callable]:
    loss = RaMBOLoss(memory_batches=memory_batches)
    labels = torch.full((num_items, ), num_classes)
    labels[:num_positives] = torch.randint(num_classes, (num_positives, ))
    scores = torch.randn(num_items, num_classes, requires_grad=True)
    return loss, lambda: loss(scores, labels)


def embedding_step(loss: torch.nn.Module, batch: int, width: int,
                   num_classes: int) -> tuple[torch.nn.Module, Callable]:
    embeddings = torch.randn(batch, width, requires_grad=True)
    labels = torch.randint(num_classes, (batch, ))
    proxies = torch.randn(num_classes, width, requires_grad=True)
    return loss, lambda: loss(embeddings, labels, proxies=proxies)


def triplets(batch: int, width: int) -> tuple[HingeTripletLoss, Callable]:
    loss = HingeTripletLoss()
    pairs = [
        torch.nn.functional.normalize(torch.randn(batch, width)).
        requires_grad_() for _ in range(2)
    ]
    return loss, lambda: loss(*pairs)


def cases() -> dict[tuple[str, str], Callable]:
    """Loss and sizes, to what builds them."""
    found: dict[tuple[str, str], Callable] = {}
    for n, c, p in ((4096, 20, 256), (4096, 20, 1024), (16384, 20, 256),
                    (4096, 80, 256), (4096, 1203, 256)):
        found['RaMBO mAP', f'N={n} C={c} P={p}'] = (
            lambda n=n, c=c, p=p: detection(n, c, p))
    found['RaMBO mAP, memory 7', 'N=4096 C=80 P=256'] = (
        lambda: detection(4096, 80, 256, memory_batches=7))
    # a few items of each process: 1,024 of them make a batch that fits
    found['RaMBO recall', 'B=32 D=512'] = lambda: embedding_step(
        RaMBORecallLoss(memory_batches=0), 32, 512, 32)
    for b, c in ((32, 100), (8, 11318)):
        found['Proxy-Anchor', f'B={b} D=512 C={c}'] = (
            lambda b=b, c=c: embedding_step(ProxyAnchorLoss(), b, 512, c))
    found['Proxy-ISA', 'B=8 D=512 C=11318'] = lambda: embedding_step(
        ProxyISALoss(11318, 512, by_epoch=False, queue_start=0,
                     weighting_start=0), 8, 512, 11318)
    for b in (8, 1024):
        found['hinge triplet', f'B={b} D=128'] = lambda b=b: triplets(b, 128)
    return found


def measure(build: Callable, size: int) -> tuple[float, float, float]:
    """Megabytes received, megaflops and seconds of one step."""
    world = SimulatedWorld(size)
    torch.manual_seed(0)
    _, step = build()
    with mock.patch(SEAM, lambda: world):
        # a first step warms up; the second is counted, the third timed
        step().backward()
        world.received_bytes = 0
        with FlopCounterMode(display=False) as flops:
            step().backward()
        received = world.received_bytes
        (seconds, ), = interleaved(
            {'step': lambda: step().backward()}, 1, warmup=0).values()
    return received / 1e6, flops.get_total_flops() / 1e6, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--worlds', type=int, nargs='+', default=WORLDS)
    parser.add_argument('--most-items', type=int, default=32768,
                        help='leave out joined batches above this size')
    parser.add_argument('--out', help='write a Markdown table here')
    args = parser.parse_args()
    torch.set_num_threads(1)
    facts = made_by(record(command(__file__)))
    rows: list[tuple] = []
    print(facts)
    print(*HEADER, sep=' | ')
    for (name, sizes), build in cases().items():
        batch = int(sizes.split()[0].split('=')[1])
        for size in args.worlds:
            # these compute on, or remember, the joined batch
            if name != 'RaMBO mAP' and batch * size > args.most_items:
                rows.append((name, sizes, str(size), 'left out', '', ''))
                continue
            received, flops, seconds = measure(build, size)
            row = (name, sizes, str(size), f'{received:.3f}',
                   f'{flops:.0f}', f'{seconds:.3f}')
            rows.append(row)
            print(*row, sep=' | ', flush=True)
    if args.out:
        Path(args.out).write_text(f'{table(HEADER, rows)}\n\n{facts}\n')


if __name__ == '__main__':
    main()
