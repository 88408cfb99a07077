"""Read ledger files within limits, with line numbers, and detect a torn last line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from securevfl.errors import AuditError, InputError
from securevfl.ledger.lines import LINE_BYTES, Line, decode_line

__all__ = ["MOST_LINES", "Flaw", "Located", "Torn", "raise_flaws", "read_lines"]

MOST_LINES = 10_000_000
"""Maximum lines of one file."""

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that does not verify.

    Attributes:
        file: the file.
        line: its line, from 1.
        party: the ledger's party; empty if the file does not reveal it.
        text: what is wrong.
    """

    file: str
    line: int
    party: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: " + (f"{self.party!r}: " if self.party else "") + self.text


@dataclass(frozen=True, slots=True)
class Torn:
    """A last line without its line feed, which a killed process leaves behind."""


Located = tuple[int, Line | Torn | Flaw]
"""A line's number, from 1, and its content."""


def read_lines(path: Path) -> Iterator[Located]:
    """Iterate over the lines of a ledger file; an invalid line becomes a `Flaw`.

    Raises:
        InputError: the file does not exist.
        AuditError: the file has more than `MOST_LINES` lines.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(LINE_BYTES + 1):
                number += 1
                if number > MOST_LINES:
                    raise AuditError(f"{path}:{number}: more than {MOST_LINES:,} lines, the limit of a ledger")
                yield number, _parse_line(path, number, raw)
                if len(raw) > LINE_BYTES:
                    return  # the rest would be read as lines that nobody wrote
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: name the folder of a finished run, e.g. runs/credit") from None


def _parse_line(path: Path, number: int, raw: bytes) -> Line | Torn | Flaw:
    if not raw.endswith(b"\n") and len(raw) <= LINE_BYTES:
        return Torn()
    try:
        return decode_line(raw.removesuffix(b"\n"))
    except AuditError as error:
        return Flaw(str(path), number, "", f"the line {error}")


def raise_flaws(flaws: Iterable[Flaw]) -> None:
    """Raise one error that lists the flaws, if there are any.

    Raises:
        AuditError: there are flaws.
    """
    found = list(dict.fromkeys(flaws))
    if found:
        more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
        raise AuditError("\n  ".join([*map(str, found[:_SHOWN]), *more]), flaws=found)
