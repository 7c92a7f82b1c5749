"""A comparison as a grid: every training of it is one line of a CSV file."""

from __future__ import annotations

import contextlib
import csv
import platform
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]


def read(path: Path, numbers: Iterable[str] = ()) -> list[dict]:
    """The finished cells, with floats in the columns ``numbers``."""
    if not path.exists():
        return []
    with open(path, newline='', encoding='utf-8') as file:
        rows: list[dict] = list(csv.DictReader(file))
    for row in rows:
        row.update({name: float(row[name]) for name in numbers})
    return rows


def append(path: Path, row: dict, columns: Iterable[str]) -> None:
    """Write one finished cell."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'a', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, columns, lineterminator='\n')
        if new:
            writer.writeheader()
        writer.writerow(row)


@contextlib.contextmanager
def turn(path: str | None) -> Iterator[None]:
    """Jobs that name one lock file take turns on a small machine."""
    if path is None:
        yield
        return
    import fcntl
    with open(path, 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def commit() -> str:
    """The commit that is checked out, 'unknown' in an installed package."""
    return subprocess.run(
        ['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, text=True,
        capture_output=True).stdout.strip() or 'unknown'


def processor() -> str:
    """The name of the processor."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path('/proc/cpuinfo').read_text().splitlines()
        return next(line.split(':')[1].strip() for line in lines
                    if line.startswith('model name'))
    return platform.processor() or platform.machine()


def circumstances(command: str) -> dict[str, str]:
    """Where a figure comes from."""
    threads = torch.get_num_threads()
    return dict(
        command=command,
        commit=commit(),
        hardware=f'{processor()}, {threads} thread{"s" * (threads > 1)}',
        torch=torch.__version__,
        date=time.strftime('%Y-%m-%d'))


def made_by(row: dict) -> str:
    """The circumstances as a sentence under a table."""
    return (f'Made by `{row["command"]}`, commit {row["commit"]}, '
            f'{row["date"]}, {row["hardware"]}, torch {row["torch"]}.')


def by_method(rows: list[dict], methods: Iterable[str],
              figure: str) -> dict[str, list[float]]:
    """The figure of the test stage from each seed, of methods that have any.
    """
    found: dict[str, list[float]] = {}
    for method in methods:
        values = [row[figure] for row in rows
                  if row['stage'] == 'test' and row['method'] == method]
        if values:
            found[method] = values
    return found


def spread(values: list[float], factor: float = 100.) -> str:
    """Mean and standard deviation; of fractions, in percent."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.
    return f'{factor * np.mean(values):.2f} ± {factor * deviation:.2f}'


def fill_readmes(configs: Path, marks: tuple[str, str], text: str) -> None:
    """Put the text between the marks of every README that has them."""
    start, end = marks
    for readme in sorted(configs.glob('*/README.md')):
        content = readme.read_text(encoding='utf-8')
        if start in content and end in content:
            before, rest = content.split(start, 1)
            after = rest.split(end, 1)[1]
            readme.write_text(
                f'{before}{start}\n{text}\n{end}{after}', encoding='utf-8')


def plot(found: dict[str, list[float]], label: str, path: Path,
         left: float = 0.) -> None:
    """Every seed's fraction as a point, in percent; their mean as a bar."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 0.4 * len(found) + 1))
    for height, values in enumerate(found.values()):
        axes.barh(height, 100 * np.mean(values), color='lightsteelblue')
        axes.plot([100 * v for v in values], [height] * len(values), 'k.')
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set_xlim(left=left)
    axes.set_xlabel(label)
    figure.tight_layout()
    figure.savefig(path)
