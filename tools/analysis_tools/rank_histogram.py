"""Draw at which ranks the relevant items stand: a histogram of ranks.

Reads an archive of embeddings (``python -m mmrank embed``, or a gallery)
with labels. Every item is a query against all others; drawn are the ranks
of its relevant items among them. A loss that ranks well moves the mass to
the left: the best possible ranks are drawn as an outline.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.files import read_archive


def relevant_ranks(embeddings: torch.Tensor, labels: torch.Tensor,
                   block_size: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of all relevant items by cosine similarity, and the best ones.

    Args:
        embeddings (Tensor): (N, D).
        labels (Tensor): (N,).
        block_size (int): queries compared at once.

    Returns:
        tuple: two int64 arrays of equal length, a value for each (query,
        relevant item) pair: the rank, from 1, with ties counted as worse,
        and the rank that it would have if all relevant items came first.
    """
    unit = torch.nn.functional.normalize(embeddings.float())
    found, best = [], []
    for rows in torch.arange(len(unit)).split(block_size):
        similarity = unit[rows] @ unit.T
        similarity[torch.arange(len(rows)), rows] = -torch.inf
        relevant = labels[rows, None] == labels[None]
        relevant[torch.arange(len(rows)), rows] = False
        order = similarity.masked_fill(
            relevant, -torch.inf).sort(descending=True).values
        for row in range(len(rows)):
            scores = similarity[row, relevant[row]].sort(
                descending=True).values
            # negatives at or above each: a search in the falling scores
            above = torch.searchsorted(-order[row], -scores, right=True)
            places = torch.arange(1, len(scores) + 1)
            found.append(above + places)
            best.append(places)
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return torch.cat(found).numpy(), torch.cat(best).numpy()


def draw(ranks: dict[str, np.ndarray], best: np.ndarray, out: Path) -> None:
    """All archives in one picture, over logarithmic bins."""
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    highest = max(values.max() for values in ranks.values())
    edges = np.unique(np.geomspace(1, highest + 1, 30).round())
    edges = edges if len(edges) > 1 else np.array([1., 2.])
    figure, axes = plt.subplots(figsize=(5, 3.2))
    for label, values in ranks.items():
        axes.hist(values, edges, alpha=.5, label=label,
                  weights=np.full(len(values), 1 / len(values)))
    axes.hist(best, edges, histtype='step', color='black', linestyle=':',
              label='best possible',
              weights=np.full(len(best), 1 / len(best)))
    axes.set_xscale('log')
    axes.set_xlabel('rank of relevant items')
    axes.set_ylabel('share')
    axes.legend(fontsize=8)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)
    plt.close(figure)


def read_embeddings(file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and labels of an archive.

    Raises:
        ValueError: if the archive has no labels.
    """
    arrays = read_archive(file, 'embedding')
    if not {'embeddings', 'labels'} <= set(arrays):
        raise ValueError(f'{file} holds {sorted(arrays)}, but ranks need '
                         'embeddings and labels: embed a folder whose '
                         'subfolders are the classes')
    return (torch.from_numpy(arrays['embeddings']),
            torch.from_numpy(arrays['labels']))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('archives', nargs='+', type=Path,
                        help='.npz files with embeddings and labels')
    parser.add_argument('--out', type=Path, required=True,
                        help='the picture to write (.png)')
    args = parser.parse_args(arguments)
    ranks = {}
    for file in args.archives:
        ranks[file.stem], best = relevant_ranks(*read_embeddings(file))
        if not len(best):
            raise ValueError(f'{file} holds no two items of one class')
        print(f'{file}: median rank {np.median(ranks[file.stem]):g}, '
              f'best possible {np.median(best):g}')
    draw(ranks, best, args.out)
    print(args.out)


if __name__ == '__main__':
    main()
