"""Products and powers modulo long numbers of the sizes that Paillier's keys have, and squares of such numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gmpy2 import mpz
from securevfl_crypto.modular import modular_arithmetic

from vectors.forms import Case, Compute, Group, pseudo_random

__all__ = ["COMPUTE", "groups"]

_SIZES = (1024, 2048, 3072, 4096)
"""Bits. Keys of 2048 and 3072 bits work modulo squares of such numbers, and modulo squares of their factors."""
_EXPONENT = (1 << 16) + 1


def _draw_odd(label: str, bits: int) -> int:
    """An odd number of exactly so many bits, from a label."""
    return int.from_bytes(pseudo_random(label, bits // 8), "little") | 1 << bits - 1 | 1


def _list_tests(m: int, label: str) -> list[Case]:
    """Factors at the end of the range, with all limbs ones, and in the middle."""
    ones = (1 << m.bit_length() - 1) - 1
    drawn = [_draw_odd(f"{label} factor {k}", m.bit_length()) % m for k in range(2)]
    pairs = {"the largest factors": (m - 1, m - 2), "all limbs ones": (ones, ones), "random": (drawn[0], drawn[1])}
    return [
        {"comment": comment, "a": f"{a:x}", "b": f"{b:x}", "flags": ["EdgeWord"] if comment != "random" else []}
        for comment, (a, b) in pairs.items()
    ]


def groups() -> list[Group]:
    """The groups of ``modular.json``."""
    out = []
    for bits in _SIZES:
        for name, n in (("random", _draw_odd(f"long {bits}", bits)), ("all limbs ones", (1 << bits) - 1)):
            source = f"made for this file; {bits} bits, {name}"
            out.append(Group("ModularProduct", source, _list_tests(n, f"{name} {bits}"), {"modulus": f"{n:x}"}))
            if bits in (1024, 2048, 3072):
                tests = _list_tests(n * n, f"{name} {bits} squared")
                out.append(Group("ModularProduct", f"{source}; modulo its square", tests, {"root": f"{n:x}"}))
    return out


def _multiply(path: str, group: Mapping[str, Any], test: Mapping[str, Any]) -> Case:
    """The product, and a to the power of 2^16 + 1, on a path."""
    root = mpz(int(group["root"], 16)) if "root" in group else None
    m = mpz(int(group["modulus"], 16)) if root is None else root**2
    modulus = modular_arithmetic(m, path, root=root)
    a, b = (modulus.from_ints([mpz(int(test[name], 16))]) for name in ("a", "b"))
    found = {"product": modulus.mul(a, b), "power": modulus.power(a, _EXPONENT)}
    return {name: f"{modulus.to_ints(one)[0]:x}" for name, one in found.items()}


COMPUTE: dict[str, Compute] = {"ModularProduct": _multiply}
