"""Print a whole config: what it inherits and --cfg-options are resolved."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from mmengine.config import Config, DictAction

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrank import config_path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        'config', help='a config file, or the name of a shipped config')
    parser.add_argument('--save-path', help='write it to this file instead')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, default={},
        metavar='KEY=VALUE', help='changes to the config')
    args = parser.parse_args(arguments)
    file = args.config if os.path.isfile(args.config) else config_path(
        args.config)
    config = Config.fromfile(file)
    config.merge_from_dict(args.cfg_options)
    if args.save_path:
        config.dump(args.save_path)
        print(args.save_path)
    else:
        print(config.pretty_text)


if __name__ == '__main__':
    main()
