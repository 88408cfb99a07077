"""GF(2^255 − 19) in vectors: what the curve's formulas need of a representation, and what follows from that alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce

from securevfl_crypto.engine.emitter import BoundError, Function, Mask, Vec

__all__ = ["Element", "Field", "P"]

P = 2**255 - 19
Element = list[Vec]
"""A field element: one vector for each limb."""


class Field(ABC):
    """Elements as limbs of mixed radix: limb k has weight 2^positions[k].

    Results of `mul`, `square`, `add` and `sub` may exceed p and their limbs may exceed the radix; `narrow` makes a
    product's operand of them. The emitter checks at every step that the limbs fit.

    Attributes:
        f: the function into which instructions go.
        positions: of each limb's lowest bit.
        tops: the bound of each limb that is stored in memory or carried through a loop.
    """

    positions: tuple[int, ...]
    tops: tuple[int, ...]

    def __init__(self, function: Function) -> None:
        self.f = function

    @property
    def count(self) -> int:
        """Number of limbs."""
        return len(self.positions)

    def to_digits(self, value: int) -> list[int]:
        """A number below 2^256 in limbs; the topmost takes what is left."""
        ends = [*self.positions[1:], 256]
        return [value >> start & (1 << end - start) - 1 for start, end in zip(self.positions, ends, strict=True)]

    def constant(self, value: int) -> Element:
        """The element `value` mod p, ready for products."""
        return [self.f.constant(digit) for digit in self.to_digits(value % P)]

    @abstractmethod
    def add(self, a: Element, b: Element) -> Element:
        """a + b, limb by limb."""

    @abstractmethod
    def sub(self, a: Element, b: Element) -> Element:
        """a − b modulo p, limb by limb."""

    @abstractmethod
    def mul(self, a: Element, b: Element) -> Element:
        """a · b of narrow elements."""

    @abstractmethod
    def square(self, a: Element) -> Element:
        """a² of a narrow element."""

    @abstractmethod
    def mul_add_small(self, a: Element, b: Element, factor: int) -> Element:
        """a + factor · b with a factor below 2^17, b narrow."""

    @abstractmethod
    def narrow(self, a: Element) -> Element:
        """The same element, ready for products."""

    @abstractmethod
    def settle(self, a: Element) -> Element:
        """The same element, its limbs whole and within `tops`: ready for products, memory and loops."""

    @abstractmethod
    def freeze(self, a: Element) -> Element:
        """The canonical representative, below p, in its digits."""

    @abstractmethod
    def unpack(self, words: list[Vec], *, bits: int = 255) -> Element:
        """An element of four 64-bit words, least significant first, of whose 256 bits `bits` count."""

    @abstractmethod
    def pack(self, a: Element) -> list[Vec]:
        """A frozen element in four 64-bit words."""

    def require_settled(self, a: Element) -> Element:
        """The element, whose limbs are within `tops`: what the arguments in `freeze` start from.

        Raises:
            BoundError: they may not be.
        """
        for k, (limb, top) in enumerate(zip(a, self.tops, strict=True)):
            if limb.partial or limb.top > top:
                raise BoundError(f"limb {k} of up to {limb.top:#x} is frozen where {top:#x} is the most")
        return a

    def enclose(self, emit: Callable[[], None]) -> None:
        """Emit the whole of a kernel that Python calls, with what the arithmetic needs before and after it."""
        emit()

    def side_by_side(self, *jobs: Callable[[], Element]) -> list[Element]:
        """Independent computations, so that latencies overlap."""
        return self.f.interleave(*jobs)

    def multiple_of_p(self, least: Sequence[int]) -> list[int]:
        """A multiple of p in limbs of at least `least`: these, plus the digits of what is missing to a multiple."""
        total = sum(bound << position for bound, position in zip(least, self.positions, strict=True))
        return [bound + digit for bound, digit in zip(least, self.to_digits(-total % P), strict=True)]

    def select(self, mask: Mask, a: Element, b: Element) -> Element:
        """a in the lanes of the mask, b in the others."""
        return [self.f.select(mask, x, y) for x, y in zip(a, b, strict=True)]

    def is_zero(self, a: Element) -> Mask:
        """Lanes in which a ≡ 0."""
        combined = reduce(lambda x, y: self.f.bitwise("or", x, y), self.freeze(a))
        return self.f.equals(combined, 0)

    def is_odd(self, a: Element) -> Mask:
        """Lanes in which the canonical representative is odd: RFC 9380's sgn0, section 4.1."""
        return self.f.equals(self.f.mask(self.freeze(a)[0], 1), 1)

    def load(self, pointer: str, first: str | int = 0) -> Element:
        """A settled element from memory."""
        start = self.f.emit_scalar(f"add i64 {first}, 0")
        return [
            self.f.load(pointer, self.f.emit_scalar(f"add i64 {start}, {k}"), top) for k, top in enumerate(self.tops)
        ]

    def store(self, a: Element, pointer: str, first: str | int = 0) -> None:
        """A settled element to memory."""
        start = self.f.emit_scalar(f"add i64 {first}, 0")
        for k, (limb, top) in enumerate(zip(a, self.tops, strict=True)):
            if limb.top > top:
                raise BoundError(f"limb {k} of up to {limb.top:#x} is stored where {top:#x} is promised")
            self.f.store(limb, pointer, self.f.emit_scalar(f"add i64 {start}, {k}"))

    def loop(
        self, count: str | int, body: Callable[[str, list[Element]], list[Element]], start: list[Element]
    ) -> list[Element]:
        """`Function.loop` over elements: settled ones to start with, products and squares from `body`."""
        n, bounds = self.count, self.loop_bounds()

        def cut(limbs: list[Vec]) -> list[Element]:
            return [limbs[k : k + n] for k in range(0, len(limbs), n)]

        def flat(index: str, limbs: list[Vec]) -> list[Vec]:
            return [limb for element in body(index, cut(limbs)) for limb in self.carried(element)]

        pairs = [pair for element in start for pair in zip(self.carried(element), bounds, strict=True)]
        return cut(self.f.loop(count, flat, pairs))

    def carried(self, a: Element) -> Element:
        """The same element as loops carry it."""
        return a

    @abstractmethod
    def loop_bounds(self) -> list[Vec]:
        """Bounds of the limbs of products and squares for the largest narrow factors, found by emitting them."""
