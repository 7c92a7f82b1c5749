"""Trains a model by a config."""

from __future__ import annotations

import argparse

from mmrank.engine import launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of mmdet's tools/train.py."""
    launch.add_train_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Trains."""
    launch.run_training(args)
    return 0
