"""AVX-512's instructions in plain LLVM IR, so that a CPU with AVX2 computes what the emitters wrote for longer vectors.

Each intrinsic that the kernels of `avx512` and `ifma` call becomes a function of the module, as Intel's manual defines
it. This tests the emitted arithmetic. LLVM's code for AVX-512 runs on a CPU that has it, in the other tests.
"""

from __future__ import annotations

import re

__all__ = ["DEFINITIONS", "in_plain_ir"]

_V, _WIDE, _MASK52 = "<8 x i64>", "<8 x i128>", (1 << 52) - 1


def _multiply_add(half: str) -> str:
    """acc + the low or the high 52 bits of the product of the low 52 bits of a and b."""
    part = [f"%part = and {_V} %low, splat (i64 {_MASK52})"]
    if half == "h":
        part = [f"%up = lshr {_WIDE} %product, splat (i128 52)", f"%part = trunc {_WIDE} %up to {_V}"]
    lines = [
        *(f"%{x}52 = and {_V} %{x}, splat (i64 {_MASK52})" for x in "ab"),
        *(f"%{x}w = zext {_V} %{x}52 to {_WIDE}" for x in "ab"),
        f"%product = mul {_WIDE} %aw, %bw",
        f"%low = trunc {_WIDE} %product to {_V}",
        *part,
        f"%out = add {_V} %acc, %part",
    ]
    return _function(_V, f"{_V} %acc, {_V} %a, {_V} %b", lines, half)


def _permute() -> str:
    """Lane k is word index[k] mod 16 of the sixteen in a and b."""
    order = ", ".join(f"i32 {k}" for k in range(16))
    lines = [f"%all = shufflevector {_V} %a, {_V} %b, <16 x i32> <{order}>"]
    held = f"{_V} zeroinitializer"
    for k in range(8):
        lines += [
            f"%i{k} = extractelement {_V} %index, i32 {k}",
            f"%j{k} = and i64 %i{k}, 15",
            f"%e{k} = extractelement <16 x i64> %all, i64 %j{k}",
            f"%{'out' if k == 7 else f'r{k}'} = insertelement {held}, i64 %e{k}, i32 {k}",
        ]
        held = f"{_V} %r{k}"
    return _function(_V, f"{_V} %a, {_V} %index, {_V} %b", lines, "permute")


def _multiply_pairs() -> str:
    """Signed 16-bit numbers times their like, and two neighbours' products added."""
    shorts, words = "<32 x i16>", "<32 x i32>"
    even, odd = (", ".join(f"i32 {k}" for k in range(start, 32, 2)) for start in (0, 1))
    lines = [
        *(f"%{x}w = sext {shorts} %{x} to {words}" for x in "ab"),
        f"%products = mul {words} %aw, %bw",
        f"%even = shufflevector {words} %products, {words} zeroinitializer, <16 x i32> <{even}>",
        f"%odd = shufflevector {words} %products, {words} zeroinitializer, <16 x i32> <{odd}>",
        "%out = add <16 x i32> %even, %odd",
    ]
    return _function("<16 x i32>", f"{shorts} %a, {shorts} %b", lines, "pairs")


def _function(kind: str, parameters: str, lines: list[str], name: str) -> str:
    # Calls, not inlined: what LLVM compiles stays small.
    body = "\n".join(f"  {line}" for line in lines)
    return f"define internal {kind} @plain_{name}({parameters}) noinline nounwind {{\n{body}\n  ret {kind} %out\n}}\n"


DEFINITIONS = {
    "llvm.x86.avx512.vpmadd52l.uq.512": ("plain_l", _multiply_add("l")),
    "llvm.x86.avx512.vpmadd52h.uq.512": ("plain_h", _multiply_add("h")),
    "llvm.x86.avx512.vpermi2var.q.512": ("plain_permute", _permute()),
    "llvm.x86.avx512.pmaddw.d.512": ("plain_pairs", _multiply_pairs()),
}
"""Intrinsic → the function in its place, and its text."""


def in_plain_ir(text: str) -> str:
    """A module with these intrinsics replaced.

    Raises:
        ValueError: it calls another one of AVX-512: define it here.
    """
    for intrinsic, (name, definition) in DEFINITIONS.items():
        if f"@{intrinsic}(" in text:
            text = re.sub(rf"^declare [^\n]*@{re.escape(intrinsic)}\([^\n]*\n", "", text, flags=re.MULTILINE)
            text = text.replace(f"@{intrinsic}(", f"@{name}(") + definition
    left = sorted(set(re.findall(r"llvm\.x86\.avx512[\w.]*", text)))
    if left:
        raise ValueError(f"not defined in plain IR: {', '.join(left)}")
    return text
