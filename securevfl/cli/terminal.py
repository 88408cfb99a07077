"""What all commands share: the two consoles, progress bars, and the command as it was typed."""

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
    from securevfl.report.progress import RunBars

__all__ = ["ACCEPT_LEAK", "POOL", "bars", "command", "err", "open_page", "out", "say"]

ACCEPT_LEAK = "Where the job names no protection and would leak without one, run it in the clear."
"""What the option of that name does."""
POOL = "Workers for products of a sealed cut: local, process:2, ray, ray:HOST:PORT."
"""Likewise, of --pool."""


def _console(*, stderr: bool = False) -> Console:
    """A console; wide where nobody looks (a file, a pipe) unless COLUMNS says otherwise."""
    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=120)


out = _console()
err = _console(stderr=True)


def bars() -> AbstractContextManager[RunBars]:
    """Progress bars of a run, on the standard error."""
    from securevfl.report.progress import run_bars

    return run_bars(err)


def open_page(page: Path) -> None:
    """Show a page in the browser where a person sits in front of one."""
    display = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if out.is_terminal and display:
        webbrowser.open(page.resolve().as_uri())


def say(line: str) -> None:
    """A line for a person, on the standard error, as it is."""
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def command() -> str:
    """The command as it was typed."""
    return shlex.join(["securevfl", *sys.argv[1:]])
