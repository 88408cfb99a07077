"""SHA-512 of as many messages at a time as a vector has lanes (FIPS 180-4, section 6.4)."""

from __future__ import annotations

from math import isqrt

from securevfl_crypto.engine.emitter import Function, Vec

__all__ = ["CONSTANTS", "INITIAL", "emit_compression"]


def _first_primes(count: int) -> list[int]:
    found: list[int] = []
    n = 2
    while len(found) < count:
        if all(n % p for p in found):
            found.append(n)
        n += 1
    return found


def _cube_root(n: int) -> int:
    """Floor of the cube root."""
    low, high = 0, 1 << (n.bit_length() // 3 + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= n else (low, middle - 1)
    return low


_WORD = (1 << 64) - 1
INITIAL = [isqrt(p << 128) & _WORD for p in _first_primes(8)]
"""FIPS 180-4, section 5.3.5: the fractions of the square roots of the first eight primes."""
CONSTANTS = [_cube_root(p << 192) & _WORD for p in _first_primes(80)]
"""Section 4.2.3: of the cube roots of the first eighty."""


def emit_compression(f: Function) -> None:
    """``(planes state, planes words, i64 stride, i64 blocks)``: each column's state after a block of 16 words."""

    def xor(*values: Vec) -> Vec:
        out = values[0]
        for value in values[1:]:
            out = f.bitwise("xor", out, value)
        return out

    def add(*values: Vec) -> Vec:
        out = values[0]
        for value in values[1:]:
            out = f.add_wrapping(out, value)
        return out

    def small(x: Vec, one: int, two: int, shift: int) -> Vec:
        return xor(f.rotate_right(x, one), f.rotate_right(x, two), f.shift_right(x, shift))

    def large(x: Vec, one: int, two: int, three: int) -> Vec:
        return xor(f.rotate_right(x, one), f.rotate_right(x, two), f.rotate_right(x, three))

    def sixteen_rounds(turn: str, carried: list[Vec]) -> list[Vec]:
        a, b, c, d, e, g, h, i = carried[:8]
        w = carried[8:]
        first = f.emit_scalar(f"mul i64 {turn}, 16")
        for t in range(16):
            constant = f.broadcast("%constants", f.emit_scalar(f"add i64 {first}, {t}"))
            choice = xor(h, f.bitwise("and", e, xor(g, h)))
            majority = f.bitwise("or", f.bitwise("and", a, b), f.bitwise("and", c, f.bitwise("or", a, b)))
            t1 = add(i, large(e, 14, 18, 41), choice, constant, w[t])
            t2 = add(large(a, 28, 34, 39), majority)
            a, b, c, d, e, g, h, i = add(t1, t2), a, b, c, add(d, t1), e, g, h
        for t in range(16):  # W of the next sixteen rounds, in place of those that it needs no more
            w[t] = add(small(w[(t + 14) % 16], 19, 61, 6), w[(t + 9) % 16], small(w[(t + 1) % 16], 1, 8, 7), w[t])
        return [a, b, c, d, e, g, h, i, *w]

    def body(index: str, _: list[Vec]) -> list[Vec]:
        start = f.emit_scalar(f"mul i64 {index}, {f.lanes}")

        def place(base: str, word: int) -> str:
            plane = f.emit_scalar(f"mul i64 %stride, {word}")
            return f.offset(base, f.emit_scalar(f"add i64 {plane}, {start}"))

        state = [f.load(place("%state", k)) for k in range(8)]
        w = [f.load(place("%words", k)) for k in range(16)]
        new = f.loop(5, sixteen_rounds, [(value, _WORD) for value in (*state, *w)])
        for k, (old, value) in enumerate(zip(state, new[:8], strict=True)):
            f.store(add(old, value), place("%state", k))
        return []

    f.loop("%blocks", body)
