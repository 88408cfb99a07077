"""GF(2^255 − 19) in ten limbs of 26 and 25 bits by turns, for vectors without 52-bit products (AVX2, AVX-512F).

The radix 2^25.5 is Bernstein's (Curve25519: new Diffie–Hellman speed records, 2006, section 4): the product of two odd
limbs comes out one bit too high and is doubled; from 2^255 on everything comes back times 19.
"""

from __future__ import annotations

from collections.abc import Callable

from securevfl_crypto.engine.emitter import Vec
from securevfl_crypto.engine.field import Element, Field

__all__ = ["Field25"]

_BITS = (26, 25) * 5


class Field25(Field):
    """Narrow elements: limbs a little over their 26 or 25 bits; sums and differences of two such still are operands."""

    positions = (0, 26, 51, 77, 102, 128, 153, 179, 204, 230)
    tops = tuple((1 << bits) + (1 << 19) for bits in _BITS)

    def side_by_side(self, *jobs: Callable[[], Element]) -> list[Element]:
        """One after the other: the limbs of two products do not fit into the registers."""
        return [job() for job in jobs]

    def mul(self, a: Element, b: Element) -> Element:
        """See `Field.mul`."""
        f = self.f
        b19 = [f.mul32(x, f.constant(19)) for x in b[1:]]
        twice = {i: f.add(a[i], a[i]) for i in range(1, 10, 2)}
        r: list[Vec | None] = [None] * 10
        for i in range(10):
            for j in range(10):
                left = twice[i] if i % 2 and j % 2 else a[i]
                right = b19[j - 1] if i + j >= 10 else b[j]
                self._add_product(r, (i + j) % 10, f.mul32(left, right))
        return self._carry_twice([x for x in r if x is not None])

    def square(self, a: Element) -> Element:
        """See `Field.square`."""
        f = self.f
        a19 = [f.mul32(x, f.constant(19)) for x in a[1:]]
        scaled = {1: a, 2: [f.add(x, x) for x in a]}
        scaled[4] = [f.add(x, x) for x in scaled[2]]
        r: list[Vec | None] = [None] * 10
        for i in range(10):
            for j in range(i, 10):
                times = (1 if i == j else 2) * (2 if i % 2 and j % 2 else 1)
                right = a19[j - 1] if i + j >= 10 else a[j]
                self._add_product(r, (i + j) % 10, f.mul32(scaled[times][i], right))
        return self._carry_twice([x for x in r if x is not None])

    def _add_product(self, r: list[Vec | None], k: int, product: Vec) -> None:
        old = r[k]
        r[k] = product if old is None else self.f.add(old, product)

    def mul_add_small(self, a: Element, b: Element, factor: int) -> Element:
        """See `Field.mul_add_small`."""
        f = self.f
        return self._carry_twice([f.add(x, f.mul32(y, f.constant(factor))) for x, y in zip(a, b, strict=True)])

    def _carry_twice(self, a: Element) -> Element:
        """Two chains of carries, five limbs apart so that they overlap, then limbs 5 and 0 once more."""
        r = list(a)
        for i in (0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 5, 0):
            self._carry_limb(r, i)
        return r

    def _carry_limb(self, r: Element, i: int) -> None:
        f = self.f
        c = f.shift_right(r[i], _BITS[i])
        r[i] = f.mask(r[i], _BITS[i])
        if i == 9:  # 19 c = 16 c + 2 c + c, since c may exceed 32 bits
            c = f.add(f.add(f.shift_left(c, 4), f.shift_left(c, 1)), c)
        r[(i + 1) % 10] = f.add(r[(i + 1) % 10], c)

    def narrow(self, a: Element) -> Element:
        """See `Field.narrow`."""
        fits = all(x.top <= top for x, top in zip(a, self.tops, strict=True))
        return a if fits or max(x.top for x in a) * 19 < 1 << 32 else self._carry_twice(a)

    def settle(self, a: Element) -> Element:
        """See `Field.settle`."""
        return a if all(x.top <= top for x, top in zip(a, self.tops, strict=True)) else self._carry_twice(a)

    def _carry_chain(self, a: Element) -> Element:
        r = list(a)
        for i in range(9):
            self._carry_limb(r, i)
        return r

    def freeze(self, a: Element) -> Element:
        """After `settle` the value v is below 2^255 + 2^250, so below 2p. So q = (v + 19) // 2^255 is 1 if v ≥ p and
        0 otherwise, and v − q p = v + 19 q − 2^255 q: the last term is what the mask of the last limb takes."""
        f = self.f
        r = list(self.require_settled(self.settle(a)))
        q = f.shift_right(self._carry_chain([f.add(r[0], f.constant(19)), *r[1:]])[9], 25)
        r[0] = f.add(r[0], f.mul32(q, f.constant(19)))
        r = self._carry_chain(r)
        r[9] = f.mask(r[9], 25)
        return r

    def unpack(self, words: list[Vec], *, bits: int = 255) -> Element:
        """See `Field.unpack`."""
        f = self.f
        r = []
        for k, start in enumerate(self.positions):
            size = bits - start if k == 9 else _BITS[k]
            word, shift = divmod(start, 64)
            limb = f.shift_right(words[word], shift)
            if shift + size > 64:
                limb = f.bitwise("or", limb, f.shift_left_wrapping(words[word + 1], 64 - shift))
            r.append(f.mask(limb, size))
        return r

    def pack(self, a: Element) -> list[Vec]:
        """See `Field.pack`."""
        f = self.f
        words = []
        for word in range(4):
            parts = []
            for k, start in enumerate(self.positions):
                shift = start - 64 * word
                if 0 <= shift < 64:
                    parts.append(f.shift_left_wrapping(a[k], shift))
                elif -_BITS[k] < shift < 0:
                    parts.append(f.shift_right(a[k], -shift))
            total = parts[0]
            for part in parts[1:]:
                total = f.bitwise("or", total, part)
            words.append(total)
        return words
