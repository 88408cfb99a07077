"""Arrays with one row of bytes per item: find duplicates, match rows, draw secret orders."""

from __future__ import annotations

import secrets

import numpy as np

from securevfl_psi.errors import MalformedError

__all__ = ["count_duplicates", "match_rows", "require_unique", "secret_order"]


_NONE = np.empty(0, dtype=np.int64)
_PART = 1 << 20
_MOST_EQUAL = 64  # first halves; three equal ones among 2^24 honest tokens have probability 2^-58


def _split_halves(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    words = np.ascontiguousarray(tokens).view("<u8")
    return words[:, 0], words[:, 1]


def count_duplicates(tokens: np.ndarray) -> int:
    """Count the rows of uint8 (n, 16) that equal an earlier row."""
    first, second = _split_halves(tokens)
    ordered = np.sort(first)  # equal first halves are rare, so one sort of 64-bit words settles nearly every call
    if not (ordered[1:] == ordered[:-1]).any():
        return 0
    order = np.lexsort((second, first))
    return int(((first[order][1:] == first[order][:-1]) & (second[order][1:] == second[order][:-1])).sum())


def require_unique(tokens: np.ndarray, what: str) -> None:
    """Raise if two tokens are equal.

    Different points may share a token: Q and Q + T with T of small order, as clamped scalars remove T.

    Raises:
        MalformedError: two tokens are equal.
    """
    if count_duplicates(tokens):
        raise MalformedError(f"tokens of {what} appear twice; the peer does not follow the protocol")


def match_rows(mine: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the equal rows of two arrays, each without duplicates.

    Args:
        mine: uint8 (n, 16).
        theirs: uint8 (m, 16).

    Returns:
        Row numbers of `mine`, ascending, and of `theirs`, both int64 (k,).

    Raises:
        MalformedError: more of `theirs` have equal first halves than chance explains.
    """
    their_first, their_second = _split_halves(theirs)
    order = np.argsort(their_first)
    if len(order) < 1 << 32:
        order = order.astype(np.uint32)  # half the memory, of which large sets need much here
    sorted_first, sorted_second = their_first[order], their_second[order]
    rows, positions = [_NONE], [_NONE]
    for start in range(0, len(mine), _PART):
        first, second = _split_halves(mine[start : start + _PART])
        ascending = np.argsort(first)  # neighbours are then looked up near each other, which is several times as fast
        place = np.empty(len(first), dtype=np.int64)
        place[ascending] = np.searchsorted(sorted_first, first[ascending])
        waiting = np.arange(len(first))
        rounds = 0
        while len(waiting):  # more than one round only where first halves are equal by chance
            # A peer could send many tokens with one first half, which would make this loop quadratic.
            if rounds > _MOST_EQUAL:
                raise MalformedError(
                    f"more than {_MOST_EQUAL} tokens have equal first halves; the peer does not follow the protocol"
                )
            rounds += 1
            waiting = waiting[place[waiting] < len(order)]
            waiting = waiting[sorted_first[place[waiting]] == first[waiting]]
            equal = sorted_second[place[waiting]] == second[waiting]
            rows.append(start + waiting[equal])
            positions.append(order[place[waiting[equal]]].astype(np.int64))
            waiting = waiting[~equal]
            place[waiting] += 1
    found, where = np.concatenate(rows), np.concatenate(positions)
    order = np.argsort(found)
    return found[order], where[order]


def secret_order(count: int) -> np.ndarray:
    """Draw a uniform permutation from the operating system's randomness: uint32 (count,), or int64 from 2^32 on.

    Sorts by random 64-bit keys. If two keys are equal, all are drawn again: a tie would keep its original order.
    """
    while True:
        keys = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
        order = np.argsort(keys)
        ordered = keys[order]
        if not (ordered[1:] == ordered[:-1]).any():
            return order.astype(np.uint32) if count < 1 << 32 else order
