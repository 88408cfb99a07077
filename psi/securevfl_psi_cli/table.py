"""A party's table: the columns of identifiers, read and checked before anything is sent, and the common rows at the
end.

Errors name lines of a CSV file, counted from 1, as an editor shows them, or rows of a Parquet file, counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from securevfl_psi.errors import IdentifierError, InputError, SetSizeError
from securevfl_psi.identifiers import MAX_ID_BYTES, MISSING, IdRules

from securevfl_psi_cli.result_file import write_csv
from securevfl_psi_cli.table_rows import MAX_BYTES, is_parquet, read_columns, read_rows

__all__ = ["ONE_SESSION", "Missing", "Table"]

ONE_SESSION = 1 << 24
"""Rows that are compared in one session, unless told otherwise; more are cut into shards."""

_EXAMPLES = 3


class Missing(StrEnum):
    """What becomes of rows whose identifier is missing: empty, or a text such as ``NULL``, ``NA`` and ``nan``."""

    refuse = "refuse"
    drop = "drop"
    keep = "keep"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file and its identifiers.

    Attributes:
        path: of the file.
        columns: names of the columns that make an identifier.
        delimiter: between fields of CSV.
        ids: of each row that takes part, as the file has it: a text, or a tuple where there are several columns.
        numbers: which row of the file each is, counted from 0 after the header.
        dropped: rows that do not take part, as their identifier is missing.
        max_bytes: that are read.
    """

    path: Path
    columns: tuple[str, ...]
    delimiter: str
    ids: list[str] | list[tuple[str, ...]]
    numbers: Sequence[int]
    dropped: int
    max_bytes: int

    @classmethod
    def read(
        cls,
        path: Path,
        columns: str | Sequence[str],
        delimiter: str = ",",
        *,
        missing: Missing = Missing.refuse,
        max_rows: int = ONE_SESSION,
        max_bytes: int = MAX_BYTES,
    ) -> Table:
        """Reads some columns; the others are skipped as they come.

        Args:
            path: CSV, UTF-8, with a header (``.gz``: packed by gzip), or Parquet by its ending.
            columns: that make an identifier.
            delimiter: between fields of CSV.
            missing: what becomes of rows without an identifier.
            max_rows: most rows that are read.
            max_bytes: most bytes that are read, unpacked.

        Raises:
            InputError: a file that cannot be read, is empty, is not what it should be, has no such column, is above a
                limit, or has a row with another number of fields than the header.
            IdentifierError: identifiers that are missing, where that is refused.
            SetSizeError: more rows than `max_rows`.
        """
        wanted = (columns,) if isinstance(columns, str) else tuple(columns)
        if len(set(wanted)) < len(wanted):
            raise InputError(f"--id names a column twice: {', '.join(wanted)}")
        alone: list[str] = []
        several: list[tuple[str, ...]] = []
        numbers: list[int] = []
        absent: list[tuple[int, str]] = []
        for number, (place, found) in enumerate(read_columns(path, wanted, delimiter, max_bytes)):
            if missing is not Missing.keep and (text := _find_missing(found, missing)) is not None:
                absent.append((place, text))
                continue
            if len(alone) + len(several) >= max_rows:
                raise SetSizeError(
                    f"{path} has more than {max_rows:,} rows: raise --max-set-size at both, or cut both sets: "
                    "--shards auto"
                )
            if len(found) == 1:
                alone.append(found[0])
            else:
                several.append(found)
            if missing is Missing.drop:
                numbers.append(number)
        if absent and missing is Missing.refuse:
            raise IdentifierError(_missing_message(path, absent))
        ids = alone or several
        if not ids:
            raise InputError(
                f"{path} has a header and no rows"
                + (" with an identifier" if absent else "")
                + "; at least one row is "
                "needed"
            )
        return cls(
            path=path,
            columns=wanted,
            delimiter=delimiter,
            ids=ids,
            numbers=numbers if absent else range(len(ids)),
            dropped=len(absent),
            max_bytes=max_bytes,
        )

    def row_fields(self, row: int) -> tuple[str, ...]:
        """The columns of one row that takes part."""
        one = self.ids[row]
        return (one,) if isinstance(one, str) else one

    def explain_error(self, error: IdentifierError, rules: IdRules) -> IdentifierError:
        """An error about identifiers that are empty, too long or doubled, with their lines."""
        found = self._find_mistakes(rules)
        return IdentifierError(f"{self.path}: {found}") if found else error

    def _find_mistakes(self, rules: IdRules) -> str:
        """What is wrong with which lines; read again, as it is seldom needed."""
        what = _row_noun(self.path)
        first: dict[tuple[str, ...], int] = {}
        empty: list[int] = []
        long: list[int] = []
        doubled: list[str] = []
        for line, parts in self._iter_lines(rules):
            if "" in parts:
                empty.append(line)
            elif sum(len(part.encode("utf-8", "replace")) for part in parts) > MAX_ID_BYTES:
                long.append(line)
            elif parts in first:
                shown = repr(parts[0] if len(parts) == 1 else parts)
                doubled.append(f"{shown} in {what}s {first[parts]} and {line}")
            first.setdefault(parts, line)
        if empty:
            return f"the identifier is empty in {_name_lines(empty, what)}; give each row one or drop it"
        if long:
            where = _name_lines(long, what)
            return f"the identifier has more than {MAX_ID_BYTES} bytes in {where}; is it the right column?"
        if doubled:
            more = f" and {len(doubled) - _EXAMPLES} more" if len(doubled) > _EXAMPLES else ""
            noun = "identifier is" if len(doubled) == 1 else "identifiers are"
            return (
                f"{len(doubled)} {noun} doubled: {'; '.join(doubled[:_EXAMPLES])}{more} ({rules.describe()}); "
                "keep one row for each"
            )
        return ""

    def _iter_lines(self, rules: IdRules) -> Iterator[tuple[int, tuple[str, ...]]]:
        taking_part = set(self.numbers) if self.dropped else None
        rows = read_columns(self.path, self.columns, self.delimiter, self.max_bytes)
        for number, (line, fields) in enumerate(rows):
            if taking_part is None or number in taking_part:
                yield line, tuple(map(rules.apply, fields))

    def write_numbers(self, out: Path, rows: np.ndarray) -> None:
        """Number and identifier of some rows, in that order; rows are counted from 0 after the header."""
        found = ([self.numbers[row], *self.row_fields(row)] for row in rows.tolist())
        write_csv(out, ["row", *self.columns], found, self.delimiter)

    def write_atomic(self, out: Path, rows: np.ndarray) -> None:
        """Whole rows, in that order, under the file's header: it is read again for them.

        Raises:
            InputError: the file was changed in the meantime.
        """
        wanted = {self.numbers[row]: self.row_fields(row) for row in rows.tolist()}
        kept: dict[int, list[str]] = {}
        rest = read_rows(self.path, self.delimiter, self.max_bytes)
        _, header = next(rest, (0, [""]))
        places = [header.index(one) for one in self.columns] if set(self.columns) <= set(header) else []
        for number, (_, fields) in enumerate(rest):
            if number in wanted and tuple(fields[i] for i in places) == wanted[number]:
                kept[number] = fields
        if len(kept) != len(wanted):
            raise InputError(
                f"{self.path} was changed while it was compared: {len(wanted) - len(kept)} of {len(wanted)} common "
                "rows are not where they were; run again"
            )
        write_csv(out, header, (kept[self.numbers[row]] for row in rows.tolist()), self.delimiter)


def _find_missing(parts: Sequence[str], missing: Missing) -> str | None:
    """The first part that means a missing value. An empty one is refused later, with those that are empty once they are
    normalised."""
    for part in parts:
        text = part.strip() if part.isascii() else _PLAIN.apply(part)
        if text in MISSING and (text or missing is Missing.drop):
            return text
    return None


_PLAIN = IdRules()


def _missing_message(path: Path, absent: Sequence[tuple[int, str]]) -> str:
    where = _name_lines([line for line, _ in absent], _row_noun(path))
    texts = ", ".join(repr(text) for text in sorted({text for _, text in absent}))
    return (
        f"{path}: the identifier is missing ({texts}) in {where}; correct or drop these rows, or use --missing drop, "
        "which leaves them out, or --missing keep, if that is somebody's identifier"
    )


def _row_noun(path: Path) -> str:
    return "row" if is_parquet(path) else "line"


def _name_lines(numbers: Sequence[int], what: str) -> str:
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    more = f" and {len(numbers) - _EXAMPLES} more" if len(numbers) > _EXAMPLES else ""
    return f"{what}s {', '.join(map(str, numbers[:_EXAMPLES]))}{more}"
