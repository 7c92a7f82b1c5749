"""The model of a run, whatever wraps it."""

from __future__ import annotations

from typing import Any

from mmengine.model import is_model_wrapper
from mmengine.runner import Runner


def bare_model(runner: Runner) -> Any:
    """The model itself, without the wrapper of data parallel training."""
    model = runner.model
    return model.module if is_model_wrapper(model) else model
