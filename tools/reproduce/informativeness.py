"""Figure 3 on PhotoPatches: is the matching distance the informativeness?

    python tools/reproduce/informativeness.py data/photo_patches

For classes of patches with a random anchor, the informativeness of a positive
is the norm of its loss's gradient by all parameters, exact and per sample
(torch.func). The probabilities it induces within a class are compared with
those the matching distance induces, at several moments of a short training.
As in a large batch, the negative is the anchor's nearest patch among many
other classes. Writes OUT.csv and OUT.svg; ``active`` is the share of positive
losses, where alone the paper's relation (Eq. 24) holds.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

if __package__ is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

from measuring import patches, report
from measuring.grid import Grid
from measuring.record import command

from mmrank.datasets import PhotoTourDataset
from mmrank.datasets.generators.photo_patches import write_photo_patches
from mmrank.functional import squared_distances
from mmrank.registry import MODELS


def build(width: int, loss: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS.build(
        dict(
            type='mmrank.DescriptorLearner',
            backbone=dict(type='mmrank.L2Net',
                          widths=(width, 2 * width, 4 * width)),
            loss=dict(type='mmrank.HingeTripletLoss', distance=loss),
            sampler=dict(type='mmrank.AdaSample', lambda_val=0)))


def gradient_norms(net: nn.Module, triplets: Tensor, distance: str,
                   chunk_size: int = 32) -> Tensor:
    """The exact gradient norm of each triplet's loss.

    Args:
        triplets (Tensor): normalised patches, shape (N, 3, 1, S, S): anchor,
            positive, negative.

    Returns:
        Tensor: shape (N,).
    """
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    buffers = dict(net.named_buffers())

    def loss(weights: dict, patches: Tensor) -> Tensor:
        a, p, n = functional_call(net, (weights, buffers), (patches,))
        gap = squared_distances(a, p, distance) - \
            squared_distances(a, n, distance)
        return torch.relu(1 + gap)

    def norm(patches: Tensor) -> Tensor:
        gradients = grad(loss)(parameters, patches)
        return sum(g.square().sum() for g in gradients.values()).sqrt()

    return torch.cat([vmap(norm)(part) for part in triplets.split(chunk_size)])


def measure(model: nn.Module, classes: Tensor, others: Tensor,
            distance: str) -> tuple:
    """Probabilities by informativeness and by distance, both (n, k - 1), and
    the share of positive losses.

    Args:
        classes (Tensor): shape (n, k, 1, S, S), the anchor in slot 0.
        others (Tensor): a patch of each of many other classes.
    """
    model.eval()
    size = classes.shape[:2]
    pixels = model.data_preprocessor.normalize(
        torch.cat([classes.flatten(0, 1), others]))
    with torch.no_grad():
        rows = torch.cat([model.backbone(part)
                          for part in pixels.split(256)])
    count = size[0] * size[1]
    away, others = rows[count:], pixels[count:]
    rows = rows[:count].unflatten(0, size)
    pixels = pixels[:count].unflatten(0, size)
    d = squared_distances(rows[:, 1:], rows[:, :1], distance).sqrt()
    negative = torch.cdist(rows[:, 0], away).argmin(1)
    triplets = torch.stack([
        pixels[:, :1].expand_as(pixels[:, 1:]), pixels[:, 1:],
        others[negative, None].expand_as(pixels[:, 1:])], 2)
    info = gradient_norms(model.backbone, triplets.flatten(0, 1), distance)
    active = float((info > 0).float().mean())
    info = info.unflatten(0, d.shape)
    model.train()
    return *((x / x.sum(1, keepdim=True).clamp_min(1e-12)).numpy()
             for x in (info, d)), active


def train(model: nn.Module, dataset: PhotoTourDataset, steps: int,
          batch: int, generator: torch.Generator) -> None:
    optimizer = patches.sgd(model, batch)
    model.train()
    for _ in range(steps):
        chosen = torch.randperm(len(dataset), generator=generator)[:batch]
        patches.train_step(model, optimizer, dataset, chosen)


def plot(last: list, rows: list, path: Path) -> None:
    figure, (left, right) = report.pyplot().subplots(1, 2, figsize=(9, 3.6))
    left.plot(last[1].ravel(), last[0].ravel(), '.', markersize=3)
    left.set(xlabel='probability by matching distance',
             ylabel='probability by informativeness')
    right.plot([row['step'] for row in rows],
               [row['pearson'] for row in rows], 'o-')
    right.set(xlabel='training step', ylabel='Pearson correlation',
              ylim=(0, 1))
    report.save(figure, path)


def main() -> None:
    parser = patches.parser(__doc__, 'docs/benchmarks/informativeness')
    parser.add_argument('--distance', default='euclidean',
                        choices=['euclidean', 'angular'])
    parser.add_argument('--classes', type=int, default=48)
    parser.add_argument('--others', type=int, default=512)
    parser.add_argument('--moments', type=int, default=5)
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    if not args.data.exists():
        write_photo_patches(str(args.data))
    dataset = PhotoTourDataset(args.data / 'phototour', 'photos_train')
    generator = torch.Generator().manual_seed(args.seed)
    order = torch.randperm(len(dataset), generator=generator)
    held = order[:args.classes]
    others = torch.stack([dataset[int(i)]['inputs'][0] for i in
                          order[args.classes:args.classes + args.others]])
    # a random anchor: the slots of a class are sorted by strength
    classes = torch.stack([
        dataset[int(i)]['inputs'][torch.randperm(dataset.slots,
                                                 generator=generator)]
        for i in held])
    model = build(args.width, args.distance, args.seed)
    rows, last = [], None
    marks = np.linspace(0, args.steps, args.moments).astype(int)
    for before, step in zip([0, *marks[:-1]], marks):
        train(model, dataset, int(step - before), args.batch, generator)
        *last, active = measure(model, classes, others, args.distance)
        pearson = float(np.corrcoef(last[0].ravel(), last[1].ravel())[0, 1])
        print(f'step {step}: Pearson {pearson:.4f}, active {active:.4f}',
              flush=True)
        rows.append(dict(step=int(step), pearson=round(pearson, 4),
                         active=round(active, 4), seed=args.seed))
    # one training, so the moments are written anew, together
    grid = Grid(args.out.with_suffix('.csv'), ('step', 'seed'),
                tuple(rows[0]), command=command(__file__))
    grid.path.unlink(missing_ok=True)
    for row in rows:
        grid.append(row)
    plot(last, rows, args.out.with_suffix('.svg'))


if __name__ == '__main__':
    main()
