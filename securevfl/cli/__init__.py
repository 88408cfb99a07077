"""The command line: `securevfl demo | check | policy | run | predict | explain | export | drift | sweep | attack |
report | runs | audit | dossier | keys | certs | relay | card | propose | approve | agreement | readmit | leave | serve
| node | engine | psi`.

Exit codes are those of `securevfl_net.exit_codes`: 0 done; 75, 130 and 143 start again; any other: a person must act.

Each command imports what it needs when it runs, so that help is fast and `securevfl psi` never loads torch.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from rich.console import Console
from securevfl_net import exit_codes
from securevfl_net.errors import exit_code_of, fault_behind
from typer.main import get_command

from securevfl.cli import (
    agreements,
    audits,
    certificates,
    dossiers,
    engines,
    experiments,
    explaining,
    exports,
    leaving,
    nodes,
    parties,
    policies,
    readmissions,
    relays,
    runs,
    serving,
    statistics,
    terminal,
)
from securevfl.cli.application import app
from securevfl.errors import SecureVFLError

__all__ = [
    "Console",
    "agreements",
    "app",
    "audits",
    "certificates",
    "dossiers",
    "engines",
    "experiments",
    "explaining",
    "exports",
    "leaving",
    "main",
    "nodes",
    "parties",
    "policies",
    "readmissions",
    "relays",
    "runs",
    "serving",
    "statistics",
    "terminal",
]


@lru_cache(maxsize=1)
def _command() -> Any:
    """All commands, built once: a process may run several, and building takes longer than most of them."""
    return get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: run the command, and turn an error into one message and an exit code."""
    try:
        _command()(args=arguments, standalone_mode=True)
    except SecureVFLError as error:
        public = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == SecureVFLError.__module__)
        terminal.err.print(f"[bold red]{public}[/]: ", end="")
        terminal.err.print(str(error), markup=False, highlight=False, soft_wrap=True)
        for note in getattr(error, "__notes__", []):
            terminal.err.print(f"  ({note})", markup=False, highlight=False, soft_wrap=True)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        terminal.err.print("interrupted")
        sys.exit(exit_codes.INTERRUPTED)
    except OSError as error:
        name = "InputError" if fault_behind(error) is None else "MachineFault"
        what = f"{error.strerror or error}: {error.filename or ''}"
        terminal.err.print(f"[bold red]{name}[/]: ", end="")
        terminal.err.print(what, markup=False, highlight=False, soft_wrap=True)
        sys.exit(exit_code_of(error))
