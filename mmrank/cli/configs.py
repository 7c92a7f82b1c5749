"""Lists the shipped configs."""

import argparse

from mmrank.shipped import config_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(args: argparse.Namespace) -> int:
    """Prints them."""
    print('\n'.join(config_names()))
    return 0
