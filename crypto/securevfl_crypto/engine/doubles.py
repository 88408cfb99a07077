"""Doubles that hold integers: products of 51 bits by fused multiply-add, proved exact during emission.

A double in [2^e, 2^(e+1)] is a multiple of 2^(e−52). Its bits, read as an integer, grow by 1 from one multiple to the
next. So if h = a·b + C is rounded into [2^103, 2^104], its bits are those of C plus the integer nearest to a·b/2^51.
What is left, l = a·b + (C + B − h) with B = 1.5·2^52, needs no rounding, and its bits are those of B plus an integer
of at most 2^50 in size. Sums of such bits are sums of the integers once the bits of the constants are taken off,
modulo 2^64.

Emmart, Zheng and Weems multiply long numbers so (Faster modular exponentiation using double precision floating point
arithmetic on the GPU, ARITH 2018). They round to zero. Here rounding is to nearest, which is what a process starts
with, so both parts have signs.

No time depends on the data: every double is an integer, zero or at least 1 in size, so none is denormal, infinite or
not a number, which are the ones that some CPUs take longer for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from securevfl_crypto.engine.emitter import BoundError, Function, Vec

__all__ = ["Doubles", "declarations"]

_WORD = 1 << 64
_EXACT = 1 << 53
"""Up to here every integer is a double."""
_BIAS = 3 << 51
"""Doubles from 2^52 to 2^53 are integers; this is the middle."""
_ARM_LANES = 2
_NEAREST = 0x1FBF
"""MXCSR: rounding to nearest, no exception traps, denormals as IEEE 754 has them, which is what a process starts with;
and the flags of all exceptions are set beforehand, so that data sets none."""


def declarations(lanes: int) -> list[str]:
    """What LLVM must know of the functions that are called. Vectors of two lanes are 64-bit Arm's."""
    vector = f"<{lanes} x double>"
    x86 = ["declare void @llvm.x86.sse.stmxcsr(ptr)", "declare void @llvm.x86.sse.ldmxcsr(ptr)"]
    arm = ["declare i64 @llvm.aarch64.get.fpcr()", "declare void @llvm.aarch64.set.fpcr(i64)"]
    fma = f"declare {vector} @llvm.fma.v{lanes}f64({vector}, {vector}, {vector})"
    return [fma, *(arm if lanes == _ARM_LANES else x86)]


def _bits(value: int) -> int:
    """A double's 64 bits."""
    if int(float(value)) != value:
        raise BoundError(f"{value} is no double")
    return int.from_bytes(struct.pack(">d", float(value)), "big")


class Doubles:
    """Operations on wrapped lanes and doubles (see `Vec`).

    Args:
        function: into which instructions go.
    """

    def __init__(self, function: Function) -> None:
        self.f = function
        self._type = f"<{function.lanes} x double>"

    def constant(self, value: int) -> Vec:
        """The same double in all lanes."""
        return Vec(f"<{', '.join([f'double {_bits(value):#018x}'] * self.f.lanes)}>", value, value, double=True)

    # Sums

    def add(self, a: Vec, b: Vec) -> Vec:
        """a + b, of two doubles or two values of other kinds."""
        return self._sum("add", a, b, 1)

    def sub(self, a: Vec, b: Vec) -> Vec:
        """a − b, of two doubles or two values of other kinds."""
        return self._sum("sub", a, b, -1)

    def _sum(self, operation: str, a: Vec, b: Vec, sign: int) -> Vec:
        if a.partial or b.partial or a.double != b.double:
            raise BoundError(f"{self.f.name}: {operation} of {a.name} and {b.name}, which do not go together")
        low, top = (a.low + b.low, a.top + b.top) if sign > 0 else (a.low - b.top, a.top - b.low)
        if a.double:
            if max(-low, top) > _EXACT:
                raise BoundError(f"{self.f.name}: doubles in [{low}, {top}] are not exact beyond 2^53")
            return Vec(self.f.emit_scalar(f"f{operation} {self._type} {a.name}, {b.name}"), low, top, double=True)
        offset = ((a.offset or 0) + sign * (b.offset or 0)) % _WORD
        return Vec(self.f.emit_scalar(f"{operation} {self.f.type} {a.name}, {b.name}"), low, top, offset=offset)

    def times19(self, a: Vec) -> Vec:
        """19·a, wrapped."""
        eight = Vec(
            self.f.emit_scalar(f"shl {self.f.type} {a.name}, {self.f.constant(3).name}"),
            8 * a.low,
            8 * a.top,
            offset=8 * (a.offset or 0) % _WORD,
        )
        nine = self.add(eight, a)
        return self.add(self.add(nine, nine), a)

    def rebase(self, a: Vec, offset: int) -> Vec:
        """The same integer with another offset."""
        difference = (offset - (a.offset or 0)) % _WORD
        if a.double or a.partial:
            raise BoundError(f"{self.f.name}: {a.name} has no offset")
        name = a.name
        if difference:
            name = self.f.emit_scalar(f"add {self.f.type} {name}, {self.f.constant(difference).name}")
        return Vec(name, a.low, a.top, offset=offset)

    def lift(self, a: Vec, by: int) -> Vec:
        """a + by as a plain value, which it must be for all of a's interval: neither negative nor above 64 bits."""
        low, top = a.low + by, a.top + by
        if not 0 <= low <= top < _WORD:
            raise BoundError(f"{self.f.name}: [{low}, {top}] is no interval of unsigned lanes")
        return Vec(self.rebase(a, by % _WORD).name, low, top)

    # Doubles

    def double(self, a: Vec, minus: int = 0) -> Vec:
        """The double a − minus of a plain value of up to 2^52: its bits above those of 2^52, then a subtraction."""
        if not 0 <= minus <= 1 << 52 or a.top > 1 << 52 or not a.plain:
            raise BoundError(f"{self.f.name}: a value of up to {a.top:#x} less {minus:#x} becomes a double")
        raised = self.f.add(a, self.f.constant(_bits(1 << 52)))
        name = self.f.emit_scalar(f"bitcast {self.f.type} {raised.name} to {self._type}")
        above = self.constant((1 << 52) + minus)
        name = self.f.emit_scalar(f"fsub {self._type} {name}, {above.name}")
        return Vec(name, a.low - minus, a.top - minus, double=True)

    def fits(self, terms: Sequence[tuple[Vec, Vec]], bits: int) -> bool:
        """Whether `product` takes these factors together."""
        return self._sum_from(terms, bits) is not None

    def _sum_from(self, terms: Sequence[tuple[Vec, Vec]], bits: int) -> tuple[int, int, int] | None:
        """The constant to start from, and the least and most of the high part; None if a double could be inexact.

        The constant is such that it and its sums with the products are in [2^(bits + 52), 2^(bits + 53)], where doubles
        are the multiples of 2^bits. So is C + B, so that its differences to these sums are exact. The low parts of all
        products keep the sum with B in [2^52, 2^53], where doubles are the integers.
        """
        unit, first = 1 << bits, 1 << bits + 52
        ends = [[x * y for x in (a.low, a.top) for y in (b.low, b.top)] for a, b in terms]
        start = first + (first // 2 if any(min(some) < 0 for some in ends) else 0)
        left = len(terms) * unit // 2
        if _BIAS % unit or start + _BIAS > 2 * first or not 1 << 52 <= _BIAS - left <= _BIAS + left <= 1 << 53:
            return None
        low = top = start
        for some in ends:
            low, top = low + min(some), top + max(some)
            if not first <= low <= top <= 2 * first:
                return None
            low, top = -((unit - 2 * low) // (2 * unit)) * unit, (2 * top + unit) // (2 * unit) * unit  # rounded
        return start, (low - start) // unit, (top - start) // unit

    def product(self, terms: Sequence[tuple[Vec, Vec]], bits: int) -> tuple[Vec, Vec]:
        """High and low part of a sum of one or two products: a·b + c·d = high·2^bits + low, both wrapped.

        The second product is added to the sum h of the first one, and what this leaves to what the first one left. The
        size of `low` is at most 2^(bits − 1) for each product.

        Raises:
            BoundError: for some factors within the bounds a double would be inexact.
        """
        found = self._sum_from(terms, bits)
        if found is None or not all(a.double and b.double for a, b in terms):
            ends = [(x.low, x.top) for pair in terms for x in pair]
            raise BoundError(f"{self.f.name}: products of factors within {ends} are not split at 2^{bits}")
        start, low, top = found
        high, before, less = self.constant(start).name, self.constant(start + _BIAS).name, ""
        for a, b in terms:
            high = self._fma(a, b, high)
            rest = self.f.emit_scalar(f"fsub {self._type} {before}, {high}")
            left = self._fma(a, b, rest)
            less = self.f.emit_scalar(f"fadd {self._type} {less}, {left}") if less else left
            before = high
        half = len(terms) << bits - 1
        return (
            Vec(self._bits_of(high), low, top, offset=_bits(start)),
            Vec(self._bits_of(less), -half, half, offset=_bits(_BIAS)),
        )

    def _fma(self, a: Vec, b: Vec, c: str) -> str:
        arguments = ", ".join(f"{self._type} {name}" for name in (a.name, b.name, c))
        return self.f.emit_scalar(f"call {self._type} @llvm.fma.v{self.f.lanes}f64({arguments})")

    def _bits_of(self, name: str) -> str:
        return self.f.emit_scalar(f"bitcast {self._type} {name} to {self.f.type}")

    def to_nearest(self, emit: Callable[[], None]) -> None:
        """What `emit` emits, between instructions that set MXCSR for them and back to what the caller had; on
        64-bit Arm FPCR, whose default is 0.

        Another library may have set another rounding for the thread. LLVM moves no instruction across: all that is
        computed with doubles starts from loads that follow the first one, and ends in stores before the last.
        """
        if self.f.lanes == _ARM_LANES:
            control = self.f.emit_scalar("call i64 @llvm.aarch64.get.fpcr()")
            self.f.emit("call void @llvm.aarch64.set.fpcr(i64 0)")
            emit()
            self.f.emit(f"call void @llvm.aarch64.set.fpcr(i64 {control})")
            return
        before, default = self.f.allocate(1), self.f.allocate(1)
        self.f.emit(f"call void @llvm.x86.sse.stmxcsr(ptr {before})")
        self.f.emit(f"store i32 {_NEAREST}, ptr {default}")
        self.f.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {default})")
        emit()
        self.f.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {before})")
