"""Draw a two-dimensional section of a rank-based loss and what lambda does.

The loss is a fixed random linear combination of the ranks of a score vector,
L(y) = v . rank(y) / n, as in the figures of the RaMBO paper (Fig. 1, and
Fig. 6 without the pretrained SoDeep network): piecewise constant on the left,
then the interpolation whose gradient blackbox differentiation computes, for
each lambda. With ``--bins``, FastAP's soft-binned ranks for comparison.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def ranks(scores: np.ndarray) -> np.ndarray:
    """Rank of each entry along the last axis, 1 for the highest, over n."""
    above = scores[..., None, :] > scores[..., :, None]
    return (1 + above.sum(axis=-1)) / scores.shape[-1]


def interpolated_loss(scores: np.ndarray, weights: np.ndarray,
                      lambda_val: float) -> np.ndarray:
    """The function whose gradient is the blackbox gradient.

    With rho(y) = rank(y) / n and y' = y + lambda v::

        L_lambda(y) = v . rho(y') - (y . rho(y) - y . rho(y')) / lambda

    Its gradient is -(rho(y) - rho(y')) / lambda, Algorithm 1 of the paper.

    Args:
        scores (np.ndarray): (..., n).
        weights (np.ndarray): (n,), the v of the loss.
        lambda_val (float): interpolation strength, > 0.

    Returns:
        np.ndarray: (...).
    """
    here = ranks(scores)
    there = ranks(scores + lambda_val * weights)
    return there @ weights - (scores * (here - there)).sum(-1) / lambda_val


def soft_binned_ranks(scores: np.ndarray, bins: int) -> np.ndarray:
    """FastAP's ranks: from a histogram with linearly interpolated bins."""
    low, high = scores.min(), scores.max()
    width = (high - low) / (bins - 1)
    centres = low + width * np.arange(bins)
    share = np.maximum(
        0, 1 - np.abs(scores[..., :, None] - centres) / width)
    counts = share.sum(axis=-2)
    at_or_above = counts[..., ::-1].cumsum(axis=-1)[..., ::-1]
    soft = (share * at_or_above[..., None, :]).sum(axis=-1)
    return soft / scores.shape[-1]


def section(size: int, resolution: int, radius: float,
            seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Score vectors on a plane through a random point, and the loss's v.

    Returns:
        tuple: scores (resolution, resolution, size) and weights (size,).
    """
    generator = np.random.default_rng(seed)
    centre, weights = generator.normal(size=(2, size))
    plane, _ = np.linalg.qr(generator.normal(size=(size, 2)))
    steps = np.linspace(-radius, radius, resolution)
    grid = np.stack(np.meshgrid(steps, steps, indexing='ij'), axis=-1)
    return centre + grid @ plane.T, weights


def landscapes(scores: np.ndarray, weights: np.ndarray, lambdas: list[float],
               bins: list[int]) -> dict[str, np.ndarray]:
    """Title to height, a panel each."""
    panels = {'rank-based loss': ranks(scores) @ weights}
    for value in lambdas:
        panels[f'blackbox, $\\lambda$ = {value:g}'] = interpolated_loss(
            scores, weights, value)
    for number in bins:
        panels[f'soft binning, {number} bins'] = soft_binned_ranks(
            scores, number) @ weights
    return panels


def draw(panels: dict[str, np.ndarray], file: Path, dpi: int) -> None:
    """One surface a panel, side by side, in one picture."""
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    figure = plt.figure(figsize=(3.2 * len(panels), 3.4))
    for position, (title, height) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), position, projection='3d')
        first, second = np.meshgrid(
            *(np.arange(length) for length in height.shape), indexing='ij')
        axes.plot_surface(
            first, second, height, cmap='viridis', shade=True, linewidth=0,
            rcount=height.shape[0], ccount=height.shape[1],
            antialiased=False)
        axes.set_title(title, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_zticks([])
        axes.view_init(elev=35, azim=-120)
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=dpi)
    plt.close(figure)


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out', type=Path, help='the picture to write (.png)')
    parser.add_argument(
        '--lambda-val', type=float, nargs='*', default=[.05, .5],
        help='interpolation strengths, a panel each (default: 0.05 0.5)')
    parser.add_argument(
        '--bins', type=int, nargs='*', default=[],
        help="numbers of bins of FastAP's ranks, a panel each")
    parser.add_argument('--size', type=int, default=20,
                        help='number of scores n (default: 20)')
    parser.add_argument('--radius', type=float, default=2.,
                        help='half the width of the section (default: 2)')
    parser.add_argument('--resolution', type=int, default=100,
                        help='points a side (default: 100)')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--dpi', type=int, default=80)
    args = parser.parse_args(arguments)
    if any(value <= 0 for value in args.lambda_val):
        parser.error('--lambda-val must be > 0')
    if any(number < 2 for number in args.bins):
        parser.error('--bins must be >= 2')
    return args


def main(arguments: list[str] | None = None) -> None:
    args = parse_args(arguments)
    scores, weights = section(args.size, args.resolution, args.radius,
                              args.seed)
    panels = landscapes(scores, weights, args.lambda_val, args.bins)
    draw(panels, args.out, args.dpi)
    print(f'{args.out}: {", ".join(panels)}')


if __name__ == '__main__':
    main()
