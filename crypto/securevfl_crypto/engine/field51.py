"""GF(2^255 − 19) in five limbs of 51 bits, for vectors without IFMA: products are those of doubles (`doubles`).

Limbs of sums and products are wrapped integers, which have signs. `narrow` carries once and makes doubles of them,
within ±2^50 and a little, of which products are made. In memory, and where single bits count, limbs are plain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from securevfl_crypto.engine.doubles import Doubles
from securevfl_crypto.engine.emitter import Function, Vec
from securevfl_crypto.engine.field import Element, Field

__all__ = ["Field51"]

_BITS = 51
_RADIX = 1 << _BITS
_HALF = _RADIX // 2
_NARROW = _HALF + (1 << 7)
"""The most of a narrow limb's size, where loops carry the products of such limbs."""


class Field51(Field):
    """Narrow elements: doubles, or plain limbs within `tops`."""

    positions = (0, 51, 102, 153, 204)
    tops = (_RADIX + (1 << 13),) * 5

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self.d = Doubles(function)

    def enclose(self, emit: Callable[[], None]) -> None:
        """See `Field.enclose`."""
        self.d.to_nearest(emit)

    def add(self, a: Element, b: Element) -> Element:
        """See `Field.add`."""
        return [self.d.add(x, y) for x, y in zip(a, b, strict=True)]

    def sub(self, a: Element, b: Element) -> Element:
        """See `Field.sub`."""
        return [self.d.sub(x, y) for x, y in zip(a, b, strict=True)]

    def _factor(self, a: Element) -> Element:
        return [limb if limb.double else self.d.double(limb) for limb in a]

    def mul(self, a: Element, b: Element) -> Element:
        """See `Field.mul`."""
        x, y = self._factor(a), self._factor(b)
        return self._sum_products([[(x[i], y[k - i]) for i in range(5) if 0 <= k - i < 5] for k in range(9)])

    def square(self, a: Element) -> Element:
        """See `Field.square`."""
        x = self._factor(a)
        twice = [self.d.add(limb, limb) for limb in x[:4]]
        return self._sum_products(
            [[(x[i] if 2 * i == k else twice[i], x[k - i]) for i in range(k // 2 + 1) if k - i < 5] for k in range(9)]
        )

    def mul_add_small(self, a: Element, b: Element, factor: int) -> Element:
        """See `Field.mul_add_small`."""
        c = self.d.constant(factor)
        return self.add(a, self._sum_products([[(x, c)] for x in self._factor(b)]))

    def _sum_products(self, columns: list[list[tuple[Vec, Vec]]]) -> Element:
        """Sums of products by the weight of their lower halves; what weighs 2^255 and more comes back times 19."""
        sums: list[Vec | None] = [None] * 10
        for k, products in enumerate(columns):
            for terms in self._together(products):
                for place, half in zip((k + 1, k), self.d.product(terms, _BITS), strict=True):
                    before = sums[place]
                    sums[place] = half if before is None else self.d.add(before, half)
        return [
            self.d.add(low, self.d.times19(high)) if high is not None else low
            for low, high in zip(sums[:5], sums[5:], strict=True)
            if low is not None
        ]

    def _together(self, products: list[tuple[Vec, Vec]]) -> list[list[tuple[Vec, Vec]]]:
        """Products in pairs where the bounds allow it, the rest alone."""
        out, left = [], list(products)
        while left:
            terms = [left.pop(0)]
            other = next((pair for pair in left if self.d.fits([*terms, pair], _BITS)), None)
            if other is not None:
                left.remove(other)
                terms.append(other)
            out.append(terms)
        return out

    def narrow(self, a: Element) -> Element:
        """One carry from every limb to the next: limb + 2^50 is cut into a carry and 51 bits, off which 2^50 comes.

        A multiple of 2^51 keeps this sum from being negative. It goes on with the carry and comes off where that ends.
        """
        if all(limb.double for limb in a):
            return a
        f = self.f
        lifts = [max(0, -((limb.low + _HALF) // _RADIX)) for limb in a]
        raised = [self.d.lift(limb, _HALF + lift * _RADIX) for limb, lift in zip(a, lifts, strict=True)]
        arrived = [19 * lifts[4], *lifts[:4]]
        return [
            self.d.double(f.add(f.mask(limb, _BITS), carry), _HALF + lift)
            for limb, carry, lift in zip(raised, self._carries(raised), arrived, strict=True)
        ]

    def _carries(self, a: Element) -> Element:
        """What each limb gets from the one below; the first one, what the last gives, times 19."""
        carries = [self.f.shift_right(limb, _BITS) for limb in a]
        return [self.f.mul32(carries[4], self.f.constant(19)), *carries[:4]]

    def settle(self, a: Element) -> Element:
        """See `Field.settle`. A multiple of p with limbs above what may be negative is added first."""
        f = self.f
        spread = self.multiple_of_p([max(0, -limb.low) for limb in a])
        r = [self.d.lift(limb, by) for limb, by in zip(a, spread, strict=True)]
        while any(limb.top > top for limb, top in zip(r, self.tops, strict=True)):
            r = [f.add(f.mask(limb, _BITS), carry) for limb, carry in zip(r, self._carries(r), strict=True)]
        return r

    def _carry_chain(self, a: Element) -> Element:
        f = self.f
        r = list(a)
        for k in range(4):
            r[k + 1] = f.add(r[k + 1], f.shift_right(r[k], _BITS))
            r[k] = f.mask(r[k], _BITS)
        return r

    def freeze(self, a: Element) -> Element:
        """After `settle` no limb is negative and the value v is below 2^255 + 2^218, so below 2p.

        So q = (v + 19) // 2^255 is 1 if v ≥ p and 0 otherwise, and v − q p = v + 19 q − 2^255 q: the last term is what
        the mask of the last limb takes.
        """
        f = self.f
        r = list(self.require_settled(self.settle(a)))
        q = f.shift_right(self._carry_chain([f.add(r[0], f.constant(19)), *r[1:]])[4], _BITS)
        r[0] = f.add(r[0], f.mul32(q, f.constant(19)))
        r = self._carry_chain(r)
        r[4] = f.mask(r[4], _BITS)
        return r

    def unpack(self, words: list[Vec], *, bits: int = 255) -> Element:
        """See `Field.unpack`."""
        f = self.f
        w0, w1, w2, w3 = words

        def joined(low: Vec, right: int, high: Vec, left: int) -> Vec:
            return f.mask(f.bitwise("or", f.shift_right(low, right), f.shift_left_wrapping(high, left)), _BITS)

        return [
            f.mask(w0, _BITS),
            joined(w0, 51, w1, 13),
            joined(w1, 38, w2, 26),
            joined(w2, 25, w3, 39),
            f.mask(f.shift_right(w3, 12), bits - 204),
        ]

    def pack(self, a: Element) -> list[Vec]:
        """See `Field.pack`."""
        f = self.f
        return [
            f.bitwise("or", a[0], f.shift_left_wrapping(a[1], 51)),
            f.bitwise("or", f.shift_right(a[1], 13), f.shift_left_wrapping(a[2], 38)),
            f.bitwise("or", f.shift_right(a[2], 26), f.shift_left_wrapping(a[3], 25)),
            f.bitwise("or", f.shift_right(a[3], 39), f.shift_left_wrapping(a[4], 12)),
        ]

    def carried(self, a: Element) -> Element:
        """See `Field.carried`."""
        return [self.d.rebase(limb, bound.offset or 0) for limb, bound in zip(a, self.loop_bounds(), strict=True)]

    def loop_bounds(self) -> list[Vec]:
        """See `Field.loop_bounds`: what products and squares of narrow elements may be."""
        scratch = Field51(Function("scratch", "", self.f.lanes))
        factor = [Vec("%x", -_NARROW, _NARROW, double=True)] * 5
        pairs = zip(scratch.mul(factor, factor), scratch.square(factor), strict=True)
        return [replace(x, name="", low=min(x.low, y.low), top=max(x.top, y.top)) for x, y in pairs]
