"""How a benchmark says that it leaves something out: a line on standard error, and an exit status of its own.

Imports nothing of the project, so that the processes that a benchmark spawns stay small.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

__all__ = ["PREFIX", "STATUS", "needed", "note", "skip"]

PREFIX = "skipped: "
STATUS = 77
"""Exit status of a benchmark that measured nothing; automake's tests use the same number."""


def note(what: str, reason: str) -> None:
    """Say that `what`, a part of a benchmark, is not measured."""
    print(f"{PREFIX}{what}, because {' '.join(reason.split())}", file=sys.stderr, flush=True)


def skip(what: str, reason: str) -> NoReturn:
    """Say that `what` is not measured, and end the process with `STATUS`."""
    note(what, reason)
    raise SystemExit(STATUS)


def needed(module: str, what: str) -> Any:
    """A module of a package that only benchmarks need; without it the process ends as by `skip`.

    Args:
        module: its name.
        what: the benchmark, for the message.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        skip(what, f"the package {error.name!r} is not installed")
