"""What AdaSample adds to a step: shares and ratios from one run.

    python tools/benchmarks/adasample_step.py --classes 1024 --patches 15

Prints the share of an online step (Algorithm 1) that is neither a forward nor
a backward pass but sampling, and the ratio of a step in bank mode to
HardNet's (lambda 0). Each figure is the quickest of several interleaved
repetitions, so that a busy machine disturbs all alike.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

if __package__ is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

from measuring.cost import interleaved
from measuring.record import command, made_by, record

from mmrank.registry import MODELS

KINDS = dict(hardnet=dict(lambda_val=0), bank=dict(mode='bank'),
             online=dict(mode='online'))


def build(width: int, sampler: dict) -> torch.nn.Module:
    return MODELS.build(
        dict(
            type='mmrank.DescriptorLearner',
            backbone=dict(type='mmrank.L2Net',
                          widths=(width, 2 * width, 4 * width)),
            loss=dict(type='mmrank.HingeTripletLoss'),
            sampler=dict(type='mmrank.AdaSample', **sampler)))


def sampling(model: torch.nn.Module, classes: int, patches: int,
             device: str) -> Callable:
    """All of AdaSample but the forward passes, on ready descriptors."""
    rows = torch.nn.functional.normalize(
        torch.randn(classes, patches, 128, device=device), dim=2)
    valid = torch.ones(classes, patches, dtype=torch.bool, device=device)
    inputs = torch.zeros(classes, patches, 1, 32, 32, dtype=torch.uint8,
                         device=device)

    def once() -> None:
        chosen = model.sampler(rows, valid)
        model._pairs(inputs, chosen)
        model.sampler.update(torch.ones((), device=device))

    return once


def step(model: torch.nn.Module, data: dict) -> Callable:
    optimizer = torch.optim.SGD(model.parameters(), .1, momentum=.5)

    def once() -> None:
        ready = model.data_preprocessor(data, training=True)
        optimizer.zero_grad()
        model(**ready, mode='loss')['loss'].backward()
        optimizer.step()

    return once


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--classes', type=int, default=1024)
    parser.add_argument('--patches', type=int, default=15)
    parser.add_argument('--width', type=int, default=32,
                        help="L2-Net's first layer; narrower is a harder test")
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--device', default='cpu')
    args = parser.parse_args()
    torch.manual_seed(0)
    shape = (args.classes, args.patches, 1, 32, 32)
    inputs = torch.randint(0, 256, shape, dtype=torch.uint8)
    valid = torch.ones(args.patches, dtype=torch.bool)
    data = dict(
        inputs=list(inputs),
        data_samples=[dict(class_index=i, class_id=i, valid=valid)
                      for i in range(args.classes)])
    models = {kind: build(args.width, sampler).to(args.device)
              for kind, sampler in KINDS.items()}
    models['bank'].sampler.set_bank(torch.nn.functional.normalize(
        torch.randn(args.classes, args.patches, 128), dim=2).to(args.device))
    jobs = {kind: step(model, data) for kind, model in models.items()}
    jobs['sampling'] = sampling(models['online'], args.classes, args.patches,
                                args.device)
    times = interleaved(jobs, 1, args.repeats, warmup=0, device=args.device)
    best = {name: min(each) for name, each in times.items()}
    print(f'n={args.classes} k={args.patches} width={args.width}')
    print(made_by(record(command(__file__), args.device)))
    for name, value in best.items():
        print(f'{name:10s} {1e3 * value:10.1f} ms')
    print(f'sampling / online step: '
          f'{100 * best["sampling"] / best["online"]:.2f} % (target 3 %)')
    print(f'bank step / HardNet step: '
          f'{best["bank"] / best["hardnet"]:.3f} (target 1.15)')


if __name__ == '__main__':
    main()
