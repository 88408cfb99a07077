"""Parse dates in text, and split a date into the parts that a network reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["ORDERS", "date_orders", "date_parts", "parse_dates"]

_TIME = (
    r"(?:[T ]\s*(?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,][0-9]{1,9})?)?\s*"
    r"(?P<Z>Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
ORDERS = {
    "iso": r"^(?P<y>[0-9]{4})[-/.](?P<m>[0-9]{1,2})[-/.](?P<d>[0-9]{1,2})" + _TIME,
    "dotted": r"^(?P<d>[0-9]{1,2})\.\s?(?P<m>[0-9]{1,2})\.\s?(?P<y>[0-9]{4}|[0-9]{2})" + _TIME,
    "dmy": r"^(?P<d>[0-9]{1,2})[-/.](?P<m>[0-9]{1,2})[-/.](?P<y>[0-9]{4}|[0-9]{2})" + _TIME,
    "mdy": r"^(?P<m>[0-9]{1,2})[-/.](?P<d>[0-9]{1,2})[-/.](?P<y>[0-9]{4}|[0-9]{2})" + _TIME,
}
"""Supported date formats: year first, day first with points, day first, month first."""

_PIVOT = 69
"""Two-digit years from here on belong to the 20th century, as in POSIX."""
_DAY = 86400.0


def parse_dates(words: Sequence[str], order: str) -> np.ndarray:
    """Parse texts as days since 1970-01-01 with the time of day as a fraction, (len(words),) float64; NaN if a text is
    not a date.

    Args:
        words: texts.
        order: a key of `ORDERS`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.extract_regex(pc.utf8_trim_whitespace(pa.array(words, pa.string())), ORDERS[order])
    if not len(parts) or parts.null_count == len(parts):
        return np.full(len(words), np.nan)

    def read_field(name: str) -> np.ndarray:
        texts = parts.field(name)
        texts = pc.if_else(pc.and_(pc.is_valid(parts), pc.not_equal(texts, "")), texts, "0")
        found: np.ndarray = pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False)
        return found

    year, month, day, hour, minute, second = (read_field(name) for name in ("y", "m", "d", "H", "M", "S"))
    short = pc.fill_null(pc.equal(pc.binary_length(parts.field("y")), 2), False).to_numpy(zero_copy_only=False)
    year = np.where(short, year + np.where(year < _PIVOT, 2000, 1900), year)
    right = pc.is_valid(parts).to_numpy(zero_copy_only=False)
    right &= (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 61)
    months = (np.where(right, year, 1970) - 1970) * 12 + np.where(right, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    last = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    right &= day <= last - first
    days = first + day - 1 + (hour * 3600 + minute * 60 + second - _utc_offset(parts)) / _DAY
    return np.where(right, days, np.nan)


def date_orders(words: Sequence[str]) -> list[str]:
    """Return the orders in which all these texts are dates."""
    return [order for order in ORDERS if not np.isnan(parse_dates(words, order)).any()]


def date_parts(days: np.ndarray) -> dict[str, np.ndarray]:
    """Return year, month (1 to 12), weekday (0 is Monday) and hour of days since 1970-01-01; NaN stays NaN."""
    missing = np.isnan(days)
    whole = np.floor(np.where(missing, 0, days)).astype(np.int64)
    months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    found = {
        "year": 1970 + months // 12,
        "month": months % 12 + 1,
        "weekday": (whole + 3) % 7,
        "hour": (np.where(missing, 0, days) - whole) * 24,
    }
    return {name: np.where(missing, np.nan, values.astype(np.float64)) for name, values in found.items()}


def _utc_offset(parts: object) -> np.ndarray:
    """Return the seconds that a time is ahead of UTC."""
    zones = parts.field("Z").to_pylist()  # type: ignore[attr-defined]
    seconds = {None: 0, "": 0, "Z": 0}
    for zone in set(zones) - seconds.keys():
        sign = -1 if zone[0] == "-" else 1
        seconds[zone] = sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return np.array([seconds[zone] for zone in zones])
