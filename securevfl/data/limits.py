"""Limits on the size of a table: a small compressed file can expand to more than the memory."""

from __future__ import annotations

from dataclasses import dataclass, fields

from securevfl.errors import InputError

__all__ = ["DEFAULT_LIMITS", "NUMBER", "TEXT", "TableLimits"]

NUMBER = 8
"""Memory of a number, in bytes."""
TEXT = 96
"""Memory of a text beyond its own bytes: the object and its entries in a column and in a set."""

_SMALL = 64 << 20  # below this many bytes of memory, the compression ratio is not checked


@dataclass(frozen=True, kw_only=True)
class TableLimits:
    """Limits for reading one party's table. Announced sizes are checked before reading, actual sizes during it.

    Attributes:
        max_rows: number of rows.
        max_columns: number of columns, used or not.
        max_bytes: bytes of memory; a number counts 8, a text 96 plus its length.
        max_ratio: bytes of memory per byte of the file, checked from 64 MiB on; different identifiers do not compress a
            thousandfold.

    Raises:
        InputError: a limit below 1.
    """

    max_rows: int = 1 << 24
    max_columns: int = 1 << 14
    max_bytes: int = 1 << 33
    max_ratio: int = 1_000

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{one.name} is {value!r}; a whole number from 1 on was expected")

    def check(self, where: str, *, rows: int = 0, columns: int = 0, size: int = 0, packed: int = 0) -> None:
        """Check a table against the limits.

        Args:
            where: the table, for messages.
            rows: number of its rows, as far as it is known.
            columns: number of its columns.
            size: its bytes of memory.
            packed: bytes of its file; 0 if it does not come from a file.

        Raises:
            InputError: the table exceeds a limit; the message names it and how to raise it.
        """
        for what, found, name in (("rows", rows, "max_rows"), ("columns", columns, "max_columns")):
            if found > (limit := getattr(self, name)):
                raise InputError(f"{where} has {found:,} {what} or more; at most {limit:,} are read: raise {name}")
        if size > self.max_bytes:
            raise InputError(
                f"{where} takes {size:,} bytes of memory or more; at most {self.max_bytes:,} are read: name fewer "
                "columns in features=…, or raise max_bytes"
            )
        if packed and size > max(_SMALL, packed * self.max_ratio):
            raise InputError(
                f"{where} has {packed:,} bytes and takes {size:,} of memory or more, {size // packed:,} times as many; "
                f"at most {self.max_ratio:,} times are read: is it the right file? If so, raise max_ratio"
            )


DEFAULT_LIMITS = TableLimits()
