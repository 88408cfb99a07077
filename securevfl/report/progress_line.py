"""One line on standard error that says how far a run is; for notebooks and terminals, silent elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

from securevfl.party_context import Observer

__all__ = ["ProgressLine", "progress_line"]

_BAR = 20


def progress_line() -> Observer:
    """An observer that writes a line where somebody watches: a terminal or a notebook; elsewhere one that is silent."""
    return ProgressLine(sys.stderr) if sys.stderr.isatty() or _in_notebook() else Observer()


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel: nothing is imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class ProgressLine(Observer):
    """Writes over one line: the run, a bar, the epoch and its validation AUC; a run that ended leaves its line.

    Args:
        out: where to.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._title = ""
        self._told = ""
        self._last = ""
        self._width = 0
        self._tenths = -1

    def run(self, title: str) -> None:
        self.end()
        self._title, self._told, self._tenths = title, "", -1
        self._write("")

    def phase(self, name: str) -> None:
        self._write(name)

    def step(self, epoch: int, done: int, total: int) -> None:
        tenths = _BAR * done // max(total, 1)
        if tenths == self._tenths:
            return  # a notebook keeps what is written: twenty times an epoch are enough
        self._tenths = tenths
        told = f", {self._told}" if self._told else ""
        self._write(f"[{'#' * tenths}{'.' * (_BAR - tenths)}] epoch {epoch}{told}")

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if "auc" in valid:
            self._told = f"AUC {valid['auc']:.3f}"
        self._write(f"epoch {epoch}, {self._told}" if self._told else f"epoch {epoch}")

    def end(self) -> None:
        """Leave the line of the run that ended, and go to the next."""
        if self._last:
            self._out.write("\n")
            self._out.flush()
        self._last, self._width = "", 0

    def _write(self, note: str) -> None:
        clean = "".join(c if c.isprintable() else " " for c in f"{self._title}  {note}")
        if clean == self._last:
            return
        self._last = clean
        self._out.write("\r" + clean.ljust(self._width))
        self._out.flush()
        self._width = len(clean)
