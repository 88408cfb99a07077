"""Shared by all commands: the two consoles, progress bars, and the typed command."""

from __future__ import annotations

import os
import shlex
import sys
import webbrowser
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from securevfl.party_context import Observer

__all__ = ["ACCEPT_LEAK", "LOG_TO", "POOL", "err", "open_page", "out", "print_line", "progress_bars", "typed_command"]

ACCEPT_LEAK = "Run a job without protection in the clear, even if it leaks."
"""Help text of the option of that name."""
LOG_TO = "Also log epochs, settings and final figures, no rows: tensorboard:FOLDER or mlflow:URI. Repeat for several."
"""Help text of --log-to."""
POOL = "Workers for products of a sealed cut: local, process:2, ray, ray:HOST:PORT."
"""Help text of --pool."""


def _console(*, stderr: bool = False) -> Console:
    """Return a console; wide for a file or a pipe, unless COLUMNS is set."""
    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=120)


out = _console()
err = _console(stderr=True)


def progress_bars() -> AbstractContextManager[Observer]:
    """Progress bars of a run, on the standard error."""
    from securevfl.report.progress import run_bars

    return run_bars(err)


def open_page(page: Path) -> None:
    """Open a page in the browser if this is an interactive session."""
    display = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if out.is_terminal and display:
        webbrowser.open(page.resolve().as_uri())


def print_line(line: str) -> None:
    """Print a line on standard error, unformatted."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def typed_command() -> str:
    """Return the command as the user typed it."""
    return shlex.join(["securevfl", *sys.argv[1:]])
