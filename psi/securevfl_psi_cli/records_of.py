"""A party's records for linkage: the columns that are compared, read before anything is sent; linked rows, written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from securevfl_psi.errors import InputError, SetSizeError
from securevfl_psi.identifiers import MISSING

from securevfl_psi_cli.records import is_parquet, records
from securevfl_psi_cli.table import place_of
from securevfl_psi_cli.written import write_csv

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
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise InputError(f"delimiter {delimiter!r}; one character is possible, for example ';'")
        wanted = list(dict.fromkeys(columns.values()))
        rows = records(path, delimiter, max_bytes, wanted)
        _, header = next(rows, (0, None))
        if header is None:
            raise InputError(f"{path} is empty; a header and at least one row are needed")
        places = {column: place_of(path, header, column, delimiter) for column in wanted}
        if is_parquet(path):
            places = {column: at for at, column in enumerate(wanted)}
        found: dict[str, list[object]] = {name: [] for name in columns}
        count = 0
        for _, fields in rows:
            count += 1
            if count > max_rows:
                raise SetSizeError(f"{path} has more than {max_rows:,} rows: raise --max-set-size at all")
            for name, column in columns.items():
                text = fields[places[column]]
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
        rest = records(self.path, self.delimiter, self.max_bytes)
        _, header = next(rest, (0, [""]))
        kept = {number: fields for number, (_, fields) in enumerate(rest) if number in wanted}
        if len(kept) != len(wanted):
            raise InputError(f"{self.path} was changed while it was linked: run again")
        if "link" in header:
            raise InputError(
                f"{self.path} has a column 'link', which is that of the links: rename it, or --rows numbers"
            )
        write_csv(out, ["link", *header], ([name, *kept[row]] for row, name in links), self.delimiter)
