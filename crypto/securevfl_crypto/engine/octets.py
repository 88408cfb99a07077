"""Emits LLVM IR for kernels over rows of 64 octets: a row is one register of 512 bits, or two of 256.

As in `emitter`, every value carries the largest number that an octet of it can be, and emission fails if a sum could
exceed 255: the arithmetic modulo a small number is proved not to wrap. No branch and no address depends on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.values import BoundError

__all__ = ["COLUMNS", "PEXT_DECLARATIONS", "LanePlaces", "OctetRows", "Octets"]

COLUMNS = 64
_ROW, _PLACES, _PAIRS, _EIGHTHS = "<64 x i8>", "<64 x i1>", "<32 x i16>", "<8 x i64>"


@dataclass(frozen=True)
class Octets:
    """64 octets, each at most `top`."""

    name: str
    top: int


@dataclass(frozen=True)
class LanePlaces:
    """A set of the 64 places."""

    name: str


class OctetRows:
    """Operations on rows of octets, modulo one number, emitted into a function.

    Args:
        function: receives the instructions.
        modulus: from 2 to 85: a reduction is one subtraction, and three residues add up in an octet.
    """

    def __init__(self, function: Function, modulus: int) -> None:
        if not 2 <= modulus <= 85:
            raise BoundError(f"rows modulo {modulus}; 2 to 85 are possible")
        self.f, self.modulus = function, modulus

    def _emit_octets(self, expression: str, top: int) -> Octets:
        if not 0 <= top <= 255:
            raise BoundError(f"{self.f.name}: {expression.split(maxsplit=1)[0]} gives up to {top}, outside an octet")
        return Octets(self.f.emit_scalar(expression), top)

    # Values

    def constant(self, value: int) -> Octets:
        """The same octet at all places."""
        if not 0 <= value <= 255:
            raise BoundError(f"{self.f.name}: the constant {value} is outside an octet")
        return Octets(f"splat (i8 {value - 256 if value > 127 else value})", value)

    def splat_octet(self, octet: str, top: int) -> Octets:
        """An ``i8``, at most `top`, at all places."""
        one = self.f.emit_scalar(f"insertelement {_ROW} zeroinitializer, i8 {octet}, i32 0")
        return self._emit_octets(
            f"shufflevector {_ROW} {one}, {_ROW} zeroinitializer, {_shuffle_mask([0] * COLUMNS)}", top
        )

    def load(self, pointer: str, row: str, top: int) -> Octets:
        """Row `row` of an array; its octets are at most `top` by the caller's contract."""
        address = self.f.emit_scalar(f"getelementptr {_ROW}, ptr {pointer}, i64 {row}")
        return self._emit_octets(f"load {_ROW}, ptr {address}, align 1", top)

    def store(self, value: Octets, pointer: str, row: str) -> None:
        """Store a row."""
        self.store_at(value, self.f.emit_scalar(f"getelementptr {_ROW}, ptr {pointer}, i64 {row}"))

    def store_at(self, value: Octets, address: str) -> None:
        """Store 64 octets at any address."""
        self.f.emit(f"store {_ROW} {value.name}, ptr {address}, align 1")

    # Arithmetic

    def add(self, a: Octets, b: Octets) -> Octets:
        """a + b."""
        return self._emit_octets(f"add {_ROW} {a.name}, {b.name}", a.top + b.top)

    def subtract_from(self, value: int, a: Octets) -> Octets:
        """A constant − a, which must not be negative."""
        if a.top > value:
            raise BoundError(f"{self.f.name}: {value} minus an octet of up to {a.top}")
        return self._emit_octets(f"sub {_ROW} {self.constant(value).name}, {a.name}", value)

    def subtract_where_above(self, a: Octets, by: int) -> Octets:
        """a − by where a is at least `by`, else a: the difference wraps exactly where a is the smaller of the two."""
        top = max(min(by - 1, a.top), a.top - by)
        difference = self.f.emit_scalar(f"sub {_ROW} {a.name}, {self.constant(by).name}")
        call = f"call {_ROW} @llvm.umin.v64i8({_ROW} {a.name}, {_ROW} {difference})"
        return self._emit_octets(call, top)

    def reduce_once(self, a: Octets) -> Octets:
        """a modulo the modulus, where a is below twice the modulus."""
        if a.top >= 2 * self.modulus:
            raise BoundError(f"{self.f.name}: one subtraction of {self.modulus} from up to {a.top}")
        return self.subtract_where_above(a, self.modulus)

    def add_modular(self, a: Octets, b: Octets) -> Octets:
        """a + b modulo the modulus."""
        return self.reduce_once(self.add(a, b))

    def multiply_modular(self, a: Octets, b: Octets) -> Octets:
        """a · b modulo the modulus, even and odd octets each in a vector of 16-bit numbers.

        With M = ⌊2^16 / m⌋ the quotient ⌊p M / 2^16⌋ falls short of p / m by less than 2 if p (2^16 mod m) < m 2^16;
        the remainder is then below 2m.
        """
        m = self.modulus
        top = a.top * b.top
        if top >> 16 or top * (65536 % m) >= 65536:
            raise BoundError(f"{self.f.name}: a product of up to {top}, outside what one quotient reduces")
        halves = []
        for odd in (False, True):
            x, y = (self._multiply_half(v, odd=odd) for v in (a, b))
            p = self.f.emit_scalar(f"mul {_PAIRS} {x}, {y}")
            wide = self.f.emit_scalar(f"zext {_PAIRS} {p} to <32 x i32>")
            scaled = self.f.emit_scalar(f"mul <32 x i32> {wide}, splat (i32 {65536 // m})")
            high = self.f.emit_scalar(f"lshr <32 x i32> {scaled}, splat (i32 16)")
            quotient = self.f.emit_scalar(f"trunc <32 x i32> {high} to {_PAIRS}")
            multiple = self.f.emit_scalar(f"mul {_PAIRS} {quotient}, splat (i16 {m})")
            halves.append(self.f.emit_scalar(f"sub {_PAIRS} {p}, {multiple}"))
        high = self.f.emit_scalar(f"shl {_PAIRS} {halves[1]}, splat (i16 8)")
        both = self.f.emit_scalar(f"or {_PAIRS} {halves[0]}, {high}")
        return self.reduce_once(self._emit_octets(f"bitcast {_PAIRS} {both} to {_ROW}", 2 * m - 1))

    def _multiply_half(self, value: Octets, *, odd: bool) -> str:
        pairs = self.f.emit_scalar(f"bitcast {_ROW} {value.name} to {_PAIRS}")
        return self.f.emit_scalar(
            f"lshr {_PAIRS} {pairs}, splat (i16 8)" if odd else f"and {_PAIRS} {pairs}, splat (i16 255)"
        )

    # Places

    def places_of_bits(self, word: str) -> LanePlaces:
        """The places of the bits of an ``i64`` that are set."""
        return LanePlaces(self.f.emit_scalar(f"bitcast i64 {word} to {_PLACES}"))

    def all_or_none(self, bit: str) -> LanePlaces:
        """All places or none, by an ``i64`` that is 1 or 0."""
        return self.places_of_bits(self.f.emit_scalar(f"sub i64 0, {bit}"))

    def bits_below(self, a: Octets, value: int) -> str:
        """An ``i64`` with the bits set at whose places a is below a number."""
        mask = self.f.emit_scalar(f"icmp ult {_ROW} {a.name}, {self.constant(value).name}")
        return self.f.emit_scalar(f"bitcast {_PLACES} {mask} to i64")

    def bits_equal(self, a: Octets, value: int) -> str:
        """An ``i64`` with the bits set at whose places a is a number."""
        mask = self.f.emit_scalar(f"icmp eq {_ROW} {a.name}, {self.constant(value).name}")
        return self.f.emit_scalar(f"bitcast {_PLACES} {mask} to i64")

    def select(self, places: LanePlaces, a: Octets, b: Octets) -> Octets:
        """a at these places, b elsewhere."""
        text = f"select {_PLACES} {places.name}, {_ROW} {a.name}, {_ROW} {b.name}"
        return self._emit_octets(text, max(a.top, b.top))

    def shift_down(self, a: Octets, by: int) -> Octets:
        """Place j has what place j + by had; zeros move in from above."""
        order = [min(j + by, COLUMNS) for j in range(COLUMNS)]
        return self._emit_octets(
            f"shufflevector {_ROW} {a.name}, {_ROW} zeroinitializer, {_shuffle_mask(order)}", a.top
        )

    def rotate(self, a: Octets, distance: str) -> Octets:
        """Place j has what place j + distance had, modulo 64; of the ``i64`` six bits count.

        Six steps, each taken or not by a selection: the distance is secret and must not become an address.
        """
        for step in range(6):
            order = [(j + (1 << step)) % COLUMNS for j in range(COLUMNS)]
            moved = self._emit_octets(
                f"shufflevector {_ROW} {a.name}, {_ROW} zeroinitializer, {_shuffle_mask(order)}", a.top
            )
            bit = self.f.emit_scalar(f"and i64 {self.f.emit_scalar(f'lshr i64 {distance}, {step}')}, 1")
            a = self.select(self.all_or_none(bit), moved, a)
        return a

    def compress(self, a: Octets, places: LanePlaces) -> Octets:
        """The octets of these places, one after another from place 0 on; what follows has no meaning."""
        call = f"call {_ROW} @llvm.experimental.vector.compress.v64i8"
        return self._emit_octets(f"{call}({_ROW} {a.name}, {_PLACES} {places.name}, {_ROW} zeroinitializer)", a.top)

    def compress_eighths(self, a: Octets, places: LanePlaces) -> list[tuple[str, str]]:
        """For each eight places, an ``i64`` with the octets of these places, zeros behind them, and their number.

        BMI2's ``pext`` takes the bits under a mask of whole octets, so that no octet is cut.
        """
        words = self.f.emit_scalar(f"bitcast {_ROW} {a.name} to {_EIGHTHS}")
        wide = self.f.emit_scalar(f"sext {_PLACES} {places.name} to {_ROW}")
        masks = self.f.emit_scalar(f"bitcast {_ROW} {wide} to {_EIGHTHS}")
        found = []
        for k in range(COLUMNS // 8):
            word, mask = (self.f.emit_scalar(f"extractelement {_EIGHTHS} {each}, i32 {k}") for each in (words, masks))
            packed = self.f.emit_scalar(f"call i64 @llvm.x86.bmi.pext.64(i64 {word}, i64 {mask})")
            found.append((packed, self.f.emit_scalar(f"lshr i64 {self.count_bits(mask)}, 3")))
        return found

    def count_bits(self, word: str) -> str:
        """How many bits of an ``i64`` are set."""
        return self.f.emit_scalar(f"call i64 @llvm.ctpop.i64(i64 {word})")


DECLARATIONS = (
    f"declare {_ROW} @llvm.umin.v64i8({_ROW}, {_ROW})",
    f"declare {_ROW} @llvm.experimental.vector.compress.v64i8({_ROW}, {_PLACES}, {_ROW})",
    "declare i64 @llvm.ctpop.i64(i64)",
)
"""What `OctetRows` calls; a module declares it."""
PEXT_DECLARATIONS = ("declare i64 @llvm.x86.bmi.pext.64(i64, i64)",)
"""What `OctetRows.compress_eighths` calls beside."""


def _shuffle_mask(places: Sequence[int]) -> str:
    return "<64 x i32> <" + ", ".join(f"i32 {place}" for place in places) + ">"
