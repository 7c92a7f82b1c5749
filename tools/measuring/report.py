"""Tables and plots of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np


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


def spread(values: Sequence[float], factor: float = 100.) -> str:
    """Mean and standard deviation; of fractions, in percent."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.
    return f'{factor * np.mean(values):.2f} ± {factor * deviation:.2f}'


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ['---'] * len(head), *rows]
    return '\n'.join(f'| {" | ".join(map(str, line))} |' for line in lines)


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


def pyplot() -> ModuleType:
    """Matplotlib's, without a display, and the same file at every run."""
    import matplotlib
    matplotlib.use('Agg')
    matplotlib.rcParams['svg.hashsalt'] = 'mmrank'
    from matplotlib import pyplot
    return pyplot


def plot_seeds(found: dict[str, list[float]], label: str, path: Path,
               left: float = 0.) -> None:
    """Every seed's fraction as a point, in percent; their mean as a bar."""
    figure, axes = pyplot().subplots(figsize=(7, 0.4 * len(found) + 1))
    for height, values in enumerate(found.values()):
        axes.barh(height, 100 * np.mean(values), color='lightsteelblue')
        axes.plot([100 * v for v in values], [height] * len(values), 'k.')
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set_xlim(left=left)
    axes.set_xlabel(label)
    save(figure, path)


def save(figure: object, path: Path) -> None:
    """Write and close a figure."""
    figure.tight_layout()
    figure.savefig(path, metadata={'Date': None} if path.suffix == '.svg'
                   else None)
    pyplot().close(figure)
