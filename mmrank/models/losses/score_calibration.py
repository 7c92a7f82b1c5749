"""A monotone map that gives the scores of a ranking loss a scale."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ScoreCalibration(nn.Module):
    """Maps a score to the probability that the detection is correct.

    ``p = sigmoid(scale * logit(score) + bias)`` with ``scale > 0`` (Platt's
    scaling). The map is increasing, and one for all classes, so the order of
    detections, what NMS keeps, what ``max_per_img`` cuts and every average
    precision stay as they are, up to scores that float32 cannot tell apart.

    It is part of the loss's state, in two buffers, and is the identity until
    :meth:`fit` is called; training does not read it.

    Example:
        >>> calibration = ScoreCalibration()
        >>> calibration(torch.tensor([0.25]))
        tensor([0.2500])
        >>> scores = torch.tensor([.51, .52, .53, .54]).repeat(50)
        >>> matches = torch.tensor([0, 0, 1, 1]).bool().repeat(50)
        >>> matches[:4] = ~matches[:4]
        >>> p = calibration.fit(scores, matches)(scores[:4])
        >>> bool((p[1:] > p[:-1]).all() and p[0] < 0.1 and p[3] > 0.9)
        True
    """

    scale: Tensor
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('scale', torch.ones(()))
        self.register_buffer('bias', torch.zeros(()))

    @property
    def fitted(self) -> bool:
        """Whether the map is another than the identity."""
        return bool((self.scale != 1) | (self.bias != 0))

    def forward(self, scores: Tensor) -> Tensor:
        """Calibrated scores, of the same shape and dtype.

        Args:
            scores (Tensor): any shape, values in [0, 1]. 0 and 1 stay.
        """
        if not self.fitted:
            return scores
        # float64: the map must not make equal what was not
        log_odds = torch.logit(scores.double())
        return torch.sigmoid(
            self.scale * log_odds + self.bias).to(scores.dtype)

    def inverse(self, threshold: float) -> float:
        """The uncalibrated score that is mapped to ``threshold``."""
        if not 0 < threshold < 1:
            return threshold
        log_odds = math.log(threshold / (1 - threshold))
        log_odds = (log_odds - float(self.bias)) / float(self.scale)
        return 1 / (1 + math.exp(-max(min(log_odds, 700.), -700.)))

    def _load_from_state_dict(self, state_dict: dict, prefix: str,
                              *args: Any) -> None:
        # a checkpoint of another loss has no calibration: the identity
        names = [prefix + name for name in ('scale', 'bias')]
        if not any(name in state_dict for name in names):
            self.reset()
            return
        super()._load_from_state_dict(state_dict, prefix, *args)

    def reset(self) -> None:
        """Become the identity."""
        self.scale.fill_(1)
        self.bias.fill_(0)

    def fit(self, scores: Tensor, matches: Tensor) -> ScoreCalibration:
        """Fit the map by maximum likelihood.

        Platt's smoothed targets keep the fit finite on separable data; the
        scale is fitted through a softplus, so it stays positive.

        Args:
            scores (Tensor): shape (N,), uncalibrated scores of detections.
            matches (Tensor): shape (N,), bool: which of them are correct.

        Returns:
            ScoreCalibration: itself.

        Raises:
            ValueError: if there are no correct or no wrong detections, a
                score is NaN, all scores are equal, or higher scores are not
                more often correct: there is nothing to learn from then.
        """
        positive = int(matches.sum())
        negative = matches.numel() - positive
        if positive == 0 or negative == 0:
            raise ValueError(
                f'a calibration needs correct and wrong detections, but got '
                f'{positive} correct and {negative} wrong ones')
        if scores.isnan().any():
            raise ValueError('a calibration needs scores, but some are NaN')
        log_odds = torch.logit(scores.detach().double().cpu(), eps=1e-12)
        high, low = (positive + 1) / (positive + 2), 1 / (negative + 2)
        target = torch.where(matches.cpu(), high, low).double()
        center, spread = log_odds.mean(), log_odds.std()
        if spread < 1e-9:
            raise ValueError(f'a calibration needs different scores, but all '
                             f'{scores.numel()} are {float(scores[0]):.4g}')
        inputs = (log_odds - center) / spread
        parameters = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [parameters], max_iter=200, line_search_fn='strong_wolfe')

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(
                F.softplus(parameters[0]) * inputs + parameters[1], target)
            loss.backward()
            return loss

        with torch.enable_grad():
            optimizer.step(closure)
        strength = F.softplus(parameters[0].detach())
        # a map as flat as this would make equal what was not
        if strength < 1e-4:
            raise ValueError(
                'a calibration needs higher scores to be correct more often, '
                'but here they are not')
        scale = strength / spread
        self.scale.fill_(float(scale))
        self.bias.fill_(float(parameters[1].detach() - scale * center))
        return self
