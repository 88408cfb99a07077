"""Hashing's second half: two field elements to two points of the curve, and their sum (RFC 9380, sections 3 and 6.7.1).

The map follows the formulas of RFC 9380, appendix G.2.1, without inversions and without branches; the sum stays a
fraction, which `ladder.emit_division` turns into a coordinate.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import Vec
from securevfl_crypto.engine.field import Element, Field, P
from securevfl_crypto.engine.ladder import load_planes, store_fraction

__all__ = ["emit_map_and_add", "emit_root_power"]

_J = 486662
_SQRT_MINUS_1 = pow(2, (P - 1) // 4, P)
_ROOT = pow(2, (P + 3) // 8, P)  # c2 of the RFC


def emit_root_power(field: Field) -> None:
    """``(out, z)``: z^((p − 5)/8) of two elements side by side; (p − 5)/8 = 2^252 − 3 = 4 (2^250 − 1) + 1."""
    f, n = field.f, field.count

    def square(x: str, times: int) -> str:
        out = f.allocate(2 * n)
        f.call("squarings2", f"ptr {out}", f"ptr {x}", f"i64 {times}")
        return out

    def mul(x: str, y: str, out: str | None = None) -> str:
        out = out or f.allocate(2 * n)
        for k in range(2):
            a, b, c = (f.emit_scalar(f"getelementptr {f.type}, ptr {p}, i64 {k * n}") for p in (out, x, y))
            f.call("multiplication", f"ptr {a}", f"ptr {b}", f"ptr {c}")
        return out

    e2 = mul(square("%z", 1), "%z")  # e_n: exponent 2^n − 1
    e4 = mul(square(e2, 2), e2)
    e5 = mul(square(e4, 1), "%z")
    e10 = mul(square(e5, 5), e5)
    e20 = mul(square(e10, 10), e10)
    e40 = mul(square(e20, 20), e20)
    e50 = mul(square(e40, 10), e10)
    e100 = mul(square(e50, 50), e50)
    e200 = mul(square(e100, 100), e100)
    e250 = mul(square(e200, 50), e50)
    mul(square(e250, 2), "%z", "%out")


class _Called:
    """Products by calls instead of inline: the map has about a hundred, and compiling them all would take seconds."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._slots = [field.f.allocate(field.count) for _ in range(3)]

    def mul(self, a: Element, b: Element) -> Element:
        """a · b, settled."""
        out, left, right = self._slots
        for element, slot in ((a, left), (b, right)):
            self.field.store(self.field.settle(element), slot)
        self.field.f.call("multiplication", f"ptr {out}", f"ptr {left}", f"ptr {right}")
        return self.field.load(out)

    def square(self, a: Element) -> Element:
        """a², settled."""
        out, operand, _ = self._slots
        self.field.store(self.field.settle(a), operand)
        self.field.f.call("squarings1", f"ptr {out}", f"ptr {operand}", "i64 1")
        return self.field.load(out)


class _Map:
    """One application of the map; its power is computed between `base` and `point`, for two maps at a time."""

    def __init__(self, field: Field, called: _Called, u: Element) -> None:
        self.field, self.u, self._called = field, u, called
        mul, sqr = called.mul, called.square
        settle = field.settle
        u2 = sqr(u)
        self.tv1 = settle(field.add(u2, u2))  # 2u²
        self.xd = settle(field.add(self.tv1, field.constant(1)))
        self.gxd = mul(sqr(self.xd), self.xd)
        minus_j = field.constant(-_J)
        gx1 = mul(field.constant(_J), self.tv1)  # (x1n + J xd) with x1n = −J
        gx1 = mul(gx1, minus_j)
        gx1 = settle(field.add(gx1, sqr(self.xd)))
        self.gx1 = mul(gx1, minus_j)
        gxd2 = sqr(self.gxd)
        self.tv3 = mul(mul(gxd2, self.gxd), self.gx1)  # gx1 gxd³
        self.base = mul(sqr(gxd2), self.tv3)  # gx1 gxd⁷

    def map_point(self, root: Element) -> tuple[Element, Element, Element]:
        """x's numerator and denominator, and y, given (gx1 gxd⁷)^((p−5)/8)."""
        field, f = self.field, self.field.f
        mul, sqr = self._called.mul, self._called.square
        y11 = mul(root, self.tv3)
        y1 = self._right_root(y11, self.gx1)
        x1n = field.constant(-_J)
        x2n = mul(x1n, self.tv1)
        y21 = mul(mul(y11, self.u), field.constant(_ROOT))
        y2 = self._right_root(y21, mul(self.gx1, self.tv1))
        first = field.is_zero(field.sub(mul(sqr(y1), self.gxd), self.gx1))
        xn = field.select(first, x1n, x2n)
        y = field.select(first, y1, y2)
        flip = f.xor_masks(first, field.is_odd(y))
        return xn, self.xd, field.select(flip, field.settle(field.sub(field.constant(0), y)), y)

    def _right_root(self, y: Element, gx: Element) -> Element:
        """y or y √−1, whichever squares to gx / gxd, if one does."""
        field = self.field
        fits = field.is_zero(field.sub(self._called.mul(self._called.square(y), self.gxd), gx))
        return field.select(fits, y, self._called.mul(y, field.constant(_SQRT_MINUS_1)))


def emit_map_and_add(field: Field) -> None:
    """``(planes in, i64 stride, num, den, i64 blocks)``: for each message the u-coordinate of Q0 + Q1 as a fraction.

    In each column of `in` stand two numbers of 384 bits, six words each, the least significant first: what
    `hash_to_field` takes modulo p. With x_i = n_i/d_i, D = n1 d0 − n0 d1, E = d0 d1 and S = n0 d1 + n1 d0, the affine
    addition u = ((y1 − y0)/(x1 − x0))² − J − x0 − x1 becomes

        u = ((y1 − y0)² E³ − (J E + S) D²) / (E D²).

    Equal x-coordinates (probability 2^-254) give 0/0, which `store_fraction` makes 0.
    """
    f, n = field.f, field.count
    called = _Called(field)

    def reduced(index: str, first: int) -> Element:
        words = load_planes(field, "%in", "%stride", index, range(first, first + 6))
        low = field.unpack(words[:4], bits=256)
        high = field.unpack([*words[4:], f.constant(0), f.constant(0)])
        return field.settle(field.mul_add_small(low, high, 38))  # 2^256 ≡ 38

    def block(index: str, _: list[Vec]) -> list[Vec]:
        maps = [_Map(field, called, reduced(index, first)) for first in (0, 6)]
        bases, roots = f.allocate(2 * n), f.allocate(2 * n)
        for k, each in enumerate(maps):
            field.store(each.base, bases, k * n)
        f.call("power", f"ptr {roots}", f"ptr {bases}")
        (n0, d0, y0), (n1, d1, y1) = (each.map_point(field.load(roots, k * n)) for k, each in enumerate(maps))
        mul, sqr, settle = called.mul, called.square, field.settle
        e, left, right = mul(d0, d1), mul(n1, d0), mul(n0, d1)
        d_squared = sqr(settle(field.sub(left, right)))
        slope = sqr(settle(field.sub(y1, y0)))
        je_s = settle(field.add(mul(e, field.constant(_J)), settle(field.add(left, right))))
        upper = field.sub(mul(mul(slope, sqr(e)), e), mul(je_s, d_squared))
        store_fraction(field, upper, mul(e, d_squared), index)
        return []

    f.loop("%blocks", block)
