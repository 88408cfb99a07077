"""Argument checks that all implementations of `Modulus` share, so that they refuse the same inputs."""

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
            f"the modulus is {'odd' if number & 1 else 'even'} and has {number.bit_length()} bits; expected an odd one "
            f"of {_LEAST_BITS} to {_MOST_BITS} bits"
        )
    return number


def checked_rows(numbers: np.ndarray, width: int, what: str) -> np.ndarray:
    """Little-endian numbers, uint8 (n, width), C-contiguous.

    Raises:
        MalformedError: the type or shape differs.
    """
    if numbers.dtype != np.uint8 or numbers.ndim != 2 or numbers.shape[1] != width:
        raise MalformedError(f"{what} are {numbers.dtype} {numbers.shape}; expected uint8 (n, {width})")
    return np.ascontiguousarray(numbers)


def checked_places(rows: np.ndarray, count: int) -> np.ndarray:
    """Places in a batch of `count` numbers, int64 (n,).

    Raises:
        MalformedError: the type or shape differs, or a place does not exist.
    """
    if rows.dtype != np.int64 or rows.ndim != 1:
        raise MalformedError(f"places are {rows.dtype} {rows.shape}; expected int64 (n,)")
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        raise MalformedError(f"places run from {rows.min()} to {rows.max()}; a batch of {count} has 0 to {count - 1}")
    return rows


def checked_exponents(exponents: np.ndarray, bases: int) -> np.ndarray:
    """Exponents of `power_products`, int64 (rows, bases).

    Raises:
        MalformedError: the type or shape differs, or an exponent is −2^63, whose magnitude exceeds int64.
    """
    if exponents.dtype != np.int64 or exponents.ndim != 2 or exponents.shape[1] != bases:
        raise MalformedError(f"exponents are {exponents.dtype} {exponents.shape}; expected int64 (rows, {bases})")
    if exponents.size and int(exponents.min()) == -(1 << 63):
        raise MalformedError(f"an exponent is −2^63; expected {-(1 << 63) + 1} to {(1 << 63) - 1}")
    return exponents


def checked_groups(groups: np.ndarray, numbers: int, count: int) -> np.ndarray:
    """Groups of `group_products`, int64 (numbers, columns), from −1 to count − 1.

    Raises:
        MalformedError: the type or shape differs, or a group does not exist.
    """
    if groups.dtype != np.int64 or groups.ndim != 2 or len(groups) != numbers:
        raise MalformedError(f"groups are {groups.dtype} {groups.shape}; expected int64 ({numbers}, columns)")
    if groups.size and not -1 <= int(groups.min()) <= int(groups.max()) < count:
        raise MalformedError(
            f"groups run from {groups.min()} to {groups.max()}; expected 0 to {count - 1}, or −1 for no group"
        )
    return groups


def checked_part(numbers: int, parts: int, bits: int) -> int:
    """The numbers of each part of `horner`.

    Raises:
        MalformedError: the batch cannot be divided into `parts` equal parts, or bits is below 1.
    """
    if parts < 1 or numbers % parts or bits < 1:
        raise MalformedError(
            f"{numbers} numbers in {parts} parts, {bits} bits a step; expected equal parts, 1 bit or more"
        )
    return numbers // parts


def checked_window(bits: int, window: int | None) -> None:
    """Check the arguments of `fixed_base` and `subset_products`.

    Raises:
        MalformedError: bits is below 1, or the window out of range.
    """
    if bits < 1:
        raise MalformedError(f"exponents have {bits} bits; expected 1 or more")
    if window is not None and not 4 <= window <= 14:
        raise MalformedError(f"digits have {window} bits; expected 4 to 14")


def checked_power(exponent: int | mpz) -> mpz:
    """The exponent of `power` as an integer of GMP.

    Raises:
        MalformedError: it is negative.
    """
    number = mpz(exponent)
    if number < 0:
        raise MalformedError("the exponent is negative; invert the numbers first")
    return number


def check_pairing(a: Batch, b: Batch) -> None:
    """Check that `mul` can pair two batches.

    Raises:
        MalformedError: the lengths differ and neither is 1.
    """
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        raise MalformedError(f"batches have {len(a)} and {len(b)} numbers; expected equal lengths, or one of length 1")
