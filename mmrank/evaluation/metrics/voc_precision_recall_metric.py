"""MMDetection's VOC metric, with the curves and the classes it leaves out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmdet.evaluation.functional import eval_map
from mmdet.evaluation.metrics import VOCMetric
from mmengine.logging import MMLogger

from mmrank.evaluation.shared_errors import share_errors
from mmrank.registry import METRICS

# ground truth of an image, detections (n, 5) of each class on that image
ImageResult = tuple[dict[str, np.ndarray], list[np.ndarray]]


@METRICS.register_module()
class VOCPrecisionRecallMetric(VOCMetric):
    """AP of Pascal VOC, overall and of each class.

    It differs from :class:`mmdet.evaluation.VOCMetric` in three points. The
    classes are those of the data set: for a folder called ``VOC2007`` the
    base class prints the names of VOC's twenty classes whatever the data
    set's are. The AP of each class is returned, so that it is logged and
    stored. ``eval_mode`` is the area under the curve unless told otherwise,
    for VOC 2007 too, and no warning is printed for that.

    Args:
        iou_thrs (float | list[float]): Overlaps at which a box counts as
            found. Defaults to 0.5.
        eval_mode (str): ``'area'`` under the precision-recall curve, or
            ``'11points'``, the rule of the VOC 2007 challenge.
        **kwargs: Of :class:`mmdet.evaluation.VOCMetric`; ``metric`` must be
            ``'mAP'``.

    Raises:
        ValueError: ``metric`` is not ``'mAP'``; in ``evaluate``, on every
            process, there are no images.
    """

    evaluate = share_errors(VOCMetric.evaluate)

    def __init__(self,
                 iou_thrs: float | list[float] = 0.5,
                 eval_mode: str = 'area',
                 **kwargs: Any) -> None:
        super().__init__(iou_thrs=iou_thrs, eval_mode=eval_mode, **kwargs)
        if self.metric != 'mAP':
            raise ValueError(
                "VOCPrecisionRecallMetric measures metric='mAP' only, got "
                f'{self.metric!r}; mmdet.VOCMetric measures recall')

    def curves(self, results: Sequence[ImageResult], iou_thr: float,
               logger: MMLogger | str | None = 'silent'
               ) -> tuple[float, list[dict[str, Any]]]:
        """The mean AP and a curve for each class.

        Args:
            results (Sequence[tuple]): Of each image the ground truth
                (``bboxes``, ``labels``, ``bboxes_ignore``,
                ``labels_ignore``) and the detections of each class (n, 5).
            iou_thr (float): The overlap at which a box counts as found.
            logger (MMLogger | str, optional): Where the table is printed.

        Returns:
            tuple: The mean AP over the classes that have objects, and for
            each class ``num_gts``, ``num_dets``, ``recall`` and
            ``precision`` after each detection in order of score, ``ap``.
        """
        if not results:
            raise ValueError('VOCPrecisionRecallMetric saw no images')
        ground_truth, detections = zip(*results)
        mean_ap, classes = eval_map(
            detections,
            ground_truth,
            scale_ranges=self.scale_ranges,
            iou_thr=iou_thr,
            dataset=self.dataset_meta['classes'],
            logger=logger,
            eval_mode=self.eval_mode,
            nproc=1,
            # width = x2 - x1 + 1, as the challenge's own program counts
            use_legacy_coordinate=True)
        return mean_ap, classes

    def compute_metrics(self, results: list[ImageResult]) -> dict[str, float]:
        """The mean AP as ``mAP``; for each overlap ``AP50`` and so on, and
        the same for each class, such as ``AP50_car``."""
        logger = MMLogger.get_current_instance()
        means, values = [], {}
        for iou_thr in self.iou_thrs:
            mean_ap, classes = self.curves(results, iou_thr, logger)
            means.append(float(mean_ap))
            name = f'AP{round(iou_thr * 100):02d}'
            values[name] = round(float(mean_ap), 4)
            for class_name, curve in zip(
                    self.dataset_meta['classes'], classes):
                values[f'{name}_{class_name}'] = round(
                    float(np.mean(curve['ap'])), 4)
        return {'mAP': sum(means) / len(means), **values}
