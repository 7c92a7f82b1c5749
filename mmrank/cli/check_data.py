"""Says what the data of a config hold, and what is wrong with them."""

from __future__ import annotations

import argparse
import os.path as osp
from pathlib import Path

from mmengine.config import Config, DictAction

from mmrank.engine.check_data import SetReport, check_data
from mmrank.shipped import config_path
from mmrank.visualization.sample_sheet import draw_sheet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        'config', help='a config file, or the name of a shipped config')
    parser.add_argument(
        '--sheet', metavar='FILE.png', help='where samples with their labels '
        'are drawn (default: ./check_data_<name of the config>.png)')
    parser.add_argument(
        '--samples', type=int, default=12,
        help='images of each data set on the sheet; 0 draws none')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
        help='changes to the config')


def run(args: argparse.Namespace) -> int:
    """Prints a table of each data set and its faults, draws the sheet.

    Returns:
        int: 0 without a fault, otherwise 1.
    """
    path = args.config if osp.isfile(args.config) else config_path(
        args.config)
    cfg = Config.fromfile(path)
    if args.cfg_options:
        cfg.merge_from_dict(args.cfg_options)
    reports = check_data(cfg, samples=args.samples)
    if not reports:
        raise ValueError(f'the config {path} has no data set')
    sheet = args.sheet or f'check_data_{Path(path).stem}.png'
    samples = [sample for report in reports for sample in report.samples]
    if samples:
        _add_unreadable(reports, draw_sheet(samples, sheet))
    print('\n\n'.join(map(str, reports)))
    faults = sum(len(report.faults) for report in reports)
    print(f'\n{faults} faults' + (f'; samples are drawn in {sheet}'
                                  if samples else ''))
    return int(faults > 0)


def _add_unreadable(reports: list[SetReport], faults: list[str]) -> None:
    for report in reports:
        images = [str(sample.image) for sample in report.samples]
        report.faults += [fault for fault in faults
                          if any(image in fault for image in images)]
