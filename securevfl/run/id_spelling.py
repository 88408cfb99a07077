"""Find identifiers that two tables spell differently. Only for somebody who may see both tables: in a simulation, or
before a job between companies is drafted from samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

from securevfl.align.result import RULES

__all__ = ["find_spellings"]

_LEAST = 0.02
"""Report a spelling if it would add at least this share of the smaller table to the common rows."""
_FEWEST = 3
_POINT_ZERO = re.compile(r"(?<=[0-9])\.0+$")
_MARKS = re.compile(r"[\s./_\-]+")


def _normalise_spelling(text: str) -> str:
    return _no_zeros(_MARKS.sub("", _POINT_ZERO.sub("", text).casefold()))


def _no_zeros(text: str) -> str:
    return text.lstrip("0") or text[-1:] if text.isdigit() else text


_WAYS: dict[str, Callable[[str], str]] = {
    "without leading zeros": _no_zeros,
    "without '.0' at the end": lambda text: _POINT_ZERO.sub("", text),
    "with capitals and small letters as one": str.casefold,
    "without spaces, hyphens, points and slashes": lambda text: _MARKS.sub("", text),
    "without leading zeros, '.0' at the end, capitals, spaces, hyphens, points and slashes": _normalise_spelling,
}
"""Ways to normalise identifiers, the smallest change first; the last one applies all changes."""


def find_spellings(ids: Mapping[str, Iterable[str]]) -> list[str]:
    """A sentence for each two tables that would have more identifiers in common if both wrote them alike.

    Args:
        ids: what to call a table → its identifiers.
    """
    plain = {name: {RULES.apply(text) for text in some} for name, some in ids.items()}
    found = []
    for one, other in combinations(plain, 2):
        common = len(plain[one] & plain[other])
        mine, theirs = plain[one] - plain[other], plain[other] - plain[one]
        most, best = 0, ""
        for how, way in _WAYS.items():
            gained = _count_matches(mine, theirs, way)
            if gained > most:
                most, best = gained, how
        smaller = min(len(plain[one]), len(plain[other]))
        if most >= max(_FEWEST, _LEAST * smaller):
            found.append(
                f"{common or 'no'} identifiers of {one} are in {other}; {best}, {most:,} {'more ' * bool(common)}would "
                "be: write them alike in both"
            )
    return found


def _count_matches(mine: set[str], theirs: set[str], way: Callable[[str], str]) -> int:
    """How many additional identifiers would match; those that become equal within one table count once."""
    return len({way(text) for text in mine} & {way(text) for text in theirs})
