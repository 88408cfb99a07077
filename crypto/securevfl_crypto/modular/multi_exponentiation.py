"""Products of powers, ``Π_j b_j^{e_j}``: integer matrices times rows of ciphertexts.

A sealed cut needs three shapes, each with a best method: few bases for many rows of short exponents (tables shared by
all rows, Straus 1964); many bases for few rows (buckets, Pippenger 1976); few bases with long exponents (Straus with a
window chosen by cost). Exponents are signed. The running time is not constant: it depends on the digits of the
exponents, and another process on the same machine can measure it.
"""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.modular.inverses import modular_inverse, modular_inverses

__all__ = ["best_window", "many_bases", "shared_tables"]


def best_window(bits: int, rows: int) -> int:
    """The window w with the fewest products for one base in Straus' method: a table of 2^w, and ⌈bits/w⌉ per row."""
    return min(range(1, 13), key=lambda w: (1 << w) + rows * -(-bits // w))


def shared_tables(bases: Sequence[mpz], exponents: np.ndarray, modulus: mpz) -> list[mpz]:
    """``out[i] = Π_j bases[j]^exponents[i, j] mod modulus`` for few bases and many rows (Straus).

    Exponents are shifted by 2^(bits − 1) to be non-negative; one inverse, shared by all rows, shifts the results back.

    Args:
        bases: d units modulo `modulus`.
        exponents: (rows, d) integers, any sign, int64 or Python's.
        modulus: odd.

    Raises:
        MalformedError: a base has no inverse.
    """
    rows = exponents.astype(object)
    bits = max((abs(int(e)).bit_length() for e in rows.flat), default=0) + 1
    offset = 1 << (bits - 1)
    window = best_window(bits, len(rows))
    product = mpz(1)
    for base in bases:
        product = product * base % modulus
    correction = modular_inverse(gmpy2.powmod(product, offset, modulus), modulus)
    tables = [_power_table(base, 1 << window, modulus) for base in bases]
    mask, top = (1 << window) - 1, (bits - 1) // window
    out = []
    for row in rows:
        shifted = [int(e) + offset for e in row]
        value = mpz(1)
        for step in range(top, -1, -1):
            if step < top:
                for _ in range(window):
                    value = value * value % modulus
            shift = step * window
            for table, e in zip(tables, shifted, strict=True):
                digit = (e >> shift) & mask
                if digit:
                    value = value * table[digit] % modulus
        out.append(value * correction % modulus)
    return out


def _power_table(base: mpz, count: int, modulus: mpz) -> list[mpz]:
    powers = [mpz(1), base]
    for _ in range(count - 2):
        powers.append(powers[-1] * base % modulus)
    return powers


def many_bases(bases: Sequence[mpz], exponents: np.ndarray, modulus: mpz) -> list[mpz]:
    """``out[i] = Π_j bases[j]^exponents[i, j] mod modulus`` for many bases and few rows (Pippenger, signed digits).

    Args:
        bases: B units modulo `modulus`.
        exponents: (rows, B) int64, magnitudes below 2^40.
        modulus: odd.

    Raises:
        MalformedError: a base has no inverse.
    """
    if exponents.size == 0:
        return [mpz(1)] * len(exponents)
    bits = int(np.abs(exponents).max()).bit_length() + 1
    window = min(range(2, 9), key=lambda w: -(-bits // w) * (len(bases) + 2 * (1 << (w - 1)) + w))
    half, full = 1 << (window - 1), 1 << window
    inverted = modular_inverses(bases, modulus)
    digits = []
    rest = exponents.astype(np.int64)
    while rest.any():
        digit = ((rest + half) & (full - 1)) - half
        digits.append(digit)
        rest = (rest - digit) >> window
    out = []
    for i in range(len(exponents)):
        value = mpz(1)
        for level in range(len(digits) - 1, -1, -1):
            if level < len(digits) - 1:
                for _ in range(window):
                    value = value * value % modulus
            value = value * _bucket_products(bases, inverted, digits[level][i].tolist(), half, modulus) % modulus
        out.append(value)
    return out


def _bucket_products(bases: Sequence[mpz], inverted: Sequence[mpz], digits: list[int], half: int, modulus: mpz) -> mpz:
    """``Π_j bases[j]^digits[j]``: gather bases by digit, then ``Π_v bucket_v^v`` by running products."""
    buckets: list[mpz | None] = [None] * (half + 1)
    for base, inverse_of_base, digit in zip(bases, inverted, digits, strict=True):
        if digit:
            factor, place = (base, digit) if digit > 0 else (inverse_of_base, -digit)
            held = buckets[place]
            buckets[place] = factor if held is None else held * factor % modulus
    running, total = mpz(1), mpz(1)
    for held in reversed(buckets[1:]):
        if held is not None:
            running = running * held % modulus
        total = total * running % modulus
    return total
