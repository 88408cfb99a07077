"""Normalise identifiers by rules that both parties declare: under different rules they would silently lose rows."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from securevfl_psi.column import Identifiers, encode_identifier
from securevfl_psi.errors import IdentifierError

__all__ = [
    "MAX_ID_BYTES",
    "MISSING",
    "IdRules",
    "Identifiers",
    "ascii_column",
    "encode_identifier",
    "normalise",
    "normalise_column",
    "normalise_rows",
]

MAX_ID_BYTES = 1024
"""Longest normalised identifier, in UTF-8. A longer one is more likely a wrong column than an identifier."""
MISSING = frozenset(
    ["", "#N/A", "#NA", "<NA>", "N/A", "NA", "NAN", "NULL", "NaN", "NaT", "None", "Null", "n/a", "nan", "null"]
)
"""Texts that programs write for a missing value. As identifiers, they would match unrelated rows of two tables."""
_EXAMPLES = 3  # duplicates that an error quotes
_SPACES = re.compile(r"\s+")
_WHOLE_NUMBER = re.compile(r"\+?0*(0|[1-9][0-9]*)(?:\.0*)?")  # linear time: reads each digit a bounded number of times
# Default_Ignorable_Code_Point of Unicode 15.1, DerivedCoreProperties.txt. Unicode reserves whole ranges for the
# property, and these are complete, so characters that later versions add fall within them. NFKC_Casefold drops the
# same characters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_MOST_COLUMNS = 16
_SPACE = np.array([chr(code).isspace() for code in range(128)])


@dataclass(frozen=True, kw_only=True)
class IdRules:
    """Rules for normalising identifiers. The handshake compares their tags and refuses parties with different rules.

    Attributes:
        form: Unicode normalisation form, ``"NFKC"`` or ``"NFC"``.
        strip: drop white space at both ends.
        casefold: treat upper and lower case alike.
        squeeze: replace each run of white space inside by one space.
        numeric: write whole numbers in one way: ``+0042`` and ``42.0`` become ``42``.
        columns: how many columns make an identifier. With two or more, each row is a tuple of that many texts. Each
            text is normalised and prefixed with its length in bytes (``3:ann10:1970-01-01``, a netstring without the
            comma), so that two different rows never give the same identifier.

    Every form drops invisible characters (Unicode's Default_Ignorable_Code_Point: zero-width spaces and joiners, soft
    hyphens, direction marks, variation selectors, the byte-order mark).
    """

    form: Literal["NFC", "NFKC"] = "NFKC"
    strip: bool = True
    casefold: bool = False
    squeeze: bool = False
    numeric: bool = False
    columns: int = 1

    def __post_init__(self) -> None:
        if self.form not in ("NFC", "NFKC"):
            raise IdentifierError(f"Unicode form {self.form!r}; expected 'NFC' or 'NFKC'")
        if not isinstance(self.columns, int) or not 1 <= self.columns <= _MOST_COLUMNS:
            raise IdentifierError(f"columns={self.columns!r}; an identifier is made from 1 to {_MOST_COLUMNS} columns")

    def tag(self) -> str:
        """Return a short text that is equal for two rules exactly if the rules are equal."""
        chosen = [name for name in ("strip", "casefold", "squeeze", "numeric") if getattr(self, name)]
        return "/".join(["v2", self.form, *chosen, *([f"columns={self.columns}"] if self.columns > 1 else [])])

    def describe(self) -> str:
        """Describe the rules in words, for messages and reports."""
        parts = [
            f"Unicode {self.form} without invisible characters",
            "white space at both ends dropped" if self.strip else "white space kept",
            "case ignored" if self.casefold else "case kept",
            *(["one space for white space inside"] if self.squeeze else []),
            *(["whole numbers without sign, leading zeros and .0"] if self.numeric else []),
            *([f"{self.columns} columns make an identifier"] if self.columns > 1 else []),
        ]
        return ", ".join(parts)

    def apply(self, text: str) -> str:
        """Normalise one identifier."""
        if self.casefold:
            # Case folding can undo normalisation, and normalisation case folding: Unicode 15, section 3.13, D146.
            text = unicodedata.normalize(self.form, text).casefold()
        text = unicodedata.normalize(self.form, text)
        if not text.isascii() and _INVISIBLE.search(text):  # characters that become neighbours may compose
            text = unicodedata.normalize(self.form, _INVISIBLE.sub("", text))
        if self.squeeze:
            text = _SPACES.sub(" ", text)
        if self.strip:
            text = text.strip()
        found = _WHOLE_NUMBER.fullmatch(text) if self.numeric else None
        return text if found is None else found[1]


def normalise_column(ids: Iterable[object], rules: IdRules) -> Identifiers:
    """Normalise identifiers as `normalise`, into a column; many times faster if all are ASCII texts.

    Args:
        ids: one identifier per row, see `normalise`.
        rules: how to normalise.

    Raises:
        IdentifierError: as `normalise`.
    """
    if rules.columns > 1:
        return Identifiers.of_texts(normalise(ids, rules))
    raw: Sequence[object] = ids if isinstance(ids, list | Identifiers) else _require_column(ids)
    joined = _column_of_texts(raw)
    quick = None if joined is None else ascii_column(joined, rules)
    return Identifiers.of_texts(normalise(raw, rules)) if quick is None or quick.find_duplicates() else quick


def _require_assigned(text: str, row: int) -> None:
    """Raise if a character is unassigned.

    Normal forms and case folding of assigned characters never change (Unicode's stability policies). Those of others
    may, so two parties with different versions of Python could silently lose a row.
    """
    unknown = [char for char in text if unicodedata.category(char) == "Cn"]
    if unknown:
        raise IdentifierError(
            f"the identifier in row {row} contains U+{ord(unknown[0]):04X}, which Unicode "
            f"{unicodedata.unidata_version} does not assign: another version might normalise it differently; remove it"
        )


def _column_of_texts(raw: Sequence[object]) -> Identifiers | None:
    """Make a column, or return None if not all are texts."""
    try:
        return Identifiers.of_texts(raw)  # type: ignore[arg-type]
    except IdentifierError:
        return None


def ascii_column(column: Identifiers, rules: IdRules) -> Identifiers | None:
    """Normalise a column of ASCII texts that need at most a change of case; return None for all others.

    Does not check for duplicates.

    ASCII texts are in every normal form already (Unicode Standard Annex #15, section 3).
    """
    if not len(column) or not column.is_ascii() or column.lengths.min() == 0 or column.lengths.max() > MAX_ID_BYTES:
        return None
    if rules.numeric or (rules.squeeze and column.has_space()):
        return None
    if rules.strip and any(_SPACE[edge].any() for edge in column.edge_bytes()):
        return None
    return column.to_lower() if rules.casefold else column


def normalise(ids: Iterable[object], rules: IdRules) -> list[str]:
    """Normalise identifiers to texts, in their order.

    Args:
        ids: all texts, or all whole numbers, which are written in decimal; tuples of these if `IdRules.columns` is 2 or
            more.
        rules: how to normalise.

    Raises:
        IdentifierError: nulls, empty texts, other types, mixed types, texts that are not Unicode or longer than
            `MAX_ID_BYTES`, or identifiers that are equal once normalised; names the rows (counted from 0).
    """
    normal = normalise_rows(_require_column(ids), rules)
    _refuse_duplicates(normal)
    return normal


def normalise_rows(raw: Sequence[object], rules: IdRules) -> list[str]:
    """Normalise a part of a column as `normalise`, without a check for duplicates.

    Raises:
        IdentifierError: as for `normalise`, except duplicates.
    """
    return _normalise_tuples(raw, rules) if rules.columns > 1 else _normalise_values(raw, rules)


def _normalise_tuples(rows: Sequence[object], rules: IdRules) -> list[str]:
    """Normalise each column separately, then join the values of each row."""
    for row, value in enumerate(rows):
        if not isinstance(value, tuple) or len(value) != rules.columns:
            given = f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
            raise IdentifierError(
                f"the identifier in row {row} is {given}; expected a tuple of {rules.columns}, one value a column"
            )
    columns = [_normalise_values([row[i] for row in rows], rules) for i in range(rules.columns)]  # type: ignore[index]
    joined = ["".join(f"{len(part.encode())}:{part}" for part in parts) for parts in zip(*columns, strict=True)]
    for row, text in enumerate(joined):
        _require_short(text, row)
    return joined


def _normalise_values(raw: Sequence[object], rules: IdRules) -> list[str]:
    texts = [_to_text(value, row) for row, value in enumerate(raw)]
    kinds = {isinstance(value, str) for value in raw}
    if len(kinds) > 1:
        row = next(i for i, value in enumerate(raw) if isinstance(value, str) != isinstance(raw[0], str))
        raise IdentifierError(
            f"identifiers are of two types ({type(raw[0]).__name__} in row 0, {type(raw[row]).__name__} in row {row}): "
            "write all as text"
        )
    normal = [rules.apply(text) for text in texts]
    for row, text in enumerate(normal):
        if not text:
            raise IdentifierError(f"the identifier in row {row} is empty; give it one or drop the row")
        if not text.isascii():
            _require_assigned(text, row)
        _require_short(text, row)
    return normal


def _require_short(text: str, row: int) -> None:
    size = len(encode_identifier(text, row))
    if size > MAX_ID_BYTES:
        raise IdentifierError(
            f"the identifier in row {row} has {size} bytes; at most {MAX_ID_BYTES}: is it the right column?"
        )


def _require_column(ids: Iterable[object]) -> list[object]:
    if isinstance(ids, str | bytes | bytearray):
        raise IdentifierError(f"identifiers are one {type(ids).__name__}, not a column: pass a list with one per row")
    return list(ids)


def _to_text(value: object, row: int) -> str:
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        raise IdentifierError(f"the identifier in row {row} is null; give it one or drop the row")
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
        number = int(value)
        if number.bit_length() > 8 * MAX_ID_BYTES:  # before Python refuses to write it in decimal
            raise IdentifierError(
                f"the identifier in row {row} has {number.bit_length()} bits; at most {MAX_ID_BYTES} digits"
            )
        return str(number)
    raise IdentifierError(f"the identifier in row {row} is a {type(value).__name__}; expected a text or a whole number")


def _refuse_duplicates(normal: Sequence[str]) -> None:
    if len(set(normal)) == len(normal):
        return
    first: dict[str, int] = {}
    found = []
    for row, text in enumerate(normal):
        if text in first:
            found.append(f"{text!r} in rows {first[text]} and {row}")
        first.setdefault(text, row)
    more = f" and {len(found) - _EXAMPLES} more" if len(found) > _EXAMPLES else ""
    raise IdentifierError(
        f"{len(found)} identifiers occur more than once after normalisation: {'; '.join(found[:_EXAMPLES])}{more}: "
        "keep one row for each"
    )
