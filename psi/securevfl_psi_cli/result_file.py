"""The file with the results."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from securevfl_psi.errors import InputError

__all__ = ["require_writable", "write_csv"]


def require_writable(out: Path, *tables: Path) -> None:
    """Check that the file for results can probably be written and is not one of the tables.

    Raises:
        InputError: another one.
    """
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"--out {out}: " + ("it is a folder" if out.is_dir() else f"there is no folder {out.parent}"))
    if any(out.exists() and table.exists() and out.samefile(table) for table in tables):
        raise InputError(f"--out {out} is the table itself; name another file")


def write_csv(out: Path, header: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = ",") -> None:
    """A CSV file.

    Raises:
        InputError: it cannot be written.
    """
    try:
        with out.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from None
