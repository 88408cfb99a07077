"""Records as files: JSON that says which format it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from securevfl.errors import InputError

__all__ = ["read_record"]


class _Numbered(Protocol):
    @property
    def format(self) -> int: ...


R = TypeVar("R", bound=_Numbered)


def read_record(path: Path, kind: type[R], *, format: int, what: str, missing: str, again: str) -> R:
    """Read a record.

    Args:
        path: of the file.
        kind: of record.
        format: that this version reads.
        what: it is: "a run", "a sweep", "attacks".
        missing: the cure where there is no such file.
        again: the cure where it is of another format, or no record.

    Raises:
        InputError: no such file, or not a record of this format.
    """
    try:
        record = msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: {missing}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not a record of {what} ({error}); {again}") from None
    if record.format != format:
        raise InputError(f"{path} has format {record.format}, this version reads {format}: {again}")
    return record
