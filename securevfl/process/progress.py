"""A party's run on its operator's terminal: events as lines, with a progress bar below."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from securevfl.party_context import Observer
from securevfl.report.progress import bar_columns
from securevfl.run.events import RunEvents
from securevfl.transport import Scalar

__all__ = ["PartyBars", "party_bars"]


class PartyBars(RunEvents, Observer):
    """One bar for the current epoch, with lines above it.

    Args:
        progress: that shows them.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("connecting", total=None, note="")

    def report_event(self, what: str, words: str, **values: Scalar) -> None:
        printable = "".join(sign if sign.isprintable() else "·" for sign in words)
        self._progress.console.print(printable, markup=False, highlight=False, soft_wrap=True)
        if what in ("attempt", "parked"):
            self._progress.reset(self._task, total=None)
        if what in ("waits", "parked", "done", "ended"):
            self._progress.update(self._task, description="waiting" if what == "waits" else what)

    def phase(self, name: str) -> None:
        self._progress.update(self._task, description=escape(name), note="")

    def step(self, epoch: int, done: int, total: int) -> None:
        self._progress.update(self._task, total=total, completed=done, note=f"epoch {epoch}")

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if "auc" in valid:
            self._progress.update(self._task, note=f"epoch {epoch}, AUC {valid['auc']:.3f}")


@contextmanager
def party_bars(console: Console) -> Iterator[PartyBars]:
    """Bars on `console` while the block runs."""
    with Progress(*bar_columns(), console=console) as progress:
        yield PartyBars(progress)
