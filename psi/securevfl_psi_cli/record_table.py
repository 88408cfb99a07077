"""A party's records for linkage: the columns that are compared, read before anything is sent; linked rows, written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from securevfl_psi.errors import InputError, SetSizeError
from securevfl_psi.identifiers import MISSING

from securevfl_psi_cli.result_file import write_csv
from securevfl_psi_cli.table_rows import read_columns, read_rows

__all__ = ["Records"]


@dataclass(frozen=True, kw_only=True)
class Records:
    """A table whose records are linked.

    Attributes:
        path: of the file.
        delimiter: between the fields of CSV.
        columns: field → column.
        table: field → values, None where there is nothing: empty, or NULL, NA and their like.
        rows: how many there are.
        max_bytes: most bytes that are read.
    """

    path: Path
    delimiter: str
    columns: Mapping[str, str]
    table: Mapping[str, Sequence[object]] = field(repr=False)
    rows: int
    max_bytes: int

    @classmethod
    def read(cls, path: Path, columns: Mapping[str, str], delimiter: str, *, max_rows: int, max_bytes: int) -> Records:
        """The columns that are compared.

        Raises:
            InputError: a file that cannot be read, or lacks a column, or has no rows.
            SetSizeError: more rows than `max_rows`.
        """
        found: dict[str, list[object]] = {name: [] for name in columns}
        count = 0
        for _, fields in read_columns(path, list(columns.values()), delimiter, max_bytes):
            count += 1
            if count > max_rows:
                raise SetSizeError(f"{path} has more than {max_rows:,} rows: raise --max-set-size at all")
            for name, text in zip(columns, fields, strict=True):
                found[name].append(None if text.strip() in MISSING else text)
        if not count:
            raise InputError(f"{path} has a header and no rows; at least one row is needed")
        return cls(path=path, delimiter=delimiter, columns=columns, table=found, rows=count, max_bytes=max_bytes)

    def write(self, out: Path, links: Sequence[tuple[int, str]], *, whole: bool) -> None:
        """Linked rows, in the order of `links`, under the name of each: numbers, or whole rows.

        Raises:
            InputError: the file was changed in the meantime, or cannot be written.
        """
        if not whole:
            write_csv(out, ["link", "row"], ([name, row] for row, name in links), self.delimiter)
            return
        wanted = {row for row, _ in links}
        rest = read_rows(self.path, self.delimiter, self.max_bytes)
        _, header = next(rest, (0, [""]))
        kept = {number: fields for number, (_, fields) in enumerate(rest) if number in wanted}
        if len(kept) != len(wanted):
            raise InputError(f"{self.path} was changed while it was linked: run again")
        if "link" in header:
            raise InputError(
                f"{self.path} has a column 'link', which is that of the links: rename it, or --rows numbers"
            )
        write_csv(out, ["link", *header], ([name, *kept[row]] for row, name in links), self.delimiter)
