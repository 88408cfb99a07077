"""The kinds of fields, and the tokens of their values: two values are as similar as their sets of tokens."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, Protocol

import numpy as np

from securevfl_psi.errors import LinkageError

__all__ = ["Code", "Date", "FieldKind", "Number", "Text"]

MAX_CHARACTERS = 1024
_PAD = "\x02"
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ].*)?", re.ASCII)
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)", re.ASCII)
_LOCAL = re.compile(r"(\d\d?)[./-](\d\d?)[./-](\d{4})", re.ASCII)


class FieldKind(Protocol):
    """How one field's values become tokens. Implementations are frozen dataclasses, so that their `repr` is a tag."""

    def normalise_value(self, value: object) -> str | None:
        """Normalise a value for comparison; None for an empty value.

        Raises:
            LinkageError: this kind cannot read the value; the caller adds field and row to the message.
        """

    def make_tokens(self, normal: str) -> list[str]:
        """Tokens of a normal form, without repetition, in a fixed order; at least one."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """Names and addresses, by their q-grams: one wrong letter changes q of them.

    Normal form: Unicode NFKD, without marks (é is e), case folded, all but letters and digits one space.

    Attributes:
        q: letters in a token, 1 to 4. Values are padded by q - 1 at both ends, so first and last letters count in full.
    """

    q: int = 2

    def __post_init__(self) -> None:
        _require_valid(1 <= self.q <= 4, f"q-grams of q = {self.q!r}; 1 to 4 are possible")

    def normalise_value(self, value: object) -> str | None:
        """See `FieldKind.normalise_value`."""
        text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", _as_text(value)).casefold())
        letters = (c if c.isalnum() else " " for c in text if not unicodedata.combining(c))
        return " ".join("".join(letters).split()) or None

    def make_tokens(self, normal: str) -> list[str]:
        """See `FieldKind.make_tokens`."""
        return list(dict.fromkeys(_split_grams(normal, self.q)))


@dataclass(frozen=True, kw_only=True)
class Code:
    """Postcodes, house numbers, codes: characters in their places.

    Normal form: Unicode NFKC, case folded, letters and digits only.

    Attributes:
        q: characters in a token, 1 to 4.
        positional: a token counts only in its place. Two exchanged digits change more, an inserted one changes all
        after.
    """

    q: int = 1
    positional: bool = True

    def __post_init__(self) -> None:
        _require_valid(1 <= self.q <= 4, f"q-grams of q = {self.q!r}; 1 to 4 are possible")

    def normalise_value(self, value: object) -> str | None:
        """See `FieldKind.normalise_value`."""
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _as_text(value)).casefold())
        return "".join(c for c in text if c.isalnum()) or None

    def make_tokens(self, normal: str) -> list[str]:
        """See `FieldKind.make_tokens`."""
        grams = _split_grams(normal, self.q)
        return [f"{i}:{gram}" for i, gram in enumerate(grams)] if self.positional else list(dict.fromkeys(grams))


@dataclass(frozen=True, kw_only=True)
class Date:
    """A calendar date, compared by its eight digits in their places, and by its year, month and day.

    Accepted are date objects, ``1999-12-31`` (a time may follow), ``19991231`` as text or number, and ``31.12.1999``
    with other separators. Year, month and day are kept as written, even if the day does not exist (``19990231``), so
    that a typing error in one part does not lose the others.

    Attributes:
        order: the order of day and month if the year comes last.
    """

    order: Literal["day first", "month first"] = "day first"

    def __post_init__(self) -> None:
        _require_valid(
            self.order in ("day first", "month first"),
            f"date order {self.order!r}; expected 'day first' or 'month first'",
        )

    def normalise_value(self, value: object) -> str | None:
        """See `FieldKind.normalise_value`."""
        if isinstance(value, np.datetime64):
            value = None if np.isnat(value) else str(value.astype("datetime64[D]"))
        if isinstance(value, date | datetime):
            return value.strftime("%Y%m%d").zfill(8)
        text = _as_text(value).strip()
        if not text:
            return None
        if found := _ISO.fullmatch(text) or _COMPACT.fullmatch(text):
            return "".join(found.groups())
        if found := _LOCAL.fullmatch(text):
            first, second, year = found.groups()
            day, month = (first, second) if self.order == "day first" else (second, first)
            return f"{year}{int(month):02d}{int(day):02d}"
        raise LinkageError("is not a date: write it as 1999-12-31, 19991231 or 31.12.1999, or leave it out (None)")

    def make_tokens(self, normal: str) -> list[str]:
        """See `FieldKind.make_tokens`."""
        year, month, day = normal[:4], normal[4:6], normal[6:]
        places = [f"{i}:{digit}" for i, digit in enumerate(normal)]
        return [*places, f"y{year}", f"m{month}", f"d{day}"]


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number, close to its neighbours: two values share about ``1 - |x - y| / (reach + step)`` of their tokens.

    Neighbourhood tokens (Vatsalan and Christen, "Privacy-preserving matching of similar patients", Journal of
    Biomedical Informatics, 2016): the grid points around the value.

    Attributes:
        step: the distance of two grid points, in the field's units.
        reach: the distance within which two values share tokens; tokens are the grid points within half of it.
    """

    step: float
    reach: float

    def __post_init__(self) -> None:
        good = math.isfinite(self.step) and math.isfinite(self.reach) and 0 < self.step <= self.reach <= 256 * self.step
        _require_valid(good, f"step {self.step!r} and reach {self.reach!r}; 0 < step <= reach <= 256 step is needed")

    def normalise_value(self, value: object) -> str | None:
        """See `FieldKind.normalise_value`."""
        text = _as_text(value).strip()
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            raise LinkageError("is not a number: clean the column, or leave the value out (None)") from None
        place = number / self.step
        if not abs(place) < 2**53:  # also nan and the infinities
            raise LinkageError("is not a number on the grid: clean the column, or leave the value out (None)")
        return str(round(place))

    def make_tokens(self, normal: str) -> list[str]:
        """See `FieldKind.make_tokens`."""
        centre, half = int(normal), max(1, round(self.reach / self.step / 2))
        return [str(place) for place in range(centre - half, centre + half + 1)]


def _split_grams(text: str, q: int) -> list[str]:
    padded = _PAD * (q - 1) + text + _PAD * (q - 1)
    return [padded[i : i + q] for i in range(len(padded) - q + 1)]


def _as_text(value: object) -> str:  # noqa: PLR0911
    """A value as text, empty for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        if len(value) > MAX_CHARACTERS:
            raise LinkageError(
                f"has {len(value)} characters; at most {MAX_CHARACTERS} are possible: is this the right column?"
            )
        return value
    if isinstance(value, bool | np.bool_):
        raise LinkageError("is a truth value; texts, numbers and dates are possible")
    if isinstance(value, int | np.integer):
        return str(int(value)) if abs(int(value)) < 2**64 else _too_large()
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return ""
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' nulls, without needing pandas
        return ""
    if isinstance(value, date):
        return value.isoformat()
    raise LinkageError(f"is a {type(value).__name__}; texts, numbers and dates are possible")


def _too_large() -> str:
    raise LinkageError("is a whole number beyond 2^64; write it as text")


def _require_valid(condition: bool, message: str) -> None:
    if not condition:
        raise LinkageError(message)
