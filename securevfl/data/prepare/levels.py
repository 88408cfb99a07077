"""Encode categories: one-hot, by frequency in the training rows, or by salted hash buckets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.data.prepare.rules import ColumnRules

__all__ = ["MISSING", "Levels", "fit_levels"]

MISSING = "(missing)"
OTHER = "(other)"
_KEPT = 1 << 16
"""Maximum levels with a stored frequency; other levels get that of the rarest stored one."""
_DIGEST = 8


@dataclass(frozen=True)
class Levels:
    """Encoding of a category column's levels; see `ColumnRules.categorical`.

    Attributes:
        onehot: levels with a separate column, sorted; the empty text is a missing value.
        other: whether all other levels share a column: rare levels of the training rows and new levels. Without it,
            these become zeros.
        counted: levels with a stored frequency, the most frequent first; empty if the frequency is not encoded.
        frequency: scaled frequency of each of them, (len(counted),).
        unknown: scaled frequency of a level that is new or not stored.
        buckets: number of columns of a keyed hash of the level; 0 for no hashing.
        salt: the key of the hash.
    """

    onehot: tuple[str, ...] = field(default=(), repr=False)
    other: bool = False
    counted: tuple[str, ...] = field(default=(), repr=False)
    frequency: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    unknown: float = 0.0
    buckets: int = 0
    salt: bytes = field(default=b"", repr=False)

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return len(self.onehot) + self.other + bool(self.counted) + self.buckets

    def encoded_names(self, column: str) -> list[str]:
        """Names of these numbers."""
        found = [f"{column}={level or MISSING}" for level in self.onehot]
        found += [f"{column}={OTHER}"] if self.other else []
        found += [f"{column} frequency"] if self.counted else []
        return found + [f"{column} bucket {i}" for i in range(self.buckets)]

    def encode_levels(self, words: Sequence[str]) -> np.ndarray:
        """Encode levels, (n, width) float32."""
        found = np.zeros((len(words), self.width), dtype=np.float32)
        rows = np.arange(len(words))
        if self.onehot or self.other:
            place = {level: i for i, level in enumerate(self.onehot)}
            at = np.array([place.get(word, len(place)) for word in words], dtype=np.int64)
            known = at < len(place) + self.other
            found[rows[known], at[known]] = 1
        if self.counted:
            shares = dict(zip(self.counted, self.frequency.tolist(), strict=True))
            found[:, len(self.onehot) + self.other] = [shares.get(word, self.unknown) for word in words]
        if self.buckets:
            found[rows, [self._hash_bucket(word) for word in words]] = 1
        return found

    def _hash_bucket(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode(), key=self.salt, digest_size=_DIGEST).digest()
        return int.from_bytes(digest, "little") % self.buckets


def fit_levels(words: Sequence[str], rows: np.ndarray, rules: ColumnRules, salt: bytes) -> tuple[Levels | None, str]:
    """Fit levels on training rows; returns them with a description, or None if they would not distinguish rows.

    Args:
        words: the different texts; the empty text is a missing value.
        rows: number of training rows of each text, (len(words),), at least 1.
        rules: the column's rules.
        salt: the party's secret key for the buckets.
    """
    order = sorted(range(len(words)), key=lambda i: (-int(rows[i]), words[i]))
    total, least = int(rows.sum()), rules.rare_below(int(rows.sum()))
    frequent = [words[i] for i in order if rows[i] >= least]
    few = len(frequent) + (len(frequent) < len(words)) <= rules.levels
    if len(words) == 1:
        return None, f"all training rows have the same level{'' if words[0] else ', no value'}"
    if rules.categorical == "hash":
        return Levels(buckets=rules.buckets, salt=salt), f"{len(words):,} levels in {rules.buckets} salted buckets"
    if rules.categorical == "onehot" or (rules.categorical == "auto" and few and frequent):
        kept = frequent if few else frequent[: rules.levels - 1]
        other = len(kept) < len(words)
        if not kept:
            return None, f"none of its {len(words):,} levels has {least} training rows or more"
        grouped = f", {len(words) - len(kept):,} rare ones grouped" if other else ""
        return Levels(onehot=tuple(sorted(kept)), other=other), f"one-hot of {len(kept)} levels{grouped}"
    counts = np.array([rows[i] for i in order[:_KEPT]], dtype=np.float64)
    shares = np.log(counts / total)
    mean = float(np.average(shares, weights=counts))
    spread = float(np.sqrt(np.average((shares - mean) ** 2, weights=counts)))
    if counts[0] == counts[-1]:
        return None, f"its {len(words):,} levels have {int(counts[0])} training rows each: an identifier, or free text"
    unknown = float((np.log(0.5 / total if len(words) <= _KEPT else counts[-1] / total) - mean) / spread)
    kept = [] if rules.categorical == "frequency" else frequent[: rules.levels - 1]
    found = Levels(
        onehot=tuple(sorted(kept)),
        other=bool(kept) and len(kept) < len(words),
        counted=tuple(words[i] for i in order[:_KEPT]),
        frequency=(shares - mean) / spread,
        unknown=unknown,
    )
    top = f"one-hot of the {len(kept)} most frequent of {len(words):,} levels, and the" if kept else "the"
    return found, f"{top} frequency of each level"
