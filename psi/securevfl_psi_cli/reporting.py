"""What every command does with its end: one message and an exit code in the place of a traceback, and a summary.

Exit codes are those of `securevfl`, in `securevfl_net.exit_codes`: 75 says that starting again may help.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.table import Table as Grid
from securevfl_crypto import CryptoError
from securevfl_crypto.errors import EngineError
from securevfl_net import exit_codes
from securevfl_psi.errors import (
    BudgetError,
    CertificateError,
    ConnectionLost,
    DisagreementError,
    ExpiredError,
    IdentifierError,
    InputError,
    LinkageError,
    MalformedError,
    PeerRefused,
    PSIError,
    SetSizeError,
    SmallIntersectionError,
)

from securevfl_psi_cli.party import Watch

__all__ = ["exit_code", "print_summary", "report_errors"]


_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((InputError, IdentifierError, EngineError, LinkageError), exit_codes.CONFIGURATION),
    ((BudgetError, ExpiredError, PeerRefused, CertificateError), exit_codes.REFUSED),
    ((DisagreementError,), exit_codes.ROWS),
    ((MalformedError,), exit_codes.EVIDENCE),
    ((ConnectionLost,), exit_codes.AGAIN),
)


def _make_console(*, stderr: bool = False) -> Console:
    """A console; wide where nobody looks (a file, a pipe) unless COLUMNS is set."""
    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=120)


def exit_code(error: Exception, watch: Watch) -> int:
    """The exit code of an error.

    Args:
        error: what ended the run.
        watch: how far the run was.
    """
    if isinstance(error, SmallIntersectionError):
        return exit_codes.ROWS if watch.least <= 1 else exit_codes.REFUSED
    if isinstance(error, SetSizeError):  # before both agreed, a limit of this party's; after it, the peer's breach
        return exit_codes.REFUSED if watch.peer_rows is None else exit_codes.EVIDENCE
    code = next((code for kinds, code in _CODES if isinstance(error, kinds)), exit_codes.PROGRAM)
    may_hide = code in (exit_codes.CONFIGURATION, exit_codes.PROGRAM)
    return exit_codes.AGAIN if may_hide and exit_codes.find_machine_fault(error) is not None else code


@contextmanager
def report_errors(watch: Watch) -> Iterator[Console]:
    """One message and an exit code instead of a traceback."""
    err = _make_console(stderr=True)
    try:
        yield err
    except (PSIError, CryptoError) as error:
        err.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(exit_code(error, watch)) from None
    except KeyboardInterrupt:
        err.print("interrupted")
        raise typer.Exit(exit_codes.INTERRUPTED) from None


def print_summary(title: str, lines: list[tuple[str, str]]) -> None:
    """Print a title, and below it labels and texts."""
    out = _make_console()
    out.print(title, style="bold", markup=False, highlight=False)
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(f"  {label}", text)
    out.print(grid, markup=False, highlight=False)
