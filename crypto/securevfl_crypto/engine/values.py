"""What a kernel computes with while it is emitted: lanes and the interval that they lie in."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["MASK52", "BoundError", "Gain", "Mask", "Vec", "bounded_value", "grow_value"]

MASK52 = (1 << 52) - 1


class BoundError(ArithmeticError):
    """A kernel cannot be emitted: for some input a lane would overflow. A mistake in the arithmetic, not in data."""


@dataclass(frozen=True)
class Vec:
    """A vector of 64-bit lanes, each of which stands for an integer within [low, top].

    *Plain* lanes are that integer, unsigned: the operations of `emitter.Function` take no others. Those of
    `doubles.Doubles` also take wrapped lanes and doubles, whose integers may be negative.

    Attributes:
        name: SSA name or literal.
        low, top: bounds of every lane's integer, inclusive.
        partial: only the 52 low bits mean anything (those above were carried on already); only products take such.
        origin, over: the value is at most `over` above what was loaded from `origin`, an array whose own bound grows
            from round to round (`columns`); None: it has no such relation.
        offset: not None: the lanes are *wrapped*: the integer plus this, modulo 2^64.
        double: the lanes are doubles, and the integer is their exact value.
    """

    name: str
    low: int
    top: int
    partial: bool = False
    origin: object = None
    over: int = 0
    offset: int | None = None
    double: bool = False

    @property
    def plain(self) -> bool:
        """Whether the lanes are unsigned integers."""
        return self.offset is None and not self.double


@dataclass(frozen=True)
class Gain:
    """Bound of a carried value: at most `over` above what `origin` holds, which is at most `top`; and its offset."""

    origin: object
    top: int
    over: int
    offset: int | None = None


@dataclass(frozen=True)
class Mask:
    """A vector of one-bit lanes."""

    name: str


def bounded_value(name: str, bound: int | Gain | Vec) -> Vec:
    """A value that a loop carries, of which only its bound is known."""
    if isinstance(bound, Vec):
        return replace(bound, name=name)
    if isinstance(bound, int):
        return Vec(name, 0, bound)
    return Vec(name, 0, bound.top + bound.over, origin=bound.origin, over=bound.over, offset=bound.offset)


def grow_value(result: Vec, before: Vec, by: int) -> Vec:
    """`result`, which is `before` and something of at most `by`."""
    return result if before.origin is None else replace(result, origin=before.origin, over=before.over + by)
