"""Retrieval metrics against pytorch-metric-learning with faiss-cpu.

Prints, from one run, the time of R@1 and MAP@R by both on the same
embeddings, their ratio, the figures themselves, and the peak memory of ours
above the embeddings. Each runs in a process of its own.

    python tools/benchmarks/retrieval_metric.py
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import multiprocessing
import os
import sys
import time
from pathlib import Path

if importlib.util.find_spec('mmrank') is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring


def embeddings(number: int, width: int) -> tuple:
    """Unit vectors in classes of 2 to 12, about as many as SOP's."""
    import torch
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(2, 10, (number, ), generator=generator)
    sizes = sizes[sizes.cumsum(0) <= number]
    labels = torch.arange(len(sizes)).repeat_interleave(sizes)
    labels = torch.cat([labels, labels.new_full((number - len(labels), ),
                                                len(sizes))])
    centres = torch.randn(len(sizes) + 1, width, generator=generator)
    noise = torch.randn(number, width, generator=generator)
    values = torch.nn.functional.normalize(centres[labels] + 4 * noise)
    return values, labels


def ours(values, labels, with_faiss: bool = False) -> dict[str, float]:
    """mmrank."""
    from mmrank.evaluation import faiss_index
    from mmrank.functional import retrieval_metrics
    found = retrieval_metrics(values, labels, with_map=False,
                              index=faiss_index if with_faiss else None)
    return {name: found[name] for name in ('R@1', 'MAP@R')}


def theirs(values, labels) -> dict[str, float]:
    """pytorch-metric-learning."""
    import torch
    from pytorch_metric_learning.utils import accuracy_calculator
    calculator = accuracy_calculator.AccuracyCalculator(
        include=('precision_at_1', 'mean_average_precision_at_r'),
        k='max_bin_count', device=torch.device('cpu'))
    found = calculator.get_accuracy(values, labels)
    return {'R@1': found['precision_at_1'],
            'MAP@R': found['mean_average_precision_at_r']}


CONTESTANTS = {
    'mmrank': ours,
    'mmrank, faiss': functools.partial(ours, with_faiss=True),
    'pytorch-metric-learning': theirs,
}


def measure(name: str, number: int, width: int, threads: int,
            pipe) -> None:
    """One contestant in its own process."""
    import torch
    from measuring.cost import Peak
    torch.set_num_threads(threads)
    function = CONTESTANTS[name]
    function(*embeddings(500, width))  # imports and warms up
    values, labels = embeddings(number, width)
    with Peak() as peak:
        start = time.perf_counter()
        found = function(values, labels)
        seconds = time.perf_counter() - start
    pipe.send((seconds, peak.above / 2**30, found))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--number', type=int, default=60502)
    parser.add_argument('--width', type=int, default=512)
    parser.add_argument('--threads', type=int, default=os.cpu_count())
    parser.add_argument('--repeats', type=int, default=1)
    args = parser.parse_args()
    os.environ['OMP_NUM_THREADS'] = str(args.threads)
    context = multiprocessing.get_context('spawn')
    best: dict[str, float] = {}
    for _ in range(args.repeats):
        for name in CONTESTANTS:
            mine, other = context.Pipe()
            process = context.Process(target=measure, args=(
                name, args.number, args.width, args.threads, other))
            process.start()
            seconds, memory, found = mine.recv()
            process.join()
            best[name] = min(seconds, best.get(name, seconds))
            figures = ', '.join(f'{k} {v:.6f}' for k, v in found.items())
            print(f'{name}: {seconds:.1f} s, {memory:.2f} GiB above the '
                  f'embeddings, {figures}', flush=True)
    from measuring.record import command, made_by, record
    print(made_by(record(command(__file__))))
    for name in list(CONTESTANTS)[:2]:
        ratio = best['pytorch-metric-learning'] / best[name]
        print(f'{args.number} x {args.width}, {args.threads} threads: {name} '
              f'is {ratio:.2f} times as fast')


if __name__ == '__main__':
    main()
