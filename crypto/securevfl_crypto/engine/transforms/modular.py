"""Numbers modulo primes below 2^50 in doubles; every bound is proved at emission.

A number modulo p is a double with an exact integer, of either sign and up to 2^53 in size. With a constant w (|w| ≤
p/2) and w/p rounded to a double, a product takes six operations:

    q = ⌊a · (w/p)⌉     h = a · w rounded     l = a · w − h     r = (h − q · p) + l

q differs from a w / p by at most ½ + |a| 2^-53 (1 + 2^-50), so |r| ≤ p/2 + |a| / 8 and a little. l is exact, since h is
the double next to a w. So is h − q p = r − l: an integer below 2^53. Hence r is exactly a w − q p. Products modulo p by
such doubles are known from floating-point FFT multiplication (van der Hoeven, Lecerf and Quintin, Modular SIMD
arithmetic in Mathemagix, ACM TOMS 43 (2016), section 3).
"""

from __future__ import annotations

from securevfl_crypto.engine.doubles import Doubles
from securevfl_crypto.engine.emitter import BoundError, Function, Vec

__all__ = ["EXACT", "PRIME", "Modular", "declarations", "size_of"]

PRIME = 1 << 50
"""Primes are below."""
EXACT = 1 << 53
"""Up to here every integer is a double."""
_MIDDLE = 3 << 51
"""Between 2^52 and 2^53 doubles are the integers."""
_MIDDLE_BITS = 0x4338000000000000


def declarations(lanes: int) -> list[str]:
    """What LLVM must know beside `doubles.declarations`."""
    vector = f"<{lanes} x double>"
    return [f"declare {vector} @llvm.roundeven.v{lanes}f64({vector})"]


def size_of(value: Vec) -> int:
    """The most that a value can be in size."""
    return max(-value.low, value.top)


class Modular:
    """Numbers modulo a prime that the kernel is given, as doubles.

    Args:
        f: into which instructions go.
        table: whose first two doubles are p and 1/p.
    """

    def __init__(self, f: Function, table: str) -> None:
        self.f, self.d = f, Doubles(f)
        self.type = f"<{f.lanes} x double>"
        self.prime, self.over = self.spread(table, 0), self.spread(table, 1)

    def spread(self, pointer: str, index: str | int) -> str:
        """The double `index` doubles on, in all lanes."""
        address = self.f.emit_scalar(f"getelementptr double, ptr {pointer}, i64 {index}")
        one = self.f.emit_scalar(f"load double, ptr {address}, align 8")
        first = self.f.emit_scalar(f"insertelement {self.type} zeroinitializer, double {one}, i32 0")
        zeros = f"<{self.f.lanes} x i32> zeroinitializer"
        return self.f.emit_scalar(f"shufflevector {self.type} {first}, {self.type} zeroinitializer, {zeros}")

    def spread_pair(self, pointer: str, index: str, apart: int) -> tuple[str, str]:
        """A root, and the root over p, which is `apart` doubles on."""
        return self.spread(pointer, index), self.spread(pointer, self.f.emit_scalar(f"add i64 {index}, {apart}"))

    def load(self, pointer: str, index: str | int, most: int) -> Vec:
        """Doubles of at most `most` in size, `index` vectors on."""
        address = self.f.emit_scalar(f"getelementptr {self.type}, ptr {pointer}, i64 {index}")
        return Vec(self.f.emit_scalar(f"load {self.type}, ptr {address}, align 8"), -most, most, double=True)

    def store(self, value: Vec, pointer: str, index: str | int) -> None:
        """Store doubles."""
        address = self.f.emit_scalar(f"getelementptr {self.type}, ptr {pointer}, i64 {index}")
        self.f.emit(f"store {self.type} {value.name}, ptr {address}, align 8")

    def load_words(self, pointer: str, index: str | int, most: int) -> Vec:
        """Signed words of at most `most` in size, which is below 2^51 by the caller's contract."""
        if most >> 51:
            raise BoundError(f"{self.f.name}: words of up to {most:#x} become doubles")
        word = self.f.load(pointer, index)
        moved = self.f.add_wrapping(word, self.f.constant(_MIDDLE_BITS))
        name = self.f.emit_scalar(f"bitcast {self.f.type} {moved.name} to {self.type}")
        name = self.f.emit_scalar(f"fsub {self.type} {name}, {self.d.constant(_MIDDLE).name}")
        return Vec(name, -most, most, double=True)

    def store_words(self, value: Vec, pointer: str, index: str | int) -> None:
        """Store the numbers from 0 to p − 1."""
        small = self.reduce(value) if size_of(value) > PRIME // 2 + 2 else value
        # Of p/2 + 2 at most, so adding p where it is negative is enough.
        below = self.f.emit_scalar(f"fcmp olt {self.type} {small.name}, zeroinitializer")
        more = self.f.emit_scalar(
            f"select <{self.f.lanes} x i1> {below}, {self.type} {self.prime}, {self.type} zeroinitializer"
        )
        name = self.f.emit_scalar(f"fadd {self.type} {small.name}, {more}")
        name = self.f.emit_scalar(f"fadd {self.type} {name}, {self.d.constant(_MIDDLE).name}")
        word = self.f.emit_scalar(f"bitcast {self.type} {name} to {self.f.type}")
        word = self.f.emit_scalar(f"sub {self.f.type} {word}, {self.f.constant(_MIDDLE_BITS).name}")
        self.f.store(Vec(word, 0, PRIME), pointer, index)

    def times(self, a: Vec, factor: str, over: str) -> Vec:
        """a · factor less a multiple of p, for |factor| ≤ p/2 and over = factor / p."""
        most = self.check(a)
        quotient = self._round(self.f.emit_scalar(f"fmul {self.type} {a.name}, {over}"))
        return self._less(a.name, factor, quotient, PRIME // 2 + (most >> 3) + (most >> 40) + 1)

    def product(self, a: Vec, b: Vec) -> Vec:
        """a · b less a multiple of p, for both at most p in size."""
        if max(self.check(a), self.check(b)) > PRIME:
            raise BoundError(f"{self.f.name}: a product of numbers that are not reduced")
        high = self.f.emit_scalar(f"fmul {self.type} {a.name}, {b.name}")
        quotient = self._round(self.f.emit_scalar(f"fmul {self.type} {high}, {self.over}"))
        # Three roundings of at most 2^50 · 2^-53 each.
        return self._less(a.name, b.name, quotient, PRIME // 2 + 3 * (PRIME >> 3) + 8)

    def reduce(self, a: Vec) -> Vec:
        """a less a multiple of p: p/2 and 2 at most in size."""
        self.check(a)
        quotient = self._round(self.f.emit_scalar(f"fmul {self.type} {a.name}, {self.over}"))
        most = PRIME // 2 + 2
        return Vec(self._fma(self._negate(quotient), self.prime, a.name), -most, most, double=True)

    def check(self, a: Vec) -> int:
        """The size of an exact double.

        Raises:
            BoundError: it could be inexact.
        """
        most = size_of(a)
        if not a.double or most > EXACT:
            raise BoundError(f"{self.f.name}: {a.name} in [{a.low}, {a.top}] is no exact double")
        return most

    def _less(self, a: str, b: str, quotient: str, most: int) -> Vec:
        high = self.f.emit_scalar(f"fmul {self.type} {a}, {b}")
        low = self._fma(a, b, self._negate(high))
        rest = self._fma(self._negate(quotient), self.prime, high)
        return Vec(self.f.emit_scalar(f"fadd {self.type} {rest}, {low}"), -most, most, double=True)

    def _round(self, name: str) -> str:
        return self.f.emit_scalar(f"call {self.type} @llvm.roundeven.v{self.f.lanes}f64({self.type} {name})")

    def _negate(self, name: str) -> str:
        return self.f.emit_scalar(f"fneg {self.type} {name}")

    def _fma(self, a: str, b: str, c: str) -> str:
        arguments = ", ".join(f"{self.type} {name}" for name in (a, b, c))
        return self.f.emit_scalar(f"call {self.type} @llvm.fma.v{self.f.lanes}f64({arguments})")
