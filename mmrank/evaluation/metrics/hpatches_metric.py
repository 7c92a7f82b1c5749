"""The three HPatches tasks on descriptors of its strips."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from torch import Tensor

from mmrank.evaluation.shared_errors import share_errors
from mmrank.functional import average_precision
from mmrank.registry import METRICS

STRENGTHS = dict(e='easy', h='hard', t='tough')
KINDS = dict(v='viewpoint', i='illumination')
TASKS = ('verification', 'matching', 'retrieval')
CONVENTIONS = ('trapezoid', 'finite')
POOL_SIZES = (100, 500, 1000, 5000, 10000, 15000, 20000)


def ranked_average_precision(distances: np.ndarray,
                             gains: np.ndarray,
                             *,
                             positives: int | None = None,
                             convention: str = 'trapezoid') -> float:
    """The average precision of items in order of distance.

    Items of equal distance share their gains: the curve is what random order
    among them gives in the mean, so the order of input never matters.

    Args:
        distances (ndarray): shape (N,), smaller ranks higher.
        gains (ndarray): shape (N,), 1 for a relevant item, 0 otherwise, or a
            share between.
        positives (int, optional): the number of relevant items, at least the
            sum of gains; those not in the list are never found. None: the
            sum.
        convention (str): 'trapezoid' is the area under the precision-recall
            curve from (0, 1) on, the official Python toolkit's; 'finite' is
            the mean precision at the relevant items. For relevance 1, 0, 1, 0
            they are 0.7917 and 0.8333.

    Returns:
        float: in [0, 1]; 0 without relevant items.

    Example:
        >>> import numpy as np
        >>> order, gains = np.arange(4), np.array([1, 0, 1, 0])
        >>> round(ranked_average_precision(order, gains), 6)
        0.791667
        >>> round(ranked_average_precision(order, gains,
        ...                                convention='finite'), 6)
        0.833333
    """
    total = float(np.sum(gains)) if positives is None else float(positives)
    if total == 0:
        return 0.
    # with ties, the finite sum takes the precision behind all of them
    return float(average_precision(
        -torch.from_numpy(np.ascontiguousarray(distances, np.float64)),
        torch.from_numpy(np.ascontiguousarray(gains, np.float64)),
        convention='threshold' if convention == 'finite' else convention,
        ties='shared', positives=total))


@METRICS.register_module()
class HPatchesMetric(BaseMetric):
    """Patch verification, image matching, patch retrieval; in per cent.

    Protocols, as in the benchmark's official Python toolkit (Euclidean
    distance, AP as the trapezoid area):

    - verification: all negative pairs of a file and the first fifth of the
      positives' file, as it takes them; ``verification/{inter,intra}/{easy,
      hard,tough}`` and the mean of the six.
    - matching: every reference patch is matched to its nearest among the
      patches of another image of the sequence; AP over the reference patches
      in order of that distance, recall counted over all of them; mean over
      images, then over sequences. ``matching/{viewpoint,illumination}/...``
      and the mean of the two kinds.
    - retrieval: a reference patch against its 5 matches of one strength and
      the reference distractors of other sequences, pools of several sizes
      (the matches included); mean over queries and over ``pool_sizes``.

    Where the toolkit depends on the order of ties (constant descriptors
    score 1 in its retrieval and nearly 0 in its verification), ties are here
    broken at random in the mean: such descriptors score near chance.

    Args:
        tasks (tuple[str]): of 'verification', 'matching', 'retrieval'.
        split (str, optional), tasks_dir (str, optional): default to the data
            set's.
        convention (str): 'trapezoid' or 'finite', see
            :func:`ranked_average_precision`.
        pool_sizes (tuple[int]): of retrieval.
        collect_device (str), prefix (str, optional): MMEngine's.

    Raises:
        ValueError: for an unknown task or convention; in ``evaluate``, on
            every process, for missing strips or a task file that names
            unknown patches or lists nothing, or descriptors that are not
            finite.
        FileNotFoundError: on every process, for a missing task file.
    """

    default_prefix = 'hpatches'
    evaluate = share_errors(BaseMetric.evaluate)

    def __init__(self,
                 tasks: Sequence[str] = TASKS,
                 split: str | None = None,
                 tasks_dir: str | None = None,
                 convention: str = 'trapezoid',
                 pool_sizes: Sequence[int] = POOL_SIZES,
                 collect_device: str = 'cpu',
                 prefix: str | None = None) -> None:
        super().__init__(collect_device, prefix)
        if not set(tasks) <= set(TASKS):
            raise ValueError(f'tasks must be of {TASKS}, but got {tasks!r}')
        if convention not in CONVENTIONS:
            raise ValueError(f'convention must be one of {CONVENTIONS}, but '
                             f'got {convention!r}')
        self.tasks = tuple(tasks)
        self.split = split
        self.tasks_dir = tasks_dir
        self.convention = convention
        self.pool_sizes = tuple(pool_sizes)

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Keep the descriptors of each strip of the batch."""
        self.results += [
            (s['sequence'], s['strip'], s['descriptors'].cpu().numpy())
            for s in data_samples
        ]

    def compute_metrics(self, results: list) -> dict[str, float]:
        """All tasks over all strips."""
        meta = self.dataset_meta or {}
        split = self.split or meta.get('split')
        folder = self.tasks_dir or meta.get('tasks_dir')
        table = _Descriptors(results)
        scores: dict[str, float] = {}
        for task in self.tasks:
            scores |= getattr(self, '_' + task)(table, split, folder)
        return {key: 100 * float(value) for key, value in scores.items()}

    def _area(self, distances: np.ndarray, gains: np.ndarray,
              positives: int | None = None) -> float:
        return ranked_average_precision(
            distances, gains, positives=positives, convention=self.convention)

    def _verification(self, table: _Descriptors, split: str,
                      folder: str) -> dict[str, float]:
        def distances(kind: str) -> dict[str, np.ndarray]:
            path = Path(folder) / f'verif_{kind}_split-{split}.csv'
            return table.pair_distances(path)

        right = distances('pos')
        scores = {}
        for kind in ('inter', 'intra'):
            wrong = distances(f'neg_{kind}')
            for key, strength in STRENGTHS.items():
                few = right[key][:int(len(right[key]) * .2)]
                gains = np.repeat([1., 0.], [len(few), len(wrong[key])])
                scores[f'verification/{kind}/{strength}'] = self._area(
                    np.concatenate([few, wrong[key]]), gains)
        mean = float(np.mean(list(scores.values())))
        return {'verification': mean, **scores}

    def _matching(self, table: _Descriptors, split: str,
                  folder: str) -> dict[str, float]:
        areas: dict[tuple[str, str], list] = {}
        for sequence in table.sequences:
            reference = table.strip(sequence, 'ref')
            for key in STRENGTHS:
                images = [
                    self._match(reference, table.strip(sequence, f'{key}{i}'))
                    for i in range(1, 6)
                ]
                areas.setdefault((sequence[0], key), []).append(
                    np.mean(images))
        scores, means = {}, []
        for kind in (k for k in KINDS if any(k == a for a, _ in areas)):
            values = [np.mean(areas[kind, key]) for key in STRENGTHS]
            for value, strength in zip(values, STRENGTHS.values()):
                scores[f'matching/{KINDS[kind]}/{strength}'] = value
            means.append(np.mean(values))
        return {'matching': np.mean(means), **scores}

    def _match(self, reference: Tensor, other: Tensor) -> float:
        if reference.shape != other.shape:
            raise ValueError('strips of one sequence have '
                             f'{len(reference)} and {len(other)} patches')
        distances = _distances(reference, other)
        nearest = distances.min(1).values
        tied = (distances == nearest[:, None]).sum(1)
        right = (distances.diagonal() == nearest).double() / tied
        return self._area(nearest.numpy(), right.numpy(), len(reference))

    def _retrieval(self, table: _Descriptors, split: str,
                   folder: str) -> dict[str, float]:
        def rows(kind: str) -> list[list[str]]:
            path = Path(folder) / f'retr_{kind}_split-{split}.csv'
            return list(_read_csv(path, 2))

        queries, distractors = rows('queries'), rows('distractors')
        if not queries:
            raise ValueError(f'{folder}: retr_queries_split-{split}.csv '
                             'lists no query')
        pool = table.rows([(s, 'ref', int(i)) for s, i in distractors])
        owner = np.array([s for s, _ in distractors])
        sums = dict.fromkeys(STRENGTHS, 0.)
        for sequence in sorted({s for s, _ in queries}):
            indices = [int(i) for s, i in queries if s == sequence]
            mine = table.rows([(sequence, 'ref', i) for i in indices])
            rest = _distances(mine, pool[torch.from_numpy(owner != sequence)])
            for key in STRENGTHS:
                right = torch.stack([
                    _row_distances(mine, table.rows(
                        [(sequence, f'{key}{image}', i) for i in indices]))
                    for image in range(1, 6)], 1)
                sums[key] += self._retrieve(right, rest)
        scores = {f'retrieval/{strength}': sums[key] / len(queries)
                  for key, strength in STRENGTHS.items()}
        return {'retrieval': float(np.mean(list(scores.values()))), **scores}

    def _retrieve(self, right: Tensor, rest: Tensor) -> float:
        """The sum over queries of the mean area over pools."""
        most = right.shape[1] + rest.shape[1]
        sizes = [min(size, most) for size in self.pool_sizes]
        areas = {size: self._pool_areas(right, rest[:, :size - right.shape[1]])
                 for size in set(sizes)}
        return float(sum(areas[size].sum() for size in sizes) / len(sizes))

    def _pool_areas(self, right: Tensor, rest: Tensor) -> Tensor:
        """The area of each query, from counts: no sorting of the pool."""
        right = right.sort(1).values
        closer = torch.stack([(rest < d[:, None]).sum(1) for d in right.T], 1)
        upto = torch.stack([(rest <= d[:, None]).sum(1) for d in right.T], 1)
        order = torch.arange(1, right.shape[1] + 1)
        rank = (closer + order).double()
        at = order / rank
        if self.convention == 'trapezoid':
            before = torch.where(rank > 1, (order - 1) / (rank - 1), 1.)
            at = (at + before) / 2
        areas = at.mean(1)
        tied = (upto > closer).any(1) | (right.diff(dim=1) == 0).any(1)
        for row in tied.nonzero().flatten().tolist():
            gains = np.repeat([1., 0.], [right.shape[1], rest.shape[1]])
            distances = torch.cat([right[row], rest[row]]).numpy()
            areas[row] = self._area(distances, gains)
        return areas


class _Descriptors:
    """All descriptors as one matrix, found by sequence and strip."""

    def __init__(self, results: list) -> None:
        if not results:
            raise ValueError('HPatchesMetric saw no strips')
        found = {(sequence, strip): rows for sequence, strip, rows in results}
        self.sequences = sorted({sequence for sequence, _ in found})
        strips = ['ref', *(f'{k}{i}' for k in STRENGTHS for i in range(1, 6))]
        missing = [(sequence, strip) for sequence in self.sequences
                   for strip in strips if (sequence, strip) not in found]
        if missing:
            raise ValueError(f'no descriptors of strips {missing[:3]} '
                             f'({len(missing)} in all)')
        self.places, start = {}, 0
        for key, rows in found.items():
            self.places[key] = (start, len(rows))
            start += len(rows)
        self.matrix = torch.from_numpy(np.concatenate(list(found.values())))
        broken = [key for key, rows in found.items()
                  if not np.isfinite(rows).all()]
        if broken:
            raise ValueError(
                f'descriptors of strips {broken[:3]} ({len(broken)} in all) '
                'are not finite; look for a diverged training')

    def strip(self, sequence: str, strip: str) -> Tensor:
        start, length = self.places[sequence, strip]
        return self.matrix[start:start + length]

    def rows(self, keys: list[tuple[str, str, int]]) -> Tensor:
        return self.matrix[torch.tensor([self._row(*key) for key in keys],
                                        dtype=torch.long)]

    def _row(self, sequence: str, strip: str, index: int) -> int:
        start, length = self.places.get((sequence, strip), (0, 0))
        if not 0 <= index < length:
            raise ValueError(
                f'a task file names patch {index} of {sequence}/{strip}, but '
                f'the split holds {length} patches of it; do split and '
                'tasks_dir fit the data set?')
        return start + index

    def pair_distances(self, path: Path) -> dict[str, np.ndarray]:
        """Distances of a file's pairs, for each strength."""
        pairs = list(_read_csv(path, 6))
        if not pairs:
            raise ValueError(f'{path} lists no pair')
        distances = {}
        for key in STRENGTHS:
            ends = [
                self.rows([(row[at], 'ref' if row[at + 1] == '0' else
                            key + row[at + 1], int(row[at + 2]))
                           for row in pairs]) for at in (0, 3)
            ]
            distances[key] = _row_distances(*ends).numpy()
        return distances


def _read_csv(path: Path, columns: int) -> Iterator[list[str]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; set tasks_dir to the "
                                "benchmark's task definitions")
    with open(path, newline='') as file:
        for number, row in enumerate(csv.reader(file)):
            if number == 0 or not row:
                continue
            if len(row) != columns:
                raise ValueError(f'{path}, line {number + 1}: expected '
                                 f'{columns} columns, but got {row}')
            yield row


def _row_distances(x: Tensor, y: Tensor) -> Tensor:
    # the same precision as the table below, so that equal pairs tie
    return _rooted((x.double() - y.double()).square().sum(1))


def _distances(x: Tensor, y: Tensor) -> Tensor:
    x, y = x.double(), y.double()
    squares = (x.square().sum(1)[:, None] + y.square().sum(1)[None]
               - 2 * x @ y.T)
    return _rooted(squares)


def _rooted(squares: Tensor) -> Tensor:
    """Distances in float32: rounding errors of equal pairs vanish."""
    return torch.where(squares < 1e-12, 0., squares).sqrt().float()
