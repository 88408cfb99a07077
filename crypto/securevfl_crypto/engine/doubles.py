"""Products of 52-bit numbers by fused multiply-adds in double precision, with rounding toward zero.

Emmart, Zheng and Weems (Faster modular exponentiation using double precision floating point arithmetic on the GPU,
ARITH 2018) get both halves of a product from two of them. With a, b < 2^52, and all doubles scaled by 2^s,

    h = 2^104 + a b, rounded toward zero        = 2^104 + 2^52 ⌊a b / 2^52⌋
    l = a b + ((2^104 + 2^52) − h)              = 2^52 + (a b mod 2^52)

h is in [2^104, 2^105), since a b < 2^104: its last bit has weight 2^52, and rounding toward zero drops what lies below.
The difference is a multiple of 2^52 of at most 53 bits, and l an integer in [2^52, 2^53): both are exact in every
mode. Only h needs the mode, which `with_rounding` sets. Every double here is zero or at least 2^s, far from denormals.

The bits of h and of l are thus the halves plus a constant, the exponent's bits: a bias, a multiple of 2^52, which sums
of halves carry along modulo 2^64. The emitter counts it (`Vec.bias`).
"""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.engine.emitter import MASK52, BoundError, Function, Vec

__all__ = ["DECLARATIONS", "Doubles", "doubles_bits", "high_bias", "low_bias", "multiply_doubles", "read_doubles", "to_doubles", "with_rounding"]

_MODE = 0x7F80
"""MXCSR: rounding toward zero, all exceptions masked, denormals as IEEE 754 has them."""


def _bits(exponent: int) -> int:
    """The bits of 2^exponent."""
    return 1023 + exponent << 52


def high_bias(exponent: int) -> int:
    """The bias of a product's upper half; `exponent` is the sum of its factors'."""
    return _bits(104 + exponent)


def low_bias(exponent: int) -> int:
    """The bias of a product's lower half."""
    return _bits(52 + exponent)


@dataclass(frozen=True)
class Doubles:
    """A vector of doubles, each an integer from 0 to `top`, below 2^52, times 2^exponent.

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


def to_doubles(f: Function, a: Vec, exponent: int = 0) -> Doubles:
    """a · 2^exponent, where a is below 2^52: set as the fraction of 2^52, which is then subtracted.

    Raises:
        BoundError: a may not be below 2^52.
    """
    if a.top > MASK52:
        raise BoundError(f"{f.name}: a factor of up to {a.top:#x} is not below 2^52")
    bits = low_bias(exponent)
    filled = f.bitwise("or", a, f.constant(bits))
    name = f.emit_scalar(f"bitcast {f.type} {filled.name} to {_type(f)}")
    return Doubles(f.emit_scalar(f"fsub {_type(f)} {name}, {_constant(f, bits)}"), a.top, exponent)


def doubles_bits(f: Function, a: Doubles) -> Vec:
    """The bits of doubles, to be stored."""
    return Vec(f.emit_scalar(f"bitcast {_type(f)} {a.name} to {f.type}"), 0, (1 << 64) - 1)


def read_doubles(f: Function, bits: Vec, top: int) -> Doubles:
    """The doubles of these bits; by the caller's contract integers of at most `top`."""
    return Doubles(f.emit_scalar(f"bitcast {f.type} {bits.name} to {_type(f)}"), top, 0)


def multiply_doubles(f: Function, a: Doubles, b: Doubles) -> tuple[Vec, Vec, Doubles]:
    """The upper and the lower half of a · b, with their biases, and the lower one as doubles."""
    exponent = a.exponent + b.exponent
    high, low = high_bias(exponent), low_bias(exponent)
    kind = _type(f)
    call = f"call {kind} @llvm.fma.v{f.lanes}f64({kind} {a.name}, {kind} {b.name}, {kind}"
    upper = f.emit_scalar(f"{call} {_constant(f, high)})")
    rest = f.emit_scalar(f"fsub {kind} {_constant(f, high + 1)}, {upper}")  # 2^104 + 2^52: one in the last place
    lower = f.emit_scalar(f"{call} {rest})")
    plain = f.emit_scalar(f"fsub {kind} {lower}, {_constant(f, low)}")
    top = min(a.top * b.top, MASK52)
    upper, lower = (f.emit_scalar(f"bitcast {kind} {one} to {f.type}") for one in (upper, lower))
    return (
        Vec(upper, 0, a.top * b.top >> 52, bias=high),
        Vec(lower, 0, top, bias=low),
        Doubles(plain, top, exponent),
    )


DECLARATIONS = "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"


def with_rounding(name: str, parameters: str, body: str) -> str:
    """A function that calls `body` with the rounding mode set, and gives its caller's mode back.

    It computes nothing itself: a call is what no compiler moves arithmetic across.
    """
    passed = ", ".join(f"{one.split()[0]} {one.split()[-1]}" for one in parameters.split(", "))
    return f"""define void @{name}({parameters}) nounwind noinline {{
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
