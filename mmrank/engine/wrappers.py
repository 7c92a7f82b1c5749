"""Model and optimiser wrappers for machines without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.model import MMDistributedDataParallel
from mmengine.optim import OptimWrapper
from torch import nn

from ..registry import MODEL_WRAPPERS, OPTIM_WRAPPERS


@MODEL_WRAPPERS.register_module()
class CPUDistributedDataParallel(MMDistributedDataParallel):
    """MMEngine's data parallel wrapper, for a model on the CPU.

    The runner always hands ``device_ids`` over, which PyTorch refuses for a
    CPU module; they are dropped here. A model on a GPU keeps them, so one
    config serves both.

    Args:
        module: The model.
        device_ids: Dropped when every parameter is on the CPU.
        broadcast_buffers: As MMEngine's own default, False.
        kwargs: Further arguments of
            :class:`mmengine.model.MMDistributedDataParallel`.
    """

    def __init__(self, module: nn.Module, device_ids: Any = None,
                 broadcast_buffers: bool = False, **kwargs: Any) -> None:
        devices = {parameter.device.type for parameter in module.parameters()}
        super().__init__(
            module=module,
            device_ids=None if devices == {'cpu'} else device_ids,
            broadcast_buffers=broadcast_buffers,
            **kwargs)


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """Mixed precision in bfloat16, which needs no loss scaling.

    MMEngine's ``AmpOptimWrapper`` refuses machines without an accelerator.
    Autocast to bfloat16 runs on a CPU too; ``--amp`` chooses this wrapper
    there.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Autocasts the forward pass to bfloat16."""
        device = next(model.parameters()).device.type
        with super().optim_context(model), torch.autocast(
                device_type=device, dtype=torch.bfloat16):
            yield
