"""Says what the environment lacks, and the command that mends it."""

import argparse

from mmrank.environment import main


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(args: argparse.Namespace) -> int:
    """Prints it; 1 where something is lacking."""
    return main()
