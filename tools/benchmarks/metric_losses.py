"""Time metric-learning losses, forward and backward, as ratios in one run.

The candidates of a row take turns, repetition by repetition, so that a change
of the machine's load meets all of them; a ratio compares medians. Rows:

* Proxy-Anchor against that of pytorch-metric-learning;
* a full Proxy-ISA step (weights, loss, queue, statistics) against
  Proxy-Anchor, with a full queue and positive weights on.

Example:
    python tools/benchmarks/metric_losses.py --num-classes 11318
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

from measuring.cost import interleaved
from measuring.record import command, made_by, record

from mmrank.models.losses import ProxyAnchorLoss, ProxyISALoss


def main() -> None:
    args = parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    device = torch.device(args.device)
    print(made_by(record(command(__file__), args.device)))
    print(f'B = {args.batch_size}, D = {args.embedding_size}, '
          f'T = {args.memory_size}, median of {args.repeats}\n')
    print(f'{"C":>6} {"batch":>12} {"Proxy-Anchor":>13} {"library":>9} '
          f'{"Proxy-ISA":>10} {"ours/library":>13} {"ISA/Anchor":>11}')
    for num_classes in args.num_classes:
        for per_class in args.per_class:
            row(num_classes, per_class, args, device)


def row(num_classes: int, per_class: int, args: argparse.Namespace,
        device: torch.device) -> None:
    width, size = args.embedding_size, args.batch_size
    proxies = torch.randn(
        num_classes, width, device=device, requires_grad=True)

    def batch() -> tuple[Tensor, Tensor]:
        classes = torch.randperm(num_classes)[:-(-size // per_class)]
        labels = classes.repeat_interleave(per_class)[:size].to(device)
        noise = torch.randn(len(labels), width, device=device)
        embeddings = torch.nn.functional.normalize(
            proxies.detach()[labels] + 2 * noise)
        return embeddings.requires_grad_(), labels

    anchor = ProxyAnchorLoss()
    isa = full_isa(num_classes, args, device, batch)
    candidates: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        'anchor': lambda x, y: anchor(x, y, proxies=proxies),
        'isa': lambda x, y: isa(x, y, proxies=proxies),
    }
    parameters = [proxies]
    library = library_loss(num_classes, width, device)
    if library is not None:
        candidates['library'] = library
        parameters += list(library.parameters())

    def job(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable:
        def once() -> None:
            for leaf in (embeddings, *parameters):
                leaf.grad = None
            loss(embeddings, labels).backward()
        return once

    jobs = {key: job(loss) for key, loss in candidates.items()}
    times: dict[str, list[float]] = {key: [] for key in jobs}
    for repeat in range(args.warmup + args.repeats):
        embeddings, labels = batch()
        found = interleaved(jobs, 1, warmup=0, device=args.device)
        if repeat >= args.warmup:
            for key, seconds in found.items():
                times[key] += seconds
    medians = {k: 1e3 * statistics.median(v) for k, v in times.items()}
    theirs = medians.get('library', float('nan'))
    print(f'{num_classes:>6} {f"{per_class} a class":>12} '
          f'{medians["anchor"]:>10.2f} ms {theirs:>6.2f} ms '
          f'{medians["isa"]:>7.2f} ms {medians["anchor"] / theirs:>13.2f} '
          f'{medians["isa"] / medians["anchor"]:>11.2f}')


def full_isa(num_classes: int, args: argparse.Namespace,
             device: torch.device, batch: Callable) -> ProxyISALoss:
    """Proxy-ISA in mid-training: a full queue, some counts."""
    isa = ProxyISALoss(
        num_classes, args.embedding_size, memory_size=args.memory_size,
        by_epoch=False, queue_start=0, weighting_start=0).to(device)
    while len(isa.queue) < args.memory_size:
        embeddings, labels = batch()
        isa.queue.enqueue(embeddings, labels)
    isa.counts.random_(50, 500)
    isa.learned.fill_(.1)
    return isa


def library_loss(num_classes: int, width: int,
                 device: torch.device) -> torch.nn.Module | None:
    try:
        from pytorch_metric_learning.losses import ProxyAnchorLoss as Theirs
    except ImportError:
        print('pytorch-metric-learning is not installed: no library column')
        return None
    return Theirs(num_classes, width).to(device)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--num-classes', type=int, nargs='+',
                        default=[100, 11318])
    parser.add_argument('--per-class', type=int, nargs='+', default=[1, 4],
                        help='images of a class in the batch')
    parser.add_argument('--batch-size', type=int, default=128)
    parser.add_argument('--embedding-size', type=int, default=512)
    parser.add_argument('--memory-size', type=int, default=55_000)
    parser.add_argument('--repeats', type=int, default=20)
    parser.add_argument('--warmup', type=int, default=3)
    parser.add_argument('--threads', type=int, default=0,
                        help='CPU threads; 0 keeps the default')
    parser.add_argument(
        '--device', default='cuda' if torch.cuda.is_available() else 'cpu')
    return parser.parse_args()


if __name__ == '__main__':
    main()
