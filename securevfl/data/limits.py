"""How large a table may be: a small file can unpack to more than the memory holds."""

from __future__ import annotations

from dataclasses import dataclass, fields

from securevfl.errors import InputError

__all__ = ["DEFAULT_LIMITS", "NUMBER", "TEXT", "TableLimits"]

NUMBER = 8
"""Bytes that a number takes in memory."""
TEXT = 96
"""Bytes that a text takes in memory beside its own: an object, its place in a column and in a set."""

_SMALL = 64 << 20  # bytes below which nobody looks at how well a file was packed


@dataclass(frozen=True, kw_only=True)
class TableLimits:
    """What is read of one party's table. What a file announces is checked before it is read, and what it turns out to
    hold while it is.

    Attributes:
        max_rows: rows.
        max_columns: columns, used or not.
        max_bytes: of memory: 8 for a number, 96 and its length for a text.
        max_ratio: bytes of memory for each byte of the file, looked at from 64 MiB on: identifiers that differ do not
            pack a thousandfold.

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
        """Do nothing where a table is within the limits.

        Args:
            where: the table, for messages.
            rows: that it has, as far as is known.
            columns: that it has.
            size: bytes of memory that it takes.
            packed: bytes of the file that this comes from; 0 where there is none.

        Raises:
            InputError: above a limit; says which, and how to raise it.
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
