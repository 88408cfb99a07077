"""GF(2^255 − 19) in five limbs of 52 bits, for AVX-512 IFMA: products of 52 bits with their halves accumulated.

Gueron and Krasnov 2016 describe such arithmetic for RSA; Cheng, Großschädl et al. 2022 for Curve25519. 2^255 ≡ 19, so
2^260 ≡ 19 · 2^5 = 608.
"""

from __future__ import annotations

from securevfl_crypto.engine.emitter import MASK52, Function, Vec
from securevfl_crypto.engine.field import Element, Field

__all__ = ["Field52"]


class Field52(Field):
    """Narrow elements: limbs 0 to 3 of which 52 bits count (`Function.low52`), limb 4 a little over 47 bits."""

    positions = (0, 52, 104, 156, 208)
    tops = (MASK52, MASK52, MASK52, MASK52, (1 << 47) + (1 << 12))

    def add(self, a: Element, b: Element) -> Element:
        """See `Field.add`."""
        return [self.f.add(x, y) for x, y in zip(a, b, strict=True)]

    def sub(self, a: Element, b: Element) -> Element:
        """See `Field.sub`. A multiple of p with limbs of at least the bounds of b's is added first."""
        spread = self.multiple_of_p([y.top for y in b])
        lifted = [self.f.add(x, self.f.constant(c)) for x, c in zip(a, spread, strict=True)]
        return [self.f.sub(x, y) for x, y in zip(lifted, b, strict=True)]

    def mul(self, a: Element, b: Element) -> Element:
        """See `Field.mul`."""
        f = self.f
        t = [f.constant(0)] * 10
        for i in range(5):
            for j in range(5):
                t[i + j] = f.madd_low(t[i + j], a[j], b[i])
            for j in range(5):
                t[i + j + 1] = f.madd_high(t[i + j + 1], a[j], b[i])
        return self._fold_limbs(t)

    def square(self, a: Element) -> Element:
        """See `Field.square`."""
        f = self.f
        t = [f.constant(0)] * 10
        for i in range(5):
            for j in range(i + 1, 5):
                t[i + j] = f.madd_low(t[i + j], a[i], a[j])
            for j in range(i + 1, 5):
                t[i + j + 1] = f.madd_high(t[i + j + 1], a[i], a[j])
        t = [f.add(x, x) if 1 <= k <= 8 else x for k, x in enumerate(t)]
        for i in range(5):
            t[2 * i] = f.madd_low(t[2 * i], a[i], a[i])
            t[2 * i + 1] = f.madd_high(t[2 * i + 1], a[i], a[i])
        return self._fold_limbs(t)

    def _fold_limbs(self, t: list[Vec]) -> Element:
        """Ten limbs to five: those from 2^260 on, carried until 52 bits hold them, come back times 608."""
        f = self.f
        c = f.constant(608)
        r, upper = t[:5], t[5:]
        for k in range(4):
            upper[k + 1] = f.add(upper[k + 1], f.shift_right(upper[k], 52))
        low = [*(f.low52(x) for x in upper[:4]), upper[4]]
        for k in range(4):
            r[k] = f.madd_low(r[k], low[k], c)
        r[4] = f.madd_small(r[4], low[4], c)  # nothing above 2^260 again, since narrow elements end in 47 bits
        for k in range(4):
            r[k + 1] = f.madd_high(r[k + 1], low[k], c)
        return r

    def mul_add_small(self, a: Element, b: Element, factor: int) -> Element:
        """See `Field.mul_add_small`."""
        f = self.f
        c = f.constant(factor)
        r = [f.madd_low(x, y, c) for x, y in zip(a, b, strict=True)]
        for k in range(4):
            r[k + 1] = f.madd_high(r[k + 1], b[k], c)
        r[0] = f.madd_small(r[0], f.madd_high(f.constant(0), b[4], c), f.constant(608))
        return r

    def narrow(self, a: Element) -> Element:
        """Fold what is above 2^255, times 19, and carry once. Limbs stay unmasked: products ignore the upper bits."""
        f = self.f
        if all(x.top <= top for x, top in zip(a, self.tops, strict=True)):
            return a
        r = list(a)
        above = f.shift_right(r[4], 47)
        r[4] = f.mask(r[4], 47)
        times19 = f.add(f.add(f.shift_left(above, 4), f.shift_left(above, 1)), above)  # products are what limits
        r[0] = f.add(r[0], times19)
        for k in range(4):
            r[k + 1] = f.add(r[k + 1], f.shift_right(r[k], 52))
        return [*(f.low52(x) for x in r[:4]), r[4]]

    def settle(self, a: Element) -> Element:
        """See `Field.settle`."""
        r = a if any(x.partial for x in a) else self.narrow(a)
        return [*(self.f.mask(x, 52) for x in r[:4]), r[4]]

    def _carry_chain(self, a: Element) -> Element:
        f = self.f
        r = list(a)
        for k in range(4):
            r[k + 1] = f.add(r[k + 1], f.shift_right(r[k], 52))
            r[k] = f.mask(r[k], 52)
        return r

    def freeze(self, a: Element) -> Element:
        """After `settle` the value v is below 2^255 + 2^221, so below 2p. So q = (v + 19) // 2^255 is 1 if v ≥ p and
        0 otherwise, and v − q p = v + 19 q − 2^255 q: the last term is what the mask of the last limb takes."""
        f = self.f
        r = list(self.require_settled(self.settle(a)))
        q = f.shift_right(self._carry_chain([f.add(r[0], f.constant(19)), *r[1:]])[4], 47)
        r[0] = f.madd_small(r[0], q, f.constant(19))
        r = self._carry_chain(r)
        r[4] = f.mask(r[4], 47)
        return r

    def unpack(self, words: list[Vec], *, bits: int = 255) -> Element:
        """See `Field.unpack`."""
        f = self.f
        w0, w1, w2, w3 = words

        def joined(low: Vec, right: int, high: Vec, left: int) -> Vec:
            return f.mask(f.bitwise("or", f.shift_right(low, right), f.shift_left_wrapping(high, left)), 52)

        return [
            f.mask(w0, 52),
            joined(w0, 52, w1, 12),
            joined(w1, 40, w2, 24),
            joined(w2, 28, w3, 36),
            f.mask(f.shift_right(w3, 16), bits - 208),
        ]

    def pack(self, a: Element) -> list[Vec]:
        """See `Field.pack`."""
        f = self.f
        return [
            f.bitwise("or", a[0], f.shift_left_wrapping(a[1], 52)),
            f.bitwise("or", f.shift_right(a[1], 12), f.shift_left_wrapping(a[2], 40)),
            f.bitwise("or", f.shift_right(a[2], 24), f.shift_left_wrapping(a[3], 28)),
            f.bitwise("or", f.shift_right(a[3], 36), f.shift_left_wrapping(a[4], 16)),
        ]

    def loop_bounds(self) -> list[Vec]:
        """See `Field.loop_bounds`."""
        scratch = Field52(Function("scratch", "", self.f.lanes))
        factor = [Vec("%x", 0, top) for top in self.tops]
        largest = zip(scratch.mul(factor, factor), scratch.square(factor), self.tops, strict=True)
        return [Vec("", 0, max(x.top, y.top, top)) for x, y, top in largest]
