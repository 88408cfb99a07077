"""Tables in CSV: the column of identifiers, read and checked before anything is sent, and the common rows at the end.

Errors name lines of the file, counted from 1, as an editor shows them.
"""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from securevfl_psi.command.summary import counted
from securevfl_psi.errors import IdentifierError, InputError
from securevfl_psi.identifiers import MAX_ID_BYTES, IdRules

__all__ = ["Table", "require_writable", "write_csv"]

_EXAMPLES = 3
_COLUMNS = 12


@dataclass(frozen=True)
class Table:
    """A file and its identifiers.

    Attributes:
        path: of the file, UTF-8, with a header.
        column: the name of the column with the identifiers.
        delimiter: between fields.
        ids: as the file has them, one per row.
    """

    path: Path
    column: str
    delimiter: str
    ids: list[str]

    @classmethod
    def read(cls, path: Path, column: str, delimiter: str = ",") -> Table:
        """Reads one column; the others are skipped as they come.

        Raises:
            InputError: a file that cannot be read, is empty, is not UTF-8 or not CSV, has no such column, or a row with
                another number of fields than the header.
        """
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise InputError(f"delimiter {delimiter!r}; one character is possible, for example ';'")
        rows = _records(path, delimiter)
        _, header = next(rows, (0, None))
        if header is None:
            raise InputError(f"{path} is empty; a header and at least one row are needed")
        place = _place(path, header, column, delimiter)
        ids = [fields[place] for _, fields in rows]
        if not ids:
            raise InputError(f"{path} has a header and no rows; at least one row is needed")
        return cls(path, column, delimiter, ids)

    def explained(self, error: IdentifierError, rules: IdRules) -> IdentifierError:
        """An error about identifiers that are empty, too long or doubled, with the lines where they stand."""
        found = self._wrong(rules)
        return IdentifierError(f"{self.path}: {found}") if found else error

    def _wrong(self, rules: IdRules) -> str:
        """What is wrong with which lines; read again, as it is seldom needed."""
        first: dict[str, int] = {}
        empty: list[str] = []
        long: list[str] = []
        doubled: list[str] = []
        for line, text in self._lines(rules):
            if not text:
                empty.append(str(line))
            elif len(text.encode()) > MAX_ID_BYTES:
                long.append(str(line))
            elif text in first:
                doubled.append(f"{text!r} in lines {first[text]} and {line}")
            first.setdefault(text, line)
        if empty:
            return f"the identifier is empty in {_lines(empty)}; give each row one or drop it"
        if long:
            return f"the identifier has more than {MAX_ID_BYTES} bytes in {_lines(long)}; is it the right column?"
        if doubled:
            more = f" and {len(doubled) - _EXAMPLES} more" if len(doubled) > _EXAMPLES else ""
            what = "identifier is" if len(doubled) == 1 else "identifiers are"
            return (
                f"{len(doubled)} {what} doubled: {'; '.join(doubled[:_EXAMPLES])}{more} ({rules.describe()}); "
                "keep one row for each"
            )
        return ""

    def _lines(self, rules: IdRules) -> Iterator[tuple[int, str]]:
        rows = _records(self.path, self.delimiter)
        _, header = next(rows)
        place = header.index(self.column)
        for line, fields in rows:
            yield line, rules.apply(fields[place])

    def write_numbers(self, out: Path, rows: np.ndarray) -> None:
        """Number and identifier of some rows, in that order; rows are counted from 0 after the header."""
        write_csv(out, ["row", self.column], ([row, self.ids[row]] for row in rows.tolist()), self.delimiter)

    def write_whole(self, out: Path, rows: np.ndarray) -> None:
        """Whole rows, in that order, under the file's header: it is read again for them.

        Raises:
            InputError: the file was changed in the meantime.
        """
        wanted = set(rows.tolist())
        kept: dict[int, list[str]] = {}
        records = _records(self.path, self.delimiter)
        _, header = next(records, (0, [""]))
        place = header.index(self.column) if self.column in header else -1
        for row, (_, fields) in enumerate(records):
            if row in wanted and place >= 0 and fields[place] == self.ids[row]:
                kept[row] = fields
        if len(kept) != len(wanted):
            raise InputError(
                f"{self.path} was changed while it was compared: {len(wanted) - len(kept)} of {len(wanted)} common "
                "rows are not where they were; run again"
            )
        write_csv(out, header, (kept[row] for row in rows.tolist()), self.delimiter)


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Header and rows, each with the line where it begins, and as many fields as the header has."""
    line, width, blank = 0, 0, 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            for fields in reader:
                begin, line = line + 1, reader.line_num
                if not fields:  # a blank line, harmless at the end
                    blank = blank or begin
                    continue
                if blank:
                    raise InputError(f"{path}: line {blank} is blank; drop it")
                width = width or len(fields)
                if len(fields) != width:
                    raise InputError(f"{path}: line {begin} has {counted(len(fields), 'field')}, the header {width}")
                yield begin, fields
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8: byte {error.object[error.start]:#04x}, after line {line}; save it as UTF-8"
        ) from None
    except csv.Error as error:
        raise InputError(f"{path}: line {line + 1} is not CSV: {error}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def _place(path: Path, header: Sequence[str], column: str, delimiter: str) -> int:
    if header.count(column) > 1:
        raise InputError(f"{path} has {header.count(column)} columns called {column!r}; rename all but one")
    if column in header:
        return list(header).index(column)
    other = next((mark for mark in ";\t|," if mark != delimiter and mark in header[0]), None)
    if len(header) == 1 and other is not None:
        raise InputError(f"{path} has one column, {header[0]!r}; say --delimiter {other!r} if that separates fields")
    near = difflib.get_close_matches(column, header, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    more = ", …" if len(header) > _COLUMNS else ""
    listed = ", ".join(map(repr, header[:_COLUMNS]))
    raise InputError(f"{path} has no column {column!r}{hint} It has {listed}{more}".replace("' It has", "'. It has"))


def _lines(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    more = f" and {len(numbers) - _EXAMPLES} more" if len(numbers) > _EXAMPLES else ""
    return f"lines {', '.join(numbers[:_EXAMPLES])}{more}"


def require_writable(out: Path, *tables: Path) -> None:
    """A file for results that can probably be written, and that is none of the tables.

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
