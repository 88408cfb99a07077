"""False pairs of one household: finds the refused ones, and estimates how many of the accepted pairs are such.

Members of one household have similar records. A refused pair within a household is little evidence about strangers: it
exists because the household is in both files, where most members are linked to their own records. Counting such pairs
as strangers would raise the threshold far too high. Leaving them out would ignore the harmful pairs: a husband in one
file, his wife in the other.

A refused pair counts as one household if its record is more similar to the accepted partner of the other record, in the
same file, than random records of that file are.

The number of accepted pairs of this kind follows by quasi-independence (Goodman, "The analysis of cross-classified
data", JASA 1968): of two members of a household that are *not* in the same files, each is in the first file only, in
both, or in the second only, with the same probabilities as people in general. Members may mostly be in the same files.
So

    only in a & only in b  =  in both & only in b  ×  (a's records without partner / records with partner),

and the same with a and b exchanged. The right side can be observed: a record with a partner has a refused pair with a
record of its household that has no partner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.similarity import Candidates, dice

__all__ = ["Kin", "find_kin"]

_DEVIATIONS = 4.5
"""Two records of a file are kin if their similarity exceeds that of random ones by this many standard deviations."""
_SAMPLE = 20_000


@dataclass(frozen=True, eq=False)
class Kin:
    """Refused pairs of households.

    Attributes:
        refused: their numbers among the candidates, ascending, (k,) int64.
        of_a: place, among the taken pairs, of the pair that contains the record of a; -1 if there is none, (k,) int64.
        of_b: the same for the record of b, (k,) int64.
        rows_a: rows at a, (k,) int64.
        rows_b: rows at b, (k,) int64.
    """

    refused: np.ndarray
    of_a: np.ndarray
    of_b: np.ndarray
    rows_a: np.ndarray
    rows_b: np.ndarray

    def estimate_accepted(self, true: np.ndarray, bins: np.ndarray, size: int, sizes: tuple[int, int]) -> np.ndarray:
        """Estimate the number of accepted pairs that are false and within a household, by bin, (size,) float64.

        Args:
            true: the probability that each taken pair is true, (taken,).
            bins: the bin of each candidate, (candidates,) int64 below `size`.
            size: the number of bins.
            sizes: the numbers of records at a and at b.
        """
        has_a = np.where(self.of_a >= 0, true[self.of_a], 0.0)
        has_b = np.where(self.of_b >= 0, true[self.of_b], 0.0)
        # Each record counts once, by the most similar record of its household that has no partner.
        only_b, only_a = (
            _first_probabilities(self.rows_a, has_a * (1 - has_b)),
            _first_probabilities(self.rows_b, has_b * (1 - has_a)),
        )
        found, own = max(float(true.sum()), 1.0), bins[self.refused]
        alone = [max(records - found, 0.0) / found for records in sizes]
        by_a = np.bincount(own, weights=only_b, minlength=size) * alone[0]
        by_b = np.bincount(own, weights=only_a, minlength=size) * alone[1]
        both: np.ndarray = by_a + by_b
        # One-to-one assignment cannot make more pairs than the smaller side has records.
        fewer: np.ndarray = both * (min(by_a.sum(), by_b.sum()) / max(float(both.sum()), 1e-300))
        return fewer


def find_kin(a: Encodings, b: Encodings, candidates: Candidates, taken: np.ndarray) -> Kin:
    """Find the refused pairs whose record resembles the partner that the assignment preferred.

    Args:
        a: one party's encodings.
        b: the other's.
        candidates: the compared pairs.
        taken: the candidates that `assign_greedy` took.
    """
    rows_a, rows_b = candidates.rows_a[taken], candidates.rows_b[taken]
    of_a, of_b = np.full(len(a), -1), np.full(len(b), -1)
    of_a[rows_a] = of_b[rows_b] = np.arange(len(taken))
    refused = np.setdiff1d(np.arange(len(candidates)), taken, assume_unique=True)
    at_a, at_b = candidates.rows_a[refused], candidates.rows_b[refused]
    by_a, by_b = of_a[at_a], of_b[at_b]
    kin = np.zeros(len(refused), dtype=bool)
    # Taken pairs are sorted by falling similarity, so the earlier of two is the one that caused the refusal.
    preferred = (by_a >= 0) & (taken[by_a] < refused)
    kin[preferred] |= dice(b, b, at_b[preferred], rows_b[by_a[preferred]]) >= _kin_level(b)
    preferred = (by_b >= 0) & (taken[by_b] < refused)
    kin[preferred] |= dice(a, a, at_a[preferred], rows_a[by_b[preferred]]) >= _kin_level(a)
    return Kin(refused[kin], by_a[kin], by_b[kin], at_a[kin], at_b[kin])


def _kin_level(records: Encodings) -> float:
    """The similarity above which two records of one file are kin: mean of random pairs plus deviations."""
    if len(records) < 2:
        return 2.0
    rng = np.random.default_rng(0)  # not a secret; a fixed seed gives the same estimate for the same file
    first = rng.integers(0, len(records), _SAMPLE)
    second = (first + rng.integers(1, len(records), _SAMPLE)) % len(records)
    scores = dice(records, records, first, second)
    return float(scores.mean() + _DEVIATIONS * scores.std())


def _first_probabilities(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """For each pair: the probability that it counts and no earlier pair of its row did."""
    if not len(rows):
        return weights
    order = np.argsort(rows, kind="stable")
    row, weight = rows[order], weights[order]
    none = np.log1p(-np.minimum(weight, 1 - 1e-9))
    before = np.cumsum(none) - none
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    before -= np.repeat(before[starts], np.diff(np.r_[starts, len(row)]))
    out = np.empty_like(weights)
    out[order] = weight * np.exp(before)
    return out
