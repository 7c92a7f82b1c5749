"""FPR95: how many wrong pairs pass where 95 % of the right ones do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mmengine.evaluator import BaseMetric

from mmrank.evaluation.shared_errors import share_errors
from mmrank.functional import fpr_at_recall
from mmrank.registry import METRICS


@METRICS.register_module()
class PatchVerificationMetric(BaseMetric):
    """False positive rate at a given recall over test pairs, in per cent.

    The distance is Euclidean; on unit descriptors the angle ranks pairs the
    same. A pair that ties with the threshold counts as accepted, so constant
    descriptors score 100. See :func:`mmrank.functional.fpr_at_recall`.

    Args:
        recall (float): in (0, 1].
        collect_device (str), prefix (str, optional): MMEngine's.

    Returns of ``evaluate``: ``FPR95`` (named by the recall).

    Raises:
        ValueError: on every process, if there are no pairs, or none that
            match or do not.
    """

    default_prefix = 'pairs'
    evaluate = share_errors(BaseMetric.evaluate)

    def __init__(self, recall: float = 0.95, collect_device: str = 'cpu',
                 prefix: str | None = None) -> None:
        super().__init__(collect_device, prefix)
        self.recall = recall

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Take the distance of each pair of the batch."""
        pairs = torch.stack([s['descriptors'] for s in data_samples]).double()
        distances = (pairs[:, 0] - pairs[:, 1]).norm(dim=1)
        self.results += [(distance, bool(sample['match'])) for distance, sample
                         in zip(distances.tolist(), data_samples)]

    def compute_metrics(self, results: list) -> dict[str, float]:
        """The rate over all pairs."""
        if not results:
            raise ValueError('PatchVerificationMetric saw no pairs')
        distances, matches = zip(*results)
        rate = fpr_at_recall(torch.tensor(distances), torch.tensor(matches),
                             self.recall)
        return {f'FPR{100 * self.recall:g}': 100 * float(rate)}
