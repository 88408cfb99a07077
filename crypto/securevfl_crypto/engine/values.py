"""What a kernel computes with while it is emitted: lanes and the interval that they lie in."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["MASK52", "BoundError", "Gain", "Mask", "Vec", "bounded_value", "grow_value"]

MASK52 = (1 << 52) - 1


class BoundError(ArithmeticError):
    """A kernel cannot be emitted: for some input a lane would overflow. A mistake in the arithmetic, not in data."""


@dataclass(frozen=True)
class Vec:
    """A vector of unsigned 64-bit lanes, each within [low, top].

    Attributes:
        name: SSA name or literal.
        low, top: bounds of every lane, inclusive.
        partial: only the 52 low bits mean anything (those above were carried on already); only products take such.
        origin, over: the value is at most `over` above what was loaded from `origin`, an array whose own bound grows
            from round to round (`columns`); None: it has no such relation.
        bias: the lanes hold the value plus this, modulo 2^64; only sums take such values (`doubles`).
    """

    name: str
    low: int
    top: int
    partial: bool = False
    origin: object = None
    over: int = 0
    bias: int = 0


@dataclass(frozen=True)
class Gain:
    """Bound of a carried value: at most `over` above what `origin` holds, which is at most `top`; and its bias."""

    origin: object
    top: int
    over: int
    bias: int = 0


@dataclass(frozen=True)
class Mask:
    """A vector of one-bit lanes."""

    name: str


def bounded_value(name: str, bound: int | Gain) -> Vec:
    """A value that a loop carries, of which only its bound is known."""
    if isinstance(bound, int):
        return Vec(name, 0, bound)
    return Vec(name, 0, bound.top + bound.over, origin=bound.origin, over=bound.over, bias=bound.bias)


def grow_value(result: Vec, before: Vec, by: int) -> Vec:
    """`result`, which is `before` and something of at most `by`."""
    return result if before.origin is None else replace(result, origin=before.origin, over=before.over + by)
