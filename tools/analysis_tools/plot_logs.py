"""Draw what one or more runs logged: losses, AP, recall, learning rates.

Reads the ``scalars.json`` that MMEngine's local backend writes under
``<work_dir>/<time stamp>/vis_data/``. A work directory stands for its whole
run: a run that was stopped and resumed has a log for each start, and what a
later start logged replaces what the earlier ones had from that step on. Runs
of the same label are seeds of one: their mean is drawn, and a band of one
standard deviation.

    python tools/analysis_tools/plot_logs.py work_dirs/a0 work_dirs/a1 \\
        work_dirs/b --labels a a b --keys loss_cls --log --out curves.png
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

Curve = dict[int, float]


def find_logs(path: Path) -> list[Path]:
    """The logs that a path names, the earliest first.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if they are of several runs.
    """
    if path.is_file():
        return [path]
    found = sorted(path.glob('**/vis_data/scalars.json'))
    if not found:
        raise FileNotFoundError(
            f'{path} is no log and no folder with a vis_data/scalars.json: '
            'give the work directory of a run')
    runs = sorted({str(file.parents[2]) for file in found})
    if len(runs) > 1:
        raise ValueError(f'{path} holds several runs, give them one by one: '
                         f'{runs}')
    return found


def read_log(file: Path) -> dict[str, Curve]:
    """Each quantity of a log: name to step to value.

    A line that was cut while it was written is left out. Of a step that was
    logged twice, the later value counts.
    """
    curves: dict[str, Curve] = {}
    for line in file.read_text(encoding='utf-8').splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        step = record.pop('step', record.get('iter', 0))
        for name, value in record.items():
            if isinstance(value, (int, float)):
                # counted in epochs here, in iterations in training
                if name in ('time', 'data_time') and 'iter' not in record:
                    name = f'val/{name}'
                curves.setdefault(name, {})[step] = value
    return curves


def read_run(path: Path) -> dict[str, Curve]:
    """Each quantity over a whole run, however often it was resumed."""
    curves: dict[str, Curve] = {}
    for file in find_logs(path):
        for name, later in read_log(file).items():
            start = min(later)
            before = curves.get(name, {}).items()
            curves[name] = dict(sorted([
                *((step, value) for step, value in before if step < start),
                *later.items()]))
    return curves


def smoothed(values: list[float], width: int) -> np.ndarray:
    """Running mean over ``width`` values; at the ends over those there are."""
    kernel = np.ones(width)
    total = np.convolve(values, kernel, mode='full')
    count = np.convolve(np.ones(len(values)), kernel, mode='full')
    start = (width - 1) // 2
    return (total / count)[start:start + len(values)]


def chosen(runs: list[tuple[str, dict[str, Curve]]],
           keys: list[str]) -> list[str]:
    """The wanted names, all losses without a wish.

    Raises:
        ValueError: naming what the logs hold, for a name that none does.
    """
    held = sorted({name for _, curves in runs for name in curves})
    keys = keys or [name for name in held if 'loss' in name]
    unknown = [key for key in keys if key not in held]
    if unknown or not keys:
        raise ValueError(f'no log holds {unknown or "losses"}, but {held}; '
                         'choose with --keys')
    return keys


def of_label(runs: list[tuple[str, dict[str, Curve]]],
             key: str) -> dict[str, tuple[list[int], np.ndarray]]:
    """Label to the steps that all its seeds logged, and values (seed, step).

    Raises:
        ValueError: if seeds of a label have no step in common.
    """
    found = {}
    for label in dict.fromkeys(label for label, _ in runs):
        seeds = [curves[key] for each, curves in runs
                 if each == label and key in curves]
        if not seeds:
            continue
        steps = [step for step in seeds[0]
                 if all(step in seed for seed in seeds)]
        if not steps:
            raise ValueError(f'the {len(seeds)} runs labelled {label!r} have '
                             f'no step of {key!r} in common: give each a '
                             'label of its own')
        found[label] = steps, np.array([[seed[step] for step in steps]
                                        for seed in seeds])
    return found


def draw(panels: dict[str, dict[str, tuple[list[int], np.ndarray]]],
         out: Path, width: int, logarithmic: bool) -> None:
    """A panel a key, a line a label."""
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    figure, grid = plt.subplots(
        1, len(panels), figsize=(4 * len(panels), 3), squeeze=False)
    for axes, (key, labels) in zip(grid[0], panels.items()):
        for label, (steps, values) in labels.items():
            values = np.stack([smoothed(seed, width) for seed in values])
            mean = values.mean(0)
            line, = axes.plot(steps, mean, label=label,
                              marker='.' if len(steps) < 30 else None)
            if len(values) > 1:
                spread = values.std(0, ddof=1)
                axes.fill_between(steps, mean - spread, mean + spread,
                                  color=line.get_color(), alpha=.2)
        if logarithmic:
            axes.set_yscale('log')
        axes.set_xlabel('step')
        axes.set_title(key)
    grid[0][0].legend(fontsize=8)
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
                        help='names of the runs (default: their folders); '
                        'runs of the same name are seeds of one')
    parser.add_argument('--smooth', type=int, default=1,
                        help='running mean over so many logged values')
    parser.add_argument('--log', action='store_true',
                        help='a logarithmic axis of values')
    args = parser.parse_args(arguments)
    if args.labels and len(args.labels) != len(args.runs):
        parser.error('give one of --labels for each run')
    if args.smooth < 1:
        parser.error('--smooth must be >= 1')
    return args


def plot(args: argparse.Namespace) -> None:
    """Read, tell and draw."""
    names = args.labels or [str(path) for path in args.runs]
    runs = [(name, read_run(path)) for name, path in zip(names, args.runs)]
    panels = {}
    for key in chosen(runs, args.keys):
        for path, (_, curves) in zip(args.runs, runs):
            if key not in curves:
                print(f'{path} holds no {key!r}: left out there')
        panels[key] = of_label(runs, key)
        for label, (_, values) in panels[key].items():
            first, last = values.mean(0)[[0, -1]]
            seeds = f' of {len(values)} seeds' if len(values) > 1 else ''
            print(f'{label}: {key} {first:.4f} -> {last:.4f} '
                  f'({values.shape[1]} values{seeds})')
            if args.log and not (values > 0).all():
                raise ValueError(
                    f'{key!r} of {label} has values that are not above 0, '
                    'which a logarithmic axis cannot show: leave out --log, '
                    'or choose others with --keys')
    draw(panels, args.out, args.smooth, args.log)
    print(args.out)


def main(arguments: list[str] | None = None) -> None:
    try:
        plot(parse_args(arguments))
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()
