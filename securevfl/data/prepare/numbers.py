"""Parse numbers in text: decimal comma or point, thousands separators, currencies, percent, brackets for negative
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["decimal_marks", "parse_numbers"]

_SPACE = "\u00a0\u202f\u2009 "
_MONEY = r"(?:[$€£¥₹]|CHF|EUR|USD|GBP|JPY|SEK|NOK|DKK|PLN|Fr\.|kr\.?|zł)"
_WHOLE = (
    rf"^(?P<bracket>\(?)[{_SPACE}]*(?P<first>[-+−]?)[{_SPACE}]*{_MONEY}?[{_SPACE}]*(?P<second>[-+−]?)[{_SPACE}]*"
    rf"(?P<digits>[0-9][0-9.,'’{_SPACE}]*?|[.,][0-9]+)(?P<power>(?:[eE][-+]?[0-9]{{1,3}})?)[{_SPACE}]*"
    rf"(?P<unit>%|‰?)[{_SPACE}]*{_MONEY}?[{_SPACE}]*(?P<end>\)?)$"
)
_UNITS = {"%": 1e-2, "‰": 1e-3}


def decimal_marks(words: Sequence[str]) -> set[str]:
    """Return the decimal marks that these texts require: ``{","}`` for ``1.234,5`` or ``0,75``, none for ``1,234``,
    both if texts contradict each other.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = _split_numbers(words)
    digits = parts.filter(pc.is_valid(parts)).field("digits") if len(parts) else pa.array([], pa.string())
    found = set()
    for mark, other in ((".", r","), (",", r"\.")):
        at = rf"\{mark}"
        shapes = (
            rf"{other}[0-9.,'’{_SPACE}]*{at}[0-9]*$",  # the last of both
            rf"{other}[0-9]{{3}}{other}",  # what comes several times groups digits
            rf"^[^{at}]*{at}(?:[0-9]{{0,2}}|[0-9]{{4,}})$",  # not three digits after it
            rf"^(?:0+|[0-9]{{4,}}|){at}[0-9]{{3}}$",  # no group of three before it
            rf"^[0-9]{{1,3}}(?:['’{_SPACE}][0-9]{{3}})+{at}[0-9]*$",
        )
        if any(bool(pc.any(pc.match_substring_regex(digits, shape)).as_py()) for shape in shapes):
            found.add(mark)
    return found


def parse_numbers(words: Sequence[str], decimal: str) -> np.ndarray:
    """Parse texts as numbers, (len(words),) float64; NaN if a text is not a number.

    Args:
        words: texts.
        decimal: the decimal mark, ``"."`` or ``","``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = _split_numbers(words)
    if not len(parts) or parts.null_count == len(parts):
        return np.full(len(words), np.nan)
    digits, at = parts.field("digits"), rf"\{decimal}"
    group = "." if decimal == "," else ","
    shape = (
        rf"^(?:[0-9]+|[0-9]{{1,3}}(?:\{group}[0-9]{{3}})+|[0-9]{{1,3}}(?:['’][0-9]{{3}})+|"
        rf"[0-9]{{1,3}}(?:[{_SPACE}][0-9]{{3}})+)(?:{at}[0-9]*)?$|^{at}[0-9]+$"
    )
    right = pc.match_substring_regex(digits, shape)
    brackets = pc.equal(parts.field("bracket"), "("), pc.equal(parts.field("end"), ")")
    right = pc.and_(right, pc.equal(*brackets))
    plain = pc.replace_substring(pc.replace_substring_regex(digits, rf"[^0-9{at}]", ""), decimal, ".")
    plain = pc.binary_join_element_wise(plain, parts.field("power"), "")
    valid = pc.and_(pc.is_valid(parts), right)
    numbers = pc.cast(pc.if_else(valid, plain, pa.scalar(None, pa.string())), pa.float64())
    values = np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
    signs = [pc.is_in(parts.field(name), value_set=pa.array(["-", "−"])) for name in ("first", "second")]
    negative = sum((_to_flags(sign).astype(np.int8) for sign in signs), _to_flags(brackets[0]).astype(np.int8))
    values = np.where(negative > 1, np.nan, np.where(negative == 1, -values, values))
    for unit, factor in _UNITS.items():
        values = np.where(_to_flags(pc.equal(parts.field("unit"), unit)), values * factor, values)
    return values


def _split_numbers(words: Sequence[str]) -> Any:
    """Split texts that may be numbers into their parts; null for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.extract_regex(pc.utf8_trim_whitespace(pa.array(words, pa.string())), _WHOLE)


def _to_flags(values: Any) -> np.ndarray:
    import pyarrow.compute as pc

    found: np.ndarray = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found
