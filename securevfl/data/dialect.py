"""How a CSV file is written: its encoding, what is between fields, what is before the fraction of a number. Found out
from the first bytes, or told."""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass

from securevfl.errors import InputError

__all__ = ["DELIMITERS", "HEAD", "CsvForm", "Dialect", "dialect_of"]

DELIMITERS = (",", ";", "\t", "|")
"""What may stand between fields."""
HEAD = 1 << 16
"""Bytes that are looked at."""
_LINES = 200
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SHEET = "save the sheet as CSV (in Excel: CSV UTF-8), and name that file"
_OTHERS = (
    (b"PK\x03\x04", f"an Excel workbook or a ZIP archive, and no CSV text: {_SHEET}"),
    (b"\xd0\xcf\x11\xe0", f"an old Excel workbook (.xls), and no CSV text: {_SHEET}"),
    (b"PAR1", "a Parquet file: give it a name that ends in .parquet"),
    (b"ARROW1", "an Arrow file: give it a name that ends in .arrow"),
    (b"\x1f\x8b", "packed by gzip: give it a name that ends in .csv.gz"),
    (b"BZh", "packed by bzip2: give it a name that ends in .csv.bz2"),
)
"""First bytes of files that are taken for CSV by mistake, and what they are."""
_SEP = re.compile(r"sep=(?P<delimiter>[,;\t|])", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?\d+,\d+|[+-]?\d{1,3}(\.\d{3})+(,\d+)?")
_POINT = re.compile(r"[+-]?\d+\.\d+")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


@dataclass(frozen=True)
class CsvForm:
    """What a user says of how a CSV file is written; None is found out.

    Attributes:
        delimiter: between fields: one of `DELIMITERS`.
        encoding: as Python names it, for example ``"cp1252"``.
        decimal: before the fraction of a number: ``"."`` or ``","``.

    Raises:
        InputError: one of them that is not possible.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and self.delimiter not in DELIMITERS:
            raise InputError(f"delimiter is {self.delimiter!r}; one of {', '.join(map(repr, DELIMITERS))} was expected")
        if self.decimal is not None and self.decimal not in (".", ","):
            raise InputError(f"decimal is {self.decimal!r}; '.' or ',' was expected")
        if self.decimal == "," == self.delimiter:
            raise InputError("delimiter and decimal are both ','; a number would be two fields: one of them is another")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise InputError(
                    f"encoding is {self.encoding!r}, which Python does not know; 'utf-8', 'cp1252' (Western Windows) "
                    "and 'utf-16' are common"
                ) from None


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written.

    Attributes:
        delimiter: between fields.
        encoding: of its text, as Python names it.
        decimal: before the fraction of a number.
        skip: lines before the header: 1 where a spreadsheet wrote ``sep=;`` there.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    skip: int = 0

    @property
    def words(self) -> str:
        """For messages, as ``semicolons between fields, cp1252, decimal comma``."""
        point = "comma" if self.decimal == "," else "point"
        return f"{_NAMES[self.delimiter]}s between fields, {self.encoding}, decimal {point}"


def dialect_of(head: bytes, where: str, told: CsvForm | None = None) -> Dialect:
    """The dialect of a file that begins so.

    The encoding is that of a byte order mark; else UTF-8 where the bytes are that; else cp1252, in which most bytes
    that are no UTF-8 were written in Western Europe. The delimiter is the one that cuts all of the first lines into the
    same number of fields, the most of them. A decimal comma is found where numbers have one and none has a point.

    Args:
        head: its first bytes, unpacked.
        where: the file, for messages.
        told: what a user says.

    Raises:
        InputError: bytes that are no text of the encoding that was told, or of any that is looked for.
    """
    told = told or CsvForm()
    _refuse_others(head, where)
    encoding = told.encoding or _encoding(head, where)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head.removeprefix(codecs.BOM_UTF8))
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not {encoding}: byte {error.start} of it is {head[error.start]:#04x}; name its encoding, for "
            "example encoding = 'cp1252'"
        ) from None
    lines = text.splitlines()[: _LINES + 1]
    if len(head) >= HEAD or len(lines) > _LINES:
        lines = lines[:-1] or lines  # the last one may be cut off
    named = _SEP.fullmatch(lines[0]) if lines else None
    lines = lines[1:] if named else lines
    delimiter = told.delimiter or (named["delimiter"] if named else _delimiter(lines))
    return Dialect(delimiter, encoding, told.decimal or _decimal(lines, delimiter), 1 if named else 0)


def _refuse_others(head: bytes, where: str) -> None:
    """Files of other kinds under the name of a CSV file, by their first bytes."""
    if not head.strip():
        raise InputError(f"{where} is empty: it has no header and no rows")
    for first, what in _OTHERS:
        if head.startswith(first):
            raise InputError(f"{where} is {what}")


def _encoding(head: bytes, where: str) -> str:
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    if b"\0" in head[:1000]:
        raise InputError(
            f"{where} has bytes of zero in its first line: it is no CSV text; if it is UTF-16 without a mark, say "
            "encoding = 'utf-16-le'"
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _rows(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []


def _delimiter(lines: list[str]) -> str:
    """The delimiter with the most fields among those with as many in each line; of equals, and of none, the first."""
    best, most = DELIMITERS[0], 1
    for delimiter in DELIMITERS:
        rows = _rows(lines, delimiter)
        sizes = {len(row) for row in rows}
        if len(sizes) == 1 and (size := sizes.pop()) > most:
            best, most = delimiter, size
    if most > 1:
        return best
    heads = {delimiter: len(_rows(lines[:1], delimiter)[0]) for delimiter in DELIMITERS if _rows(lines[:1], delimiter)}
    return max(heads, key=lambda one: heads[one], default=DELIMITERS[0])


def _decimal(lines: list[str], delimiter: str) -> str:
    if delimiter == ",":
        return "."
    fields = [field.strip() for row in _rows(lines, delimiter)[1:] for field in row]
    commas = sum(_COMMA.fullmatch(field) is not None for field in fields)
    points = sum(_POINT.fullmatch(field) is not None and _COMMA.fullmatch(field) is None for field in fields)
    return "," if commas and not points else "."
