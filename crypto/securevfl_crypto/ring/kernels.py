"""The inner loops of the comparison of a shared number with zero: SecureNN's, behind the mask of the truncation.

The setting (Wagh, Gupta and Chandran, SecureNN, PETS 2019, algorithm 3). P2 knows a uniform mask r, P0 and P1 know
c = z + 2^62 + r modulo 2^64, where −2^62 ≤ z < 2^62. With R = r mod 2^62 and C = c mod 2^62,

    z ≥ 0   ⇔   bit 62 of c  ⊕  bit 62 of r  ⊕  [R > C].

The three find [R > C] so that P2 learns nothing and P0 and P1 learn no more than c:

1. P2 shares the bits of X = 2R modulo 67 between P0 and P1 (`deal_bits`), ahead of time. P0's share is from a stream.
2. P0 and P1 know Y = 2C + 1, and X ≠ Y because one is even and the other odd. For each bit j from the top they compute,
   on their shares, e_j = ±(y_j − x_j) + 1 + Σ_{i>j} (x_i ⊕ y_i): between 0 and 64, and 0 at exactly one place if
   X > Y, at none otherwise. A coin turns the sign, and with it the question into X < Y. They multiply every e_j by a
   common random factor from 1 to 66, rotate the places by a common random distance, add shares of zero, and send the
   result to P2 (`mask_comparison`).
3. P2 adds the two and looks for a zero: it sees [X > Y] ⊕ coin (`count_zeros`), and otherwise uniform numbers.

Layout: one row of 64 octets for each comparison, `COLUMNS`. Column 0 is the last bit of X and Y, column j bit j − 1 of
R and C; column 63 is a number that is never zero and makes rotation one modulo 64. A row fills one vector register.
Numbers modulo 67 are octets from 0 to 66, in memory and on the wire.

Randomness, from the streams of the pairs (`Stream.draw_residues` and `Stream.draw_octets`):

    P0's bit shares   `stream02.residues(use, n * 64, 67).reshape(n, 64)`, and the same at P2
    factors           `stream01.residues(use, m * 64, 66).reshape(m, 64)`, 0 to 65; the kernel adds 1
    shares of zero    `stream01.residues(use, m * 64, 67).reshape(m, 64)`
    turns             `stream01.octets(use, m)`: six bits of rotation, and the coin in bit 6

Several constants behind one mask: with n masks and m = t · n comparisons, row i uses the bits of mask i mod n; c then
has the t opened words of all masks one after another: c + constant 1, c + constant 2 …, flat. Each row needs factors,
zeros and a turn that no other row uses.
"""

from __future__ import annotations

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring.base import COLUMNS, MODULUS
from securevfl_crypto.ring.paths import ring_loops
from securevfl_crypto.ring.words import check_words

__all__ = ["COLUMNS", "MODULUS", "check_residues", "deal_bits", "extract_coins", "find_zeros", "mask_comparison"]


def extract_coins(turns: np.ndarray) -> np.ndarray:
    """The coins among turns, uint64 of the same shape, 0 or 1: P0 and P1 compute bit 62 of c ⊕ coin."""
    return ((turns >> np.uint8(6)) & np.uint8(1)).astype(np.uint64)


def deal_bits(r: np.ndarray, first: np.ndarray) -> np.ndarray:
    """P2: the share of P1 of the bits of X = 2 (r mod 2^62), when P0's share is `first`.

    Args:
        r: the masks, uint64 (n,).
        first: P0's share, uint8 (n, 64), 0 to 66; columns 0 and 63 hide zeros.

    Returns:
        uint8 (n, 64), 0 to 66: bits minus first, modulo 67.

    Raises:
        MalformedError: another type or shape.
    """
    masks = check_words(r, "masks")
    if masks.ndim != 1:
        raise MalformedError(f"masks are {masks.shape}; expected one dimension")
    shares = _check_rows(first, len(masks), "shares of bits")
    return ring_loops().deal_bits(masks, shares)


def mask_comparison(
    c: np.ndarray,
    bits: np.ndarray,
    factors: np.ndarray,
    zeros: np.ndarray,
    turns: np.ndarray,
    *,
    first: bool,
) -> np.ndarray:
    """P0 and P1: the message to P2, step 2 of the module's description.

    Args:
        c: the opened words, uint64 (m,), m = t · n.
        bits: this party's share of the bits, uint8 (n, 64), 0 to 66.
        factors: uint8 (m, 64), 0 to 65; the same at both.
        zeros: uint8 (m, 64), 0 to 66; the same at both. P0 adds them, P1 subtracts them.
        turns: uint8 (m,); the same at both.
        first: whether this is P0.

    Returns:
        uint8 (m, 64), 0 to 66.

    Raises:
        MalformedError: another type or shape.
    """
    opened = check_words(c, "opened words")
    if opened.ndim != 1:
        raise MalformedError(f"opened words are {opened.shape}; expected one dimension")
    m = len(opened)
    shares = _check_rows(bits, None, "shares of bits")
    if m and (not len(shares) or m % len(shares)):
        raise MalformedError(f"{m} comparisons with {len(shares)} masks; expected a multiple of the number of masks")
    if not isinstance(turns, np.ndarray) or turns.dtype != np.uint8 or turns.shape != (m,):
        raise MalformedError(f"turns are {_describe_rows(turns)}; uint8 ({m},) was expected")
    return ring_loops().mask_comparison(
        opened,
        shares,
        _check_rows(factors, m, "factors"),
        _check_rows(zeros, m, "shares of zero"),
        np.ascontiguousarray(turns),
        first=first,
    )


def find_zeros(from_first: np.ndarray, from_second: np.ndarray) -> np.ndarray:
    """P2: in which rows the two messages add up to a zero.

    Args:
        from_first: P0's message, uint8 (m, 64).
        from_second: P1's.

    Returns:
        uint64 (m,), 0 or 1: [R > C] ⊕ coin.

    Raises:
        MalformedError: another type or shape, a number above 66, or a row with two zeros. Two zeros cannot happen if
            both senders drew from the same places of the same stream; this error shows early that they did not.
    """
    one = check_residues(from_first, None, "masked rows")
    other = check_residues(from_second, len(one), "masked rows")
    counts = ring_loops().count_zeros(one, other)
    if counts.size and int(counts.max()) > 1:
        raise MalformedError(
            f"{int((counts > 1).sum())} of {len(counts)} masked rows contain several zeros; expected at most "
            "one: the two senders drew different randomness, or opened different words"
        )
    return counts


def check_residues(rows: np.ndarray, count: int | None, what: str) -> np.ndarray:
    """Check rows of residues that a peer sent, and return them in one piece.

    Args:
        rows: uint8 (n, 64), 0 to 66.
        count: n; None for any.
        what: how the error calls them.

    Raises:
        MalformedError: another type or shape, or a number above 66: the kernels' sums would overflow.
    """
    found = _check_rows(rows, count, what)
    if found.size and int(found.max()) >= MODULUS:
        raise MalformedError(f"{what} contain {int(found.max())}; expected numbers below {MODULUS}")
    return found


def _describe_rows(rows: object) -> str:
    return f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__


def _check_rows(rows: np.ndarray, count: int | None, what: str) -> np.ndarray:
    if (
        not isinstance(rows, np.ndarray)
        or rows.dtype != np.uint8
        or rows.ndim != 2
        or rows.shape[1] != COLUMNS
        or (count is not None and len(rows) != count)
    ):
        expected = f"({'n' if count is None else count}, {COLUMNS})"
        raise MalformedError(f"{what} are {_describe_rows(rows)}; uint8 {expected} was expected")
    return np.ascontiguousarray(rows)
