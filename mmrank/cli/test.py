"""Evaluates a checkpoint."""

from __future__ import annotations

import argparse

from mmrank.engine import launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of mmdet's tools/test.py."""
    launch.add_test_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluates."""
    launch.run_evaluation(args)
    return 0
