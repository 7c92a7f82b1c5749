"""Draw what one or more runs logged: losses, AP, recall, learning rates.

Reads the ``scalars.json`` that MMEngine's local backend writes under
``<work_dir>/<time stamp>/vis_data/``. A run may also be named by its work
directory, which means its newest log.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

Curve = tuple[list[int], list[float]]


def find_log(path: Path) -> Path:
    """The log that a path names: the file, or the newest one below it.

    Raises:
        FileNotFoundError: if there is none.
    """
    if path.is_file():
        return path
    found = sorted(path.glob('**/vis_data/scalars.json'))
    if not found:
        raise FileNotFoundError(
            f'{path} is no log and no folder with a vis_data/scalars.json: '
            'give the work directory of a run')
    return found[-1]


def read_curves(file: Path) -> dict[str, Curve]:
    """Each logged quantity over the steps: name to (steps, values).

    A line that was cut while it was written is left out.
    """
    curves: dict[str, Curve] = {}
    for line in file.read_text().splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        step = record.get('step', record.get('iter', 0))
        for name, value in record.items():
            if isinstance(value, (int, float)) and name != 'step':
                steps, values = curves.setdefault(name, ([], []))
                steps.append(step)
                values.append(value)
    return curves


def smoothed(values: list[float], width: int) -> np.ndarray:
    """Running mean over ``width`` values; at the ends over those there are."""
    kernel = np.ones(width)
    total = np.convolve(values, kernel, mode='full')
    count = np.convolve(np.ones(len(values)), kernel, mode='full')
    start = (width - 1) // 2
    return (total / count)[start:start + len(values)]


def chosen(curves: dict[str, Curve], keys: list[str], file: Path) -> list[str]:
    """The wanted names, all losses without a wish.

    Raises:
        ValueError: naming what the log holds, for a name that it does not.
    """
    keys = keys or sorted(name for name in curves if 'loss' in name)
    unknown = [key for key in keys if key not in curves]
    if unknown or not keys:
        raise ValueError(f'{file} holds no {unknown or "losses"}, but '
                         f'{sorted(curves)}; choose with --keys')
    return keys


def draw(runs: dict[str, dict[str, Curve]], keys: list[str], out: Path,
         width: int) -> None:
    """A panel a key, a line a run."""
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    figure, panels = plt.subplots(
        1, len(keys), figsize=(4 * len(keys), 3), squeeze=False)
    for axes, key in zip(panels[0], keys):
        for label, curves in runs.items():
            if key in curves:
                steps, values = curves[key]
                axes.plot(steps, smoothed(values, width), label=label,
                          marker='.' if len(steps) < 30 else None)
        axes.set_xlabel('step')
        axes.set_title(key)
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)
    plt.close(figure)


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('runs', nargs='+', type=Path,
                        help='work directories or scalars.json files')
    parser.add_argument('--out', type=Path, required=True,
                        help='the picture to write (.png)')
    parser.add_argument('--keys', nargs='*', default=[],
                        help='what to draw (default: every loss)')
    parser.add_argument('--labels', nargs='*', default=[],
                        help='names of the runs (default: their folders)')
    parser.add_argument('--smooth', type=int, default=1,
                        help='running mean over so many logged values')
    args = parser.parse_args(arguments)
    if args.labels and len(args.labels) != len(args.runs):
        parser.error('give one of --labels for each run')
    if args.smooth < 1:
        parser.error('--smooth must be >= 1')
    return args


def main(arguments: list[str] | None = None) -> None:
    args = parse_args(arguments)
    labels = args.labels or [str(path) for path in args.runs]
    runs = {}
    for label, path in zip(labels, args.runs):
        file = find_log(path)
        runs[label] = read_curves(file)
        keys = chosen(runs[label], args.keys, file)
        for key in keys:
            values = runs[label][key][1]
            print(f'{label}: {key} {values[0]:.4f} -> {values[-1]:.4f} '
                  f'({len(values)} values)')
    draw(runs, keys, args.out, args.smooth)
    print(args.out)


if __name__ == '__main__':
    main()
