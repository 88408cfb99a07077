"""Progress bars on the terminal: of a comparison's runs, and of a sweep's cells. Only the command line uses them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from securevfl.party_context import Observer
from securevfl.report.sweep_record import CellFigures

__all__ = ["RunBars", "RunLines", "bar_columns", "run_bars", "sweep_bar"]

_SECONDS = 10.0
"""Seconds from one line to the next, where lines go to a file."""


class RunBars(Observer):
    """One line for each run, its epochs as they end."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._run = ""

    def run(self, title: str) -> None:
        self.finish()
        self._run = title
        self._task = self._progress.add_task(title, total=None, note="")

    def phase(self, name: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, note=name)

    def step(self, epoch: int, done: int, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, total=total, completed=done, note=f"epoch {epoch}")

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if self._task is not None and "auc" in valid:
            self._progress.update(self._task, note=f"epoch {epoch}, AUC {valid['auc']:.3f}")

    def finish(self) -> None:
        """Fill the bar of the run that ended."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            self._progress.update(self._task, total=task.total or 1, completed=task.total or 1)


class RunLines(Observer):
    """A line where a run begins and, every ten seconds at most, how far it is: for output that goes to a file, which
    would stay empty until the end.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()
        self._due = time.monotonic() + _SECONDS

    def run(self, title: str) -> None:
        self._print(f"{title} …")

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if time.monotonic() >= self._due:
            self._print(f"  epoch {epoch}" + (f", AUC {valid['auc']:.3f}" if "auc" in valid else ""))

    def step(self, epoch: int, done: int, total: int) -> None:
        if time.monotonic() >= self._due:
            self._print(f"  epoch {epoch}, step {done} of {total}")


def bar_columns() -> tuple[ProgressColumn, ...]:
    """What stands in each bar of a run: what, how far, how long, and a note."""
    return (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )


@contextmanager
def run_bars(console: Console) -> Iterator[Observer]:
    """Bars of the runs of a comparison, shown on `console` while the block runs; lines where it is no terminal."""
    if not console.is_terminal:
        yield RunLines(console)
        return
    with Progress(*bar_columns(), console=console, transient=False) as progress:
        bars = RunBars(progress)
        yield bars
        bars.finish()


@contextmanager
def sweep_bar(console: Console, cells: int) -> Iterator[Callable[[int, int, CellFigures], None]]:
    """A bar of `cells` cells; the function takes how many are done, of how many, and the one that was last."""
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=cells)

        def show_cell(done: int, total: int, cell: CellFigures) -> None:
            note = f"{cell.data}, {cell.method}: {100 * cell.value:.1f}"
            progress.update(task, completed=done, total=total, description=note)

        yield show_cell
        progress.update(task, completed=cells)
