"""Inverses modulo one number: one of them, or many for the price of one (Montgomery's trick)."""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError

__all__ = ["modular_inverse", "modular_inverses"]


def modular_inverse(value: mpz, m: mpz) -> mpz:
    """1/value modulo m.

    Raises:
        MalformedError: value and m have a common factor.
    """
    try:
        return gmpy2.invert(value, m)
    except ZeroDivisionError:
        raise MalformedError(f"a number without an inverse modulo {m.bit_length()} bits; all must be units") from None


def modular_inverses(values: Sequence[mpz], m: mpz) -> list[mpz]:
    """1/value modulo m for all values, with one inversion (Montgomery 1987, section 10.3.1).

    Raises:
        MalformedError: a value and m have a common factor.
    """
    before = [mpz(1)]
    for value in values:
        before.append(before[-1] * value % m)
    rest = modular_inverse(before[-1], m)
    out = []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        out.append(rest * product % m)
        rest = rest * value % m
    return out[::-1]
