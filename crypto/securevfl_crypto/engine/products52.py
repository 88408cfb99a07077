"""Products of 52-bit numbers by fused multiply-adds in double precision, with rounding toward zero.

Emmart, Zheng and Weems (Faster modular exponentiation using double precision floating point arithmetic on the GPU,
ARITH 2018) get both halves of a product from two of them. With a, b < 2^52, and all doubles scaled by 2^s,

    h = 2^104 + a b, rounded toward zero        = 2^104 + 2^52 ⌊a b / 2^52⌋
    l = a b + ((2^104 + 2^52) − h)              = 2^52 + (a b mod 2^52)

h is in [2^104, 2^105), since a b < 2^104: its last bit has weight 2^52, and rounding toward zero drops what lies below.
The difference is a multiple of 2^52 below 2^104 in size, and l an integer in [2^52, 2^53): both are exact in every
mode. Only h needs the mode, which `with_rounding` sets. Every double here is 0 or 2^s at least, far above denormals.

The bits of h and of l are thus the halves plus a constant, the bits of the exponent: a bias, a multiple of 2^52, which
sums of halves carry along modulo 2^64. The emitter counts it (`Vec.offset`).
"""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.engine.emitter import MASK52, BoundError, Function, Vec

__all__ = [
    "Doubles",
    "bits_of_doubles",
    "high_bias",
    "low_bias",
    "multiply_doubles",
    "read_doubles",
    "to_doubles",
    "with_rounding",
]

_MODE = 0x7FBF
"""MXCSR (Intel's manual, volume 1, 10.2.3): rounding toward zero; no exception traps, and the flags of all are set
beforehand, so that data sets none; denormals as in IEEE 754."""


def _bits_of_power(exponent: int) -> int:
    """The bits of 2^exponent."""
    return (1023 + exponent) << 52


def high_bias(exponent: int) -> int:
    """The bias of the upper half of a product that is scaled by 2^exponent."""
    return _bits_of_power(104 + exponent)


def low_bias(exponent: int) -> int:
    """The bias of the lower half of a product that is scaled by 2^exponent."""
    return _bits_of_power(52 + exponent)


@dataclass(frozen=True)
class Doubles:
    """A vector of doubles, each an integer from 0 to `top`, times 2^exponent.

    Attributes:
        name: SSA name.
        top: the bound.
        exponent: the scale.
    """

    name: str
    top: int
    exponent: int


def _type(f: Function) -> str:
    return f"<{f.lanes} x double>"


def _constant(f: Function, bits: int) -> str:
    return "<" + ", ".join([f"double {bits:#018x}"] * f.lanes) + ">"


def _require_52_bits(f: Function, *tops: int) -> None:
    if max(tops) > MASK52:
        raise BoundError(f"{f.name}: a factor of up to {max(tops):#x} is not below 2^52")


def to_doubles(f: Function, a: Vec, exponent: int = 0) -> Doubles:
    """a · 2^exponent: the bits of a become the fraction of 2^52, which is then subtracted.

    Raises:
        BoundError: a may not be below 2^52.
    """
    _require_52_bits(f, a.top)
    bits = low_bias(exponent)
    filled = f.bitwise("or", a, f.constant(bits))
    name = f.emit_scalar(f"bitcast {f.type} {filled.name} to {_type(f)}")
    return Doubles(f.emit_scalar(f"fsub {_type(f)} {name}, {_constant(f, bits)}"), a.top, exponent)


def bits_of_doubles(f: Function, a: Doubles) -> Vec:
    """Doubles as words."""
    return Vec(f.emit_scalar(f"bitcast {_type(f)} {a.name} to {f.type}"), 0, (1 << 64) - 1)


def read_doubles(f: Function, words: Vec, top: int) -> Doubles:
    """Words as doubles; by the caller's contract these are integers from 0 to `top`."""
    return Doubles(f.emit_scalar(f"bitcast {f.type} {words.name} to {_type(f)}"), top, 0)


def multiply_doubles(f: Function, a: Doubles, b: Doubles) -> tuple[Vec, Vec, Doubles]:
    """The upper and the lower half of a · b, with their biases, and the lower one as doubles.

    Raises:
        BoundError: a factor may not be below 2^52.
    """
    _require_52_bits(f, a.top, b.top)
    exponent, kind = a.exponent + b.exponent, _type(f)
    high, low = high_bias(exponent), low_bias(exponent)
    product = f"call {kind} @llvm.fma.v{f.lanes}f64({kind} {a.name}, {kind} {b.name}, {kind}"
    upper = f.emit_scalar(f"{product} {_constant(f, high)})")
    rest = f.emit_scalar(f"fsub {kind} {_constant(f, high + 1)}, {upper}")  # its last bit has weight 2^52
    lower = f.emit_scalar(f"{product} {rest})")
    plain = f.emit_scalar(f"fsub {kind} {lower}, {_constant(f, low)}")
    words = [f.emit_scalar(f"bitcast {kind} {name} to {f.type}") for name in (upper, lower)]
    most = a.top * b.top
    return (
        Vec(words[0], 0, most >> 52, offset=high),
        Vec(words[1], 0, min(most, MASK52), offset=low),
        Doubles(plain, min(most, MASK52), exponent),
    )


def with_rounding(name: str, parameters: str, body: str) -> str:
    """A function that calls `body` with the rounding mode set, and then gives the caller's back, in LLVM IR.

    It computes nothing itself: the compiler moves no arithmetic across a call of a function that is not inlined. MXCSR
    belongs to a thread, and Linux saves it for the time of a signal's handler.
    """
    passed = ", ".join(f"{one.split()[0]} {one.split()[-1]}" for one in parameters.split(", "))
    return f"""define void @{name}({parameters}) nounwind noinline {{
entry:
  %before = alloca i32, align 4
  %mode = alloca i32, align 4
  store i32 {_MODE}, ptr %mode, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %before)
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @{body}({passed})
  call void @llvm.x86.sse.ldmxcsr(ptr %before)
  ret void
}}
"""
