"""What the scripts on PhotoPatches share: their options and a step."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch


def parser(description: str | None, out: str) -> argparse.ArgumentParser:
    """The options of all of them."""
    found = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument('data', type=Path, help='written where missing')
    found.add_argument('--out', type=Path, default=Path(out),
                       help='the files to write, without suffix')
    found.add_argument('--steps', type=int, default=120)
    found.add_argument('--batch', type=int, default=64)
    found.add_argument('--width', type=int, default=8,
                       help="L2-Net's first layer; the paper's is 32")
    return found


def sgd(model: torch.nn.Module, batch: int) -> torch.optim.SGD:
    """The paper's optimiser: its rate is for batches of 1024."""
    return torch.optim.SGD(model.parameters(), 10 * batch / 1024, momentum=.5,
                           weight_decay=1e-4)


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer,
               dataset: torch.utils.data.Dataset,
               batch: Iterable[int]) -> None:
    """One step on the classes of these indices."""
    items = [dataset[int(index)] for index in batch]
    data = model.data_preprocessor(
        dict(inputs=[item['inputs'] for item in items],
             data_samples=[item['data_samples'] for item in items]),
        training=True)
    optimizer.zero_grad()
    model(**data, mode='loss')['loss'].backward()
    optimizer.step()
