"""Prints the path of a shipped config."""

import argparse

from mmrank.shipped import config_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its name."""
    parser.add_argument('name', help='as `configs` lists it')


def run(args: argparse.Namespace) -> int:
    """Prints it."""
    print(config_path(args.name))
    return 0
