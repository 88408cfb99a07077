"""Fields with one value: numbers, texts, choices, objects of a class. Also formats refused values for messages."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

__all__ = [
    "Accepts",
    "AcceptsChoice",
    "AcceptsNumber",
    "AcceptsText",
    "Bounds",
    "Exact",
    "Mistakes",
    "Whatever",
    "format_value",
    "suggest_nearest",
]

Mistakes = list[str]
"""Sentences with the path, the value found and the value expected."""

_LONGEST = 80


class Accepts(Protocol):
    """Accepts values of one annotation.

    Attributes:
        expected: the accepted values, in words: ``"a whole number from 1 to 100"``.
    """

    @property
    def expected(self) -> str:
        """The accepted values, in words."""
        ...

    def has_type(self, value: object, *, plain: bool) -> bool:
        """Return True if the value has the right type; does not check bounds."""
        ...

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """Convert a value to the field's form.

        Args:
            value: as given.
            path: its path, for messages.
            found: collects mistakes; after a mistake the result is meaningless.
            plain: whether it comes from a file, where configurations are still mappings.
        """
        ...


def format_value(value: object) -> str:
    """Format a value for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def suggest_nearest(name: object, known: Iterable[str]) -> str:
    """``"; did you mean 'adam'? Known: 'adam', 'sgd'"``, without the question if no name is near."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name).lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    listed = ", ".join(map(repr, names))
    return next((f"; did you mean {n!r}? Known: {listed}" for n in names if near and n.lower() == near[0]), "") or (
        f"; known: {listed}"
    )


class Leaf:
    """Base class for values without parts: one sentence for every mistake."""

    expected: str

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        raise NotImplementedError

    def _refuse_value(self, value: object, path: str, found: Mistakes, reason: str = "") -> None:
        found.append(
            f"{path} is {format_value(value)}; {self.expected} was expected" + (f": {reason}" if reason else "")
        )


@dataclass(frozen=True)
class Bounds:
    """Bounds of a number or of a length."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    reason: str = ""

    @property
    def is_bounded(self) -> bool:
        """Return True if there is any bound."""
        return (self.low, self.high, self.above, self.below) != (None, None, None, None)

    def allows_value(self, value: float) -> bool:
        """Check the bounds; NaN fails any bound."""
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def describe_range(self) -> str:
        """``" from 1 to 100"``, ``" above 0 and up to 1"``; empty without bounds."""
        low = f" from {_format_number(self.low)}" if self.low is not None else ""
        low = f" above {_format_number(self.above)}" if self.above is not None else low
        high = f" up to {_format_number(self.high)}" if self.high is not None else ""
        high = f" below {_format_number(self.below)}" if self.below is not None else high
        if self.high is not None and low.startswith(" from"):
            return f"{low} to {_format_number(self.high)}"
        return low + (" and" if low and high else "") + high

    def describe_count(self, unit: str) -> str:
        """``"1 to 5 letters"``, ``"1 or more letters"``, ``"up to 5 letters"``."""
        if self.low is None:
            return f"up to {_format_number(self.high)} {unit}"
        return (
            f"{_format_number(self.low)} {'or more' if self.high is None else f'to {_format_number(self.high)}'} {unit}"
        )


def _format_number(value: float | None) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


class AcceptsNumber(Leaf):
    """A whole number, or any finite number. Booleans are refused; numpy scalars become Python numbers."""

    def __init__(self, kind: type[int] | type[float], bounds: Bounds) -> None:
        self._whole = kind is int
        self._bounds = bounds
        self.expected = ("a whole number" if self._whole else "a number") + bounds.describe_range()

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        if isinstance(value, bool):
            return False
        return hasattr(value, "__index__") if self._whole else isinstance(value, numbers.Real)

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        if self.has_type(value, plain=plain):
            try:
                number = operator.index(value) if self._whole else float(value)  # type: ignore[arg-type]
            except (OverflowError, TypeError):
                number = math.nan
            if not self._bounds.is_bounded or (math.isfinite(number) and self._bounds.allows_value(number)):
                return number
        self._refuse_value(value, path, found, self._bounds.reason)
        return value


class Exact(Leaf):
    """An object of a class, unchanged."""

    def __init__(self, kind: type, expected: str) -> None:
        self._kind = kind
        self.expected = expected

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        return isinstance(value, self._kind)

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        if not self.has_type(value, plain=plain):
            self._refuse_value(value, path, found)
        return value


class AcceptsText(Exact):
    """A text, with bounded length if the annotation sets bounds."""

    def __init__(self, length: Bounds) -> None:
        self._length = length
        super().__init__(str, "a text" + (f" of {length.describe_count('letters')}" if length.is_bounded else ""))

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        if not isinstance(value, str) or not self._length.allows_value(len(value)):
            self._refuse_value(value, path, found)
        return value


class AcceptsChoice(Leaf):
    """One of the values of a `Literal`, or a member of an enumeration, also given by its value."""

    def __init__(self, members: Mapping[object, object], enumeration: type[Enum] | None = None) -> None:
        self._members = members
        self._enumeration = enumeration
        self.expected = "one of " + ", ".join(map(repr, members))

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        return any(type(value) is type(known) for known in self._members) or self._is_member(value)

    def _is_member(self, value: object) -> bool:
        return self._enumeration is not None and isinstance(value, self._enumeration)

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        if self._is_member(value):
            return value
        for known, member in self._members.items():
            if type(value) is type(known) and value == known:
                return member
        texts = [known for known in self._members if isinstance(known, str)]
        if isinstance(value, str) and texts:
            found.append(f"{path} is {format_value(value)}{suggest_nearest(value, texts)}")
        else:
            self._refuse_value(value, path, found)
        return value


class Whatever:
    """Anything."""

    expected = "anything"

    def has_type(self, value: object, *, plain: bool) -> bool:
        """See `Accepts.has_type`."""
        return True

    def convert_value(self, value: object, path: str, found: Mistakes, *, plain: bool) -> object:
        """See `Accepts.convert_value`."""
        return value
