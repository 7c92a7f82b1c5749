"""A comparison as a grid: every training of it is one line of a CSV file.

A cell is written when it is finished, so that a run goes on where the file
ends and may be interrupted at any moment.
"""

from __future__ import annotations

import contextlib
import csv
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .record import RECORD, record


@dataclass
class Grid:
    """The finished cells of a comparison, and how others get done.

    Args:
        path (Path): the CSV file.
        cell (tuple[str, ...]): the columns that tell a cell from others.
        columns (tuple[str, ...]): all columns but those of the record.
        numbers (tuple[str, ...]): the columns that hold numbers.
        command (str): what the record calls the command.
        lock (str, optional): jobs that name one file take turns, cell by
            cell, on a small machine.
    """
    path: Path
    cell: tuple[str, ...]
    columns: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    command: str = ''
    lock: str | None = None
    _facts: dict[str, str] = field(default_factory=dict, repr=False)

    def rows(self) -> list[dict]:
        """The finished cells."""
        if not self.path.exists():
            return []
        with open(self.path, newline='', encoding='utf-8') as file:
            rows: list[dict] = list(csv.DictReader(file))
        for row in rows:
            row.update({name: float(row[name]) for name in self.numbers})
        return rows

    def key(self, row: dict) -> tuple:
        """What tells a cell from others, the same for a cell and its row."""
        return tuple(float(row[name]) if name in self.numbers
                     else str(row[name]) for name in self.cell)

    def missing(self, cells: Iterable[dict]) -> list[dict]:
        """Those of the cells that are not in the file."""
        finished = {self.key(row) for row in self.rows()}
        return [cell for cell in cells if self.key(cell) not in finished]

    def append(self, row: dict) -> None:
        """Write one finished cell with its record."""
        self._facts = self._facts or record(self.command)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, 'a+', newline='', encoding='utf-8') as file:
            file.seek(0)
            header = next(csv.reader(file), None)
            writer = csv.DictWriter(
                file, header or (*self.columns, *RECORD), lineterminator='\n')
            if header is None:
                writer.writeheader()
            writer.writerow({**row, **self._facts})

    def do(self, cell: dict, function: Callable[[dict], dict]) -> None:
        """Do one cell: ``function`` tells its figures."""
        with _turn(self.lock):
            start = time.time()
            found = function(cell)
            seconds = time.time() - start
        self.append({'seconds': f'{seconds:.1f}', **cell, **found})
        print(cell, found, f'{seconds:.1f} s', flush=True)

    def run(self, cells: Callable[[list[dict]], Iterable[dict]],
            function: Callable[[dict], dict],
            most: int | None = None) -> None:
        """Do what is missing, at most ``most`` cells.

        ``cells`` tells from the finished ones what is to do, in order, so
        that later cells may follow from the results of earlier ones.
        """
        done = 0
        while most is None or done < most:
            todo = cells(self.rows())
            finished = {self.key(row) for row in self.rows()}
            cell = next((each for each in todo
                         if self.key(each) not in finished), None)
            if cell is None:
                return
            self.do(cell, function)
            done += 1


@contextlib.contextmanager
def _turn(path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    import fcntl
    with open(path, 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
