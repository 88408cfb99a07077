"""Checks of arguments that every implementation of `Modulus` shares, so that all of them refuse the same."""

from __future__ import annotations

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular.base import Batch

__all__ = [
    "check_pairing",
    "checked_exponents",
    "checked_groups",
    "checked_modulus",
    "checked_part",
    "checked_places",
    "checked_power",
    "checked_rows",
    "checked_window",
]

_LEAST_BITS, _MOST_BITS = 1024, 16384


def checked_modulus(m: int | mpz) -> mpz:
    """The modulus as an integer of GMP.

    Raises:
        MalformedError: it is even, or has fewer than 1024 or more than 16384 bits.
    """
    number = mpz(m)
    if number < 0 or not _LEAST_BITS <= number.bit_length() <= _MOST_BITS or not number & 1:
        raise MalformedError(
            f"a modulus of {number.bit_length()} bits, {'odd' if number & 1 else 'even'}; an odd one of "
            f"{_LEAST_BITS} to {_MOST_BITS} bits is needed"
        )
    return number


def checked_rows(numbers: np.ndarray, width: int, what: str) -> np.ndarray:
    """Little-endian numbers, uint8 (n, width), C-contiguous.

    Raises:
        MalformedError: the type or shape differs.
    """
    if numbers.dtype != np.uint8 or numbers.ndim != 2 or numbers.shape[1] != width:
        raise MalformedError(f"{what} as {numbers.dtype} {numbers.shape}; uint8 (n, {width}) is needed")
    return np.ascontiguousarray(numbers)


def checked_places(rows: np.ndarray, count: int) -> np.ndarray:
    """Places in a batch of `count` numbers, int64 (n,).

    Raises:
        MalformedError: the type or shape differs, or a place does not exist.
    """
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise MalformedError(f"places as {rows.dtype} {rows.shape}; int64 (n,) is needed")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        raise MalformedError(f"places from {rows.min()} to {rows.max()} in a batch of {count}; 0 to {count - 1} exist")
    return rows


def checked_exponents(exponents: np.ndarray, bases: int) -> np.ndarray:
    """Exponents of `power_products`, int64 (rows, bases).

    Raises:
        MalformedError: the type or shape differs, or an exponent is −2^63, whose magnitude exceeds int64.
    """
    if exponents.dtype != np.int64 or exponents.ndim != 2 or exponents.shape[1] != bases:
        raise MalformedError(f"exponents as {exponents.dtype} {exponents.shape}; int64 (rows, {bases}) is needed")
    if exponents.size and int(exponents.min()) == -(1 << 63):
        raise MalformedError(f"an exponent of −2^63; those from {-(1 << 63) + 1} to {(1 << 63) - 1} are possible")
    return exponents


def checked_groups(groups: np.ndarray, numbers: int, count: int) -> np.ndarray:
    """Groups of `group_products`, int64 (numbers, columns), from −1 to count − 1.

    Raises:
        MalformedError: the type or shape differs, or a group does not exist.
    """
    if groups.dtype != np.int64 or groups.ndim != 2 or len(groups) != numbers:
        raise MalformedError(f"groups as {groups.dtype} {groups.shape}; int64 ({numbers}, columns) is needed")
    if groups.size and not -1 <= int(groups.min()) <= int(groups.max()) < count:
        raise MalformedError(
            f"groups from {groups.min()} to {groups.max()}; those from 0 to {count - 1} exist, and −1 is none"
        )
    return groups


def checked_part(numbers: int, parts: int, bits: int) -> int:
    """The numbers of each part of `horner`.

    Raises:
        MalformedError: the numbers are no such parts, or bits is below 1.
    """
    if parts < 1 or numbers % parts or bits < 1:
        raise MalformedError(f"{numbers} numbers in {parts} parts {bits} bits apart; equal parts, 1 bit or more, go")
    return numbers // parts


def checked_window(bits: int, window: int) -> None:
    """Check the arguments of `fixed_base`.

    Raises:
        MalformedError: bits is below 1, or the window out of range.
    """
    if bits < 1:
        raise MalformedError(f"exponents of {bits} bits; 1 or more are possible")
    if not 4 <= window <= 14:
        raise MalformedError(f"digits of {window} bits; 4 to 14 are possible")


def checked_power(exponent: int | mpz) -> mpz:
    """The exponent of `power` as an integer of GMP.

    Raises:
        MalformedError: it is negative.
    """
    number = mpz(exponent)
    if number < 0:
        raise MalformedError("a negative exponent; invert the numbers first")
    return number


def check_pairing(a: Batch, b: Batch) -> None:
    """Check that `mul` can pair two batches.

    Raises:
        MalformedError: the lengths differ and neither is 1.
    """
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        raise MalformedError(f"batches of {len(a)} and {len(b)} numbers; as many, or one on a side, can be multiplied")
