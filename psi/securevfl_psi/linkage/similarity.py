"""Which pairs are similar: the Dice coefficient over all pairs, or over those that share a block, in bounded memory.

Dice of two filters: 2 |x and y| / (|x| + |y|), with |.| the number of ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.encodings import Encodings, require_comparable

__all__ = ["Candidates", "checked_tokens", "dice", "similar_pairs"]

_TILE_A, _TILE_B = 64, 1024
"""Pairs of a tile: 64 x 1024 words of 8 bytes stay in a core's cache."""
_CHUNK = 1 << 16
"""Pairs of blocks compared at a time."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """All pairs that were compared and reach a similarity, most similar first (then by rows).

    Attributes:
        rows_a: (m,) int64.
        rows_b: (m,) int64.
        scores: Dice coefficients, (m,) float64.
        sizes: records at a and at b.
        minimum: every compared pair of at least this similarity is here.
        compared: how many pairs were compared.
    """

    rows_a: np.ndarray
    rows_b: np.ndarray
    scores: np.ndarray
    sizes: tuple[int, int]
    minimum: float
    compared: int

    def __len__(self) -> int:
        return len(self.scores)

    def at_least(self, score: float) -> Candidates:
        """Those of at least this similarity."""
        keep = int(np.searchsorted(-self.scores, -score, side="right"))
        parts = (self.rows_a[:keep], self.rows_b[:keep], self.scores[:keep])
        return Candidates(*parts, self.sizes, max(score, self.minimum), self.compared)


def dice(a: Encodings, b: Encodings, rows_a: np.ndarray, rows_b: np.ndarray) -> np.ndarray:
    """Dice coefficients of given pairs, (m,) float64; 0 where both are empty."""
    both = np.bitwise_count(a.words[rows_a] & b.words[rows_b]).sum(axis=1, dtype=np.int64)
    return _dice_ratio(both, a.count_ones()[rows_a] + b.count_ones()[rows_b])


def similar_pairs(
    a: Encodings,
    b: Encodings,
    *,
    minimum: float = 0.0,
    limit: int | None = None,
    blocks: tuple[np.ndarray, np.ndarray] | None = None,
) -> Candidates:
    """The similarity join.

    Args:
        a: one party's encodings.
        b: the other's, by the same schema, key and context.
        minimum: the least similarity.
        limit: how many pairs are kept at most, those of the greatest similarity: the minimum is raised to the lowest
        score
            with which the pairs fit. Default: 16 for each record, and no fewer than 2^16.
        blocks: tokens of the records of a and of b, (n, rules) uint64 each, from `blocking_tokens` or `hamming_tokens`:
            only pairs with an equal token in one column are compared; 0 is none. Default: every pair.

    Raises:
        LinkageError: encodings that cannot be compared, a minimum outside 0 to 1, blocks of another shape.
    """
    require_comparable(a, b)
    if not 0 <= minimum <= 1:
        raise LinkageError(f"a least similarity of {minimum!r}; 0 to 1 are possible")
    best = _Best(minimum, max(1 << 16, 16 * (len(a) + len(b))) if limit is None else limit)
    parts = _all_pairs(a, b, best) if blocks is None else _block_pairs(a, b, *checked_tokens(a, b, blocks))
    compared = 0
    for rows_a, rows_b, scores, count in parts:
        compared += count
        best.add_pairs(rows_a, rows_b, scores)
    rows_a, rows_b, scores = best.sorted_pairs()
    return Candidates(rows_a, rows_b, scores, (len(a), len(b)), best.minimum, compared)


class _Best:
    """The pairs of greatest similarity: at most `limit` from `sorted_pairs`, a few times as many until then."""

    def __init__(self, minimum: float, limit: int):
        if limit < 1:
            raise LinkageError(f"at most {limit!r} pairs; 1 or more are needed")
        self.minimum, self.limit = minimum, limit
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._held = 0

    def add_pairs(self, rows_a: np.ndarray, rows_b: np.ndarray, scores: np.ndarray) -> None:
        keep = scores >= self.minimum
        self._parts.append((rows_a[keep], rows_b[keep], scores[keep]))
        self._held += int(keep.sum())
        if self._held > 2 * self.limit:
            self._raise_minimum()

    def _raise_minimum(self) -> None:
        """Raise the minimum to the lowest score with which the pairs fit. Pairs yet to come can only raise it further,
        so the outcome does not depend on their order."""
        rows_a, rows_b, scores = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        if len(scores) > self.limit:
            too_many = -np.partition(-scores, self.limit)[self.limit]  # with this score included, they do not fit
            self.minimum = float(np.nextafter(too_many, 2.0))
        keep = scores >= self.minimum
        self._parts = [(rows_a[keep], rows_b[keep], scores[keep])]
        self._held = int(keep.sum())

    def sorted_pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not self._parts:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
        self._raise_minimum()
        rows_a, rows_b, scores = self._parts[0]
        order = np.lexsort((rows_b, rows_a, -scores))
        return rows_a[order], rows_b[order], scores[order]


_Part = tuple[np.ndarray, np.ndarray, np.ndarray, int]


def _all_pairs(a: Encodings, b: Encodings, best: _Best) -> Iterator[_Part]:
    columns = np.ascontiguousarray(b.words.T)
    ones_a, ones_b = a.count_ones(), b.count_ones()
    for i in range(0, len(a), _TILE_A):
        words = a.words[i : i + _TILE_A]
        for j in range(0, len(b), _TILE_B):
            both = _count_common(words, columns[:, j : j + _TILE_B])
            total = ones_a[i : i + _TILE_A, None] + ones_b[None, j : j + _TILE_B]
            scores = _dice_ratio(both, total)
            at_a, at_b = np.nonzero(scores >= best.minimum)
            yield at_a + i, at_b + j, scores[at_a, at_b], scores.size


def _count_common(words: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Ones that each of (n, w) has in common with each of (w, m): (n, m)."""
    total = np.zeros((len(words), columns.shape[1]), dtype=np.uint32)
    both, count = np.empty(total.shape, dtype=np.uint64), np.empty(total.shape, dtype=np.uint8)
    for w in range(words.shape[1]):
        np.bitwise_and(words[:, w, None], columns[w], out=both)
        np.bitwise_count(both, out=count)
        total += count
    return total


def checked_tokens(a: Encodings, b: Encodings, blocks: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of both files, (n, rules) uint64 each.

    Raises:
        LinkageError: of another form.
    """
    of_a, of_b = blocks
    good = all(t.dtype == np.uint64 and t.ndim == 2 for t in blocks)
    if not good or (len(of_a), len(of_b)) != (len(a), len(b)) or of_a.shape[1] != of_b.shape[1]:
        raise LinkageError(
            f"tokens {of_a.dtype} {of_a.shape} and {of_b.dtype} {of_b.shape}; uint64 ({len(a)}, rules) and "
            f"({len(b)}, rules) are needed"
        )
    return of_a, of_b


def _block_pairs(a: Encodings, b: Encodings, of_a: np.ndarray, of_b: np.ndarray) -> Iterator[_Part]:
    """Each pair once: by the first column in which its tokens are equal."""
    ones_a, ones_b = a.count_ones(), b.count_ones()
    for rule in range(of_a.shape[1]):
        order = np.argsort(of_b[:, rule], kind="stable")
        tokens = of_b[order, rule]
        rows = np.flatnonzero(of_a[:, rule])
        first = np.searchsorted(tokens, of_a[rows, rule], side="left")
        ends = np.cumsum(np.searchsorted(tokens, of_a[rows, rule], side="right") - first)
        for start in range(0, int(ends[-1]) if len(ends) else 0, _CHUNK):
            pair = np.arange(start, min(start + _CHUNK, int(ends[-1])))
            at = np.searchsorted(ends, pair, side="right")
            begin = np.where(at > 0, ends[at - 1], 0)
            rows_a, rows_b = rows[at], order[first[at] + pair - begin]
            earlier = of_a[rows_a, :rule]
            new = ~((earlier == of_b[rows_b, :rule]) & (earlier != 0)).any(axis=1)
            rows_a, rows_b = rows_a[new], rows_b[new]
            both = np.bitwise_count(a.words[rows_a] & b.words[rows_b]).sum(axis=1, dtype=np.int64)
            yield rows_a, rows_b, _dice_ratio(both, ones_a[rows_a] + ones_b[rows_b]), len(rows_a)


def _dice_ratio(both: np.ndarray, total: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = 2.0 * both / np.maximum(total, 1)
    return ratio
