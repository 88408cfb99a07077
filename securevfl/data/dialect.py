"""The dialect of a CSV file: encoding, delimiter and decimal mark, detected or given by the user."""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass

from securevfl_net.table_formats import foreign_format

from securevfl.errors import InputError

__all__ = ["DELIMITERS", "HEAD", "CsvForm", "Dialect", "dialect_of"]

DELIMITERS = (",", ";", "\t", "|")
"""Possible delimiters."""
HEAD = 1 << 16
"""Bytes examined."""
_LINES = 200
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SEP = re.compile(r"sep=(?P<delimiter>[,;\t|])", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?\d+,\d+|[+-]?\d{1,3}(\.\d{3})+(,\d+)?")
_POINT = re.compile(r"[+-]?\d+\.\d+")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


@dataclass(frozen=True)
class CsvForm:
    """The dialect as the user gives it; None means detect.

    Attributes:
        delimiter: one of `DELIMITERS`.
        encoding: Python's name of it, for example ``"cp1252"``.
        decimal: the decimal mark, ``"."`` or ``","``.

    Raises:
        InputError: an impossible value.
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
            raise InputError("delimiter and decimal are both ',', so a number would be two fields: change one of them")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise InputError(
                    f"encoding is {self.encoding!r}, which Python does not support; 'utf-8', 'cp1252' (Western "
                    "Windows) and 'utf-16' are common"
                ) from None


@dataclass(frozen=True)
class Dialect:
    """The dialect of a CSV file.

    Attributes:
        delimiter: between fields.
        encoding: of its text, Python's name.
        decimal: the decimal mark.
        skip: lines before the header: 1 if a spreadsheet wrote ``sep=;`` there.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    skip: int = 0

    @property
    def description(self) -> str:
        """The dialect for messages, as in ``semicolons between fields, cp1252, decimal comma``."""
        point = "comma" if self.decimal == "," else "point"
        return f"{_NAMES[self.delimiter]}s between fields, {self.encoding}, decimal {point}"


def dialect_of(head: bytes, where: str, told: CsvForm | None = None) -> Dialect:
    """Detect a file's dialect from its first bytes.

    The encoding is that of a byte order mark; otherwise UTF-8 if the bytes are valid UTF-8; otherwise cp1252, the most
    common legacy encoding in Western Europe. The delimiter is the one that splits the first lines into the same number
    of fields, and into the most. The decimal mark is a comma if numbers have one and none has a point.

    Args:
        head: its first bytes, decompressed.
        where: the file, for messages.
        told: the dialect that the user gave.

    Raises:
        InputError: the bytes are not text in the given encoding, or in any detected one.
    """
    told = told or CsvForm()
    _refuse_others(head, where)
    encoding = told.encoding or _detect_encoding(head, where)
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
    delimiter = told.delimiter or (named["delimiter"] if named else _detect_delimiter(lines))
    return Dialect(delimiter, encoding, told.decimal or _detect_decimal(lines, delimiter), 1 if named else 0)


def _refuse_others(head: bytes, where: str) -> None:
    """Refuse files of other formats that are named as CSV, by their first bytes."""
    if not head.strip():
        raise InputError(f"{where} is empty: it has no header and no rows")
    if what := foreign_format(head):
        raise InputError(f"{where} is {what}")


def _detect_encoding(head: bytes, where: str) -> str:
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    if b"\0" in head[:1000]:
        raise InputError(
            f"{where} has zero bytes in its first line, so it is not CSV text; if it is UTF-16 without a byte "
            "order mark, set encoding = 'utf-16-le'"
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _split_rows(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []


def _detect_delimiter(lines: list[str]) -> str:
    """Return the delimiter that gives the most fields, the same number in each line; the first one on a tie or if none
    fits.
    """
    best, most = DELIMITERS[0], 1
    for delimiter in DELIMITERS:
        rows = _split_rows(lines, delimiter)
        sizes = {len(row) for row in rows}
        if len(sizes) == 1 and (size := sizes.pop()) > most:
            best, most = delimiter, size
    if most > 1:
        return best
    heads = {
        delimiter: len(_split_rows(lines[:1], delimiter)[0])
        for delimiter in DELIMITERS
        if _split_rows(lines[:1], delimiter)
    }
    return max(heads, key=lambda one: heads[one], default=DELIMITERS[0])


def _detect_decimal(lines: list[str], delimiter: str) -> str:
    if delimiter == ",":
        return "."
    fields = [field.strip() for row in _split_rows(lines, delimiter)[1:] for field in row]
    commas = sum(_COMMA.fullmatch(field) is not None for field in fields)
    points = sum(_POINT.fullmatch(field) is not None and _COMMA.fullmatch(field) is None for field in fields)
    return "," if commas and not points else "."
