"""AdaSample: which two patches of each class make a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmrank.functional import (
    adasample_probabilities,
    adasample_weights,
    draw,
    squared_distances,
)
from mmrank.registry import MODELS
from mmrank.state import Collectives, current

MODES = ('online', 'bank')


class Selection(NamedTuple):
    """What :class:`AdaSample` chose for the classes of one process."""
    anchor: Tensor
    """int64, shape (B,): the slot of each class's anchor."""
    positive: Tensor
    """int64, shape (B,): the slot of its positive, another one."""
    weights: Tensor | None
    """float32, shape (B,), mean 1 over the global batch; None: all 1."""
    symmetry: Tensor
    """int64, shape (B,), in 0..7: a random symmetry of the square."""
    exponent: Tensor
    """float32 scalar: lambda / L_avg, or 0; see ``hard_below``."""


@MODELS.register_module()
class AdaSample(nn.Module):
    """Draws an anchor and a hard positive for each class of a batch.

    The anchor is uniform among the class's patches; the positive follows
    p_i ~ d(x_i, x_anchor)^(lambda / L_avg), with weights w_i ~ 1 / d of mean 1
    over the global batch (Eq. 13). ``lambda_val=0`` is the HardNet baseline,
    ``lambda_val=inf`` is Hardpos; both are unweighted, as these methods are,
    where Eq. 13 would keep 1 / d.

    Args:
        lambda_val (float): the paper's lambda, in [0, inf].
        distance (str): the loss's: 'angular' or 'euclidean'.
        mode (str): 'online' (Algorithm 1) describes all patches of the batch
            with the network as it stands, in evaluation mode: batch norm's
            running statistics are read, never updated. 'bank' looks them up
            among the descriptors that ``DescriptorBankHook`` refreshes at
            the start of an epoch, so a step costs what HardNet's does.
        reweight (bool, optional): weigh by 1 / d. None: only for
            0 < lambda < inf.
        momentum (float): share of the old value in the moving average L_avg
            of the unweighted mean loss. The paper names no value.
        min_distance (float): bound of the weights, see
            :func:`mmrank.functional.adasample_weights`.
        seed (int): with the number of steps done it fixes every draw. A
            resumed run continues as the uninterrupted one, and several
            processes draw what one process would for the joined batch.
        chunk_size (int): patches a forward pass without gradient.
        hard_below (float, optional): draw by distance only while L_avg is
            below it, and uniformly otherwise (the exponent is 0; weights
            stay). The loss's margin is its place: from there on the nearest
            non-pair is nearer than the pair, and hard positives drive all
            descriptors onto one line. None: always by distance, as in Eq. 13.

    State (buffers, equal on all processes): ``L_avg`` (negative before the
    first step, when the loss's usual start 1 stands in), ``step``. The bank
    is no buffer: it follows from the weights, and ``DescriptorBankHook``
    keeps it in the checkpoint where it outlives an epoch.

    Raises:
        ValueError: for a value out of range, or a missing bank.
    """

    L_avg: Tensor
    step: Tensor

    def __init__(self,
                 lambda_val: float = 10.0,
                 distance: str = 'angular',
                 mode: str = 'online',
                 reweight: bool | None = None,
                 momentum: float = 0.9,
                 min_distance: float = 1e-2,
                 seed: int = 0,
                 chunk_size: int = 1024,
                 hard_below: float | None = None) -> None:
        super().__init__()
        if not float(lambda_val) >= 0:
            raise ValueError(f'lambda_val must be >= 0, but got '
                             f'{lambda_val!r}')
        if mode not in MODES:
            raise ValueError(f'mode must be one of {MODES}, but got {mode!r}')
        if hard_below is not None and not hard_below > 0:
            raise ValueError('hard_below must be > 0 or None, but got '
                             f'{hard_below!r}')
        if not 0 <= momentum < 1:
            raise ValueError(f'momentum must lie in [0, 1), but got '
                             f'{momentum!r}')
        self.lambda_val = float(lambda_val)
        self.distance = distance
        self.mode = mode
        limit = self.lambda_val in (0.0, float('inf'))
        self.reweight = (not limit) if reweight is None else reweight
        self.hard_below = hard_below
        self.momentum = momentum
        self.min_distance = min_distance
        self.seed = seed
        self.chunk_size = chunk_size
        self.bank: Tensor | None = None
        self.register_buffer('L_avg', torch.tensor(-1.0))
        self.register_buffer('step', torch.tensor(0))

    @property
    def needs_descriptors(self) -> bool:
        """Whether distances matter: not for uniform, unweighted draws."""
        return self.lambda_val > 0 or self.reweight

    def exponent(self) -> Tensor:
        """lambda / L_avg as it stands; inf where L_avg is 0, and 0 where it
        is not below ``hard_below``."""
        average = torch.where(self.L_avg < 0, torch.ones_like(self.L_avg),
                              self.L_avg)
        if self.lambda_val == 0:
            return torch.zeros_like(average)
        exponent = self.lambda_val / average
        if self.hard_below is None:
            return exponent
        return torch.where(average < self.hard_below, exponent, 0.0)

    def set_bank(self, descriptors: Tensor) -> None:
        """Take the descriptors of all classes, shape (C, k, D)."""
        self.bank = descriptors.detach()

    def descriptors(self, patches: Tensor, class_indices: Tensor,
                    describe: Callable[[Tensor], Tensor]) -> Tensor | None:
        """What the draw looks at: shape (n, k, D), without gradient."""
        if not self.needs_descriptors:
            return None
        if self.mode == 'online':
            flat = patches.detach().flatten(0, 1)
            with torch.no_grad():
                rows = [describe(part) for part in flat.split(self.chunk_size)]
            return torch.cat(rows).unflatten(0, patches.shape[:2])
        if self.bank is None:
            raise ValueError(
                "AdaSample(mode='bank') holds no descriptors yet; add "
                "custom_hooks=[dict(type='mmrank.DescriptorBankHook')]")
        if self.bank.device != self.L_avg.device:
            self.bank = self.bank.to(self.L_avg.device)
        return self.bank[class_indices.to(self.bank.device)]

    def forward(self, descriptors: Tensor | None, valid: Tensor) -> Selection:
        """Choose.

        Args:
            descriptors (Tensor, optional): shape (n, k, D), of unit length
                for 'angular'. None where ``needs_descriptors`` is false.
            valid (Tensor): bool, shape (n, k); False marks padding. At least
                two per class.

        Returns:
            Selection: slots, weights and symmetries; of length 0 for n = 0.
        """
        self._check(valid)
        comm = current()
        uniforms = self._uniforms(valid, comm)
        anchor = draw(valid.float(), uniforms[:, 0])
        others = valid.scatter(1, anchor[:, None], False)
        exponent = self.exponent()
        if descriptors is None:
            probabilities = others.float()
            distances = None
        else:
            own = descriptors.gather(
                1, anchor[:, None, None].expand(-1, 1, descriptors.shape[2]))
            distances = squared_distances(descriptors, own,
                                          self.distance).sqrt()
            probabilities = adasample_probabilities(
                distances, exponent, mask=others)
        positive = draw(probabilities, uniforms[:, 1])
        weights = None
        if self.reweight:
            assert distances is not None  # see needs_descriptors
            chosen = distances.gather(1, positive[:, None]).squeeze(1)
            weights = self._weights(chosen, comm)
        symmetry = (uniforms[:, 2] * 8).long()
        return Selection(anchor, positive, weights, symmetry, exponent)

    def update(self, loss: Tensor) -> None:
        """End a step: take the global batch's unweighted mean loss."""
        loss = loss.detach().to(self.L_avg)
        blended = self.momentum * self.L_avg + (1 - self.momentum) * loss
        self.L_avg.copy_(torch.where(self.L_avg < 0, loss, blended))
        self.step += 1

    def _check(self, valid: Tensor) -> None:
        counts = valid.sum(1)
        if valid.shape[0] and int(counts.min()) < 2:
            raise ValueError('AdaSample needs at least 2 patches a class, but '
                             f'a class of the batch has {int(counts.min())}')

    def _uniforms(self, valid: Tensor, comm: Collectives) -> Tensor:
        """Three numbers a class, by its position in the global batch."""
        size = torch.tensor([valid.shape[0]], device=valid.device)
        sizes = [int(piece) for piece in comm.gather(size)]
        generator = torch.Generator()
        # the odd factor keeps neighbouring seeds and steps apart
        generator.manual_seed((self.seed * 0x9E3779B1 + int(self.step))
                              % 2**63)
        numbers = torch.rand((sum(sizes), 3), generator=generator,
                             dtype=torch.float64)
        start = sum(sizes[:comm.index])
        return numbers[start:start + valid.shape[0]].to(valid.device)

    def _weights(self, distances: Tensor, comm: Collectives) -> Tensor:
        weights = adasample_weights(
            distances, min_distance=self.min_distance, normalize=False)
        total = comm.sum(
            torch.stack([weights.sum(), weights.new_tensor(len(weights))]))
        return weights * (total[1] / total[0].clamp_min(1e-12))

    def extra_repr(self) -> str:
        return (f'lambda_val={self.lambda_val}, mode={self.mode!r}, '
                f'distance={self.distance!r}, reweight={self.reweight}')
