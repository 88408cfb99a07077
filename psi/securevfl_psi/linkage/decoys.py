"""Counts false pairs of households by decoys: the pairs within each file, which are all false.

If each person occurs once in a file, every pair *within* it is false, and some of these pairs are of one household, as
between the files. Let ``w(s)`` be the number of such pairs for each compared pair, less those of strangers, and
``r(s)`` the number of pairs between the files, less the true pairs counted so far. Then

    share = (pairs between the files) / w        and, of people common to both files, overlap,
    apart = (share - overlap) / (1 - overlap),

where apart is 0 if members of a household are always in the same files, and 1 if each member's files are independent of
the others'. Reason: if the members are independent, a pair of a household occurs between the files as often as within
one; if they are together, as often as people are common. ``w (1 - overlap)^2 apart`` pairs are not refused by a true
pair. A simulation estimates how many of these a one-to-one assignment accepts: it assigns rows of one file to rows of
the same file, with the same shares left out.

The share is taken where it is smallest, since true pairs can only increase it. It depends on the overlap, which depends
on the number of true pairs, so both are iterated. If few people are common, this is far better than quasi-independence
(see `households`), which mistakes a true pair with errors for two people without partner and multiplies that by how
rare partners are. If many are common, quasi-independence is better; so the two are mixed by the overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from securevfl_psi.linkage.assignment import assign_greedy
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.similarity import Candidates, similar_pairs

__all__ = ["DecoyReading", "Decoys", "decoys_of", "read_twice"]

_PLAYS = 2
"""The number of simulated assignments of each file to itself; their average is used."""
_PART = 0.2
"""The part of the pairs of households over which their share is measured."""
_ROUNDS = 15
_CLEAN, _MOST = 0.05, 1.5
"""The density of true pairs is bounded by this many times their density in the bins with at most this part of the pairs
of households."""


@dataclass(frozen=True, eq=False)
class Decoys:
    """The pairs within each file.

    Attributes:
        files: the pairs within a and within b, both orders of each pair.
        least: all pairs within a file with at least this similarity are included.
    """

    files: tuple[Candidates, Candidates]
    least: float

    def expected_counts(self, bins: Callable[[np.ndarray], np.ndarray], sizes: tuple[int, int]) -> np.ndarray:
        """The number of pairs expected between files of these sizes, by bin."""
        return _scale_counts([bins(file.scores) for file in self.files], sizes)

    def count_alike(self, thresholds: np.ndarray) -> np.ndarray:
        """The mean number of other records in its file that a record resembles at least as much as each threshold.

        Args:
            thresholds: similarities, (k,). Below `least` the result is too small, since not all pairs are known.

        Returns:
            (k,) float64.
        """
        counts = [np.searchsorted(-file.scores, -thresholds, side="right") / file.sizes[0] for file in self.files]
        mean: np.ndarray = (counts[0] + counts[1]) / 2
        return mean

    def accepted_counts(
        self,
        bins: Callable[[np.ndarray], np.ndarray],
        sizes: tuple[int, int],
        left: tuple[float, float],
        least: float,
        draws: tuple[np.ndarray, ...],
    ) -> np.ndarray:
        """Simulate how many pairs a one-to-one assignment accepts between files of these sizes, by bin.

        Args:
            bins: maps scores to counts by bin.
            sizes: the numbers of records at a and at b.
            left: the shares of the records that take part, at a and at b.
            least: pairs below this similarity are ignored.
            draws: uniform numbers for the rows of a and of b, (simulations, 2, n) each.
        """
        counts = []
        for file, numbers in zip(self.files, draws, strict=True):
            part, total = file.at_least(least), np.zeros_like(bins(file.scores[:0]))
            for first, second in numbers:
                keep = (first < left[0])[part.rows_a] & (second < left[1])[part.rows_b]
                rest = Candidates(part.rows_a[keep], part.rows_b[keep], part.scores[keep], part.sizes, least, 0)
                total = total + bins(rest.scores[assign_greedy(rest)])
            counts.append(total / len(numbers))
        return _scale_counts(counts, sizes)


@dataclass(frozen=True, eq=False)
class DecoyReading:
    """The result of one iteration.

    Attributes:
        share: the share of accepted pairs that are true, by bin, descending, (bins,).
        false: the number of accepted pairs expected to be false, by bin, (bins,).
    """

    share: np.ndarray
    false: np.ndarray


def decoys_of(
    encodings: tuple[Encodings, Encodings], candidates: Candidates, blocks: tuple[np.ndarray, np.ndarray] | None
) -> Decoys:
    """Find the pairs within each file that are as similar as the candidates.

    Args:
        encodings: those of a and of b.
        candidates: the pairs between them.
        blocks: the blocking tokens of both, if only pairs with an equal token were compared.
    """
    limit = max(1 << 17, 32 * sum(candidates.sizes))
    found = []
    for side, records in enumerate(encodings):
        tokens = None if blocks is None else (blocks[side], blocks[side])
        pairs = similar_pairs(records, records, minimum=candidates.minimum, limit=limit, blocks=tokens)
        two = pairs.rows_a != pairs.rows_b
        found.append(
            Candidates(
                pairs.rows_a[two], pairs.rows_b[two], pairs.scores[two], pairs.sizes, pairs.minimum, pairs.compared
            )
        )
    return Decoys((found[0], found[1]), max(pairs.minimum for pairs in found))


def read_twice(
    decoys: Decoys,
    counts: tuple[np.ndarray, np.ndarray],
    strangers: tuple[np.ndarray, np.ndarray],
    by_partners: np.ndarray,
    edges: np.ndarray,
    sizes: tuple[int, int],
    true_share: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[DecoyReading, DecoyReading]:
    """Iterate twice: from no true pairs, and from the number of true pairs by quasi-independence.

    If the two results differ, the files leave open how many people are common.

    Args:
        decoys: the pairs within the files.
        counts: by bin, highest scores first: the accepted pairs, and all pairs, (bins,) each.
        strangers: by bin: the accepted pairs of strangers, and all of them, (bins,) each.
        by_partners: the accepted pairs of households by quasi-independence, (bins,).
        edges: the lower ends of the bins, (bins,).
        sizes: the numbers of records at a and at b.
        true_share: maps the accepted and the false pairs of each bin to the share of true ones.
    """
    (accepted, pairs), (alone, everyone) = counts, strangers
    size, high = len(edges), edges[0] + (edges[0] - edges[1])

    def count_bins(scores: np.ndarray) -> np.ndarray:
        at = np.clip((high - scores) / (edges[0] - edges[1]), 0, size - 1).astype(np.int64)
        return np.bincount(at, minlength=size).astype(np.float64)

    seen = edges >= decoys.least - 1e-9
    kin = _smooth_counts(np.where(seen, np.maximum(decoys.expected_counts(count_bins, sizes) - everyone, 0), 0))
    known = np.flatnonzero(seen & (kin > 4) & (everyone <= 0.3 * (kin + everyone)))
    end = int(known[-1]) + 1 if len(known) else 0
    large = np.flatnonzero(kin[:end] > 0.2 * kin[:end].max(initial=0))
    span = slice(large[0], large[-1] + 1) if len(large) else slice(0, 0)
    clean = np.flatnonzero(np.cumsum(kin) <= _CLEAN * kin[:end].sum())[1:] if end else np.empty(0, dtype=np.int64)
    most = _MOST * float(accepted[clean].mean()) if len(clean) >= 3 else np.inf
    rng = np.random.default_rng(0)  # not a secret; a fixed seed leaves out the same rows for the same files
    draws = tuple(rng.random((_PLAYS, 2, file.sizes[0])) for file in decoys.files)
    of_kin = np.divide(kin, kin + everyone, out=np.zeros(size), where=kin + everyone > 0)

    def repeat_rounds(true: np.ndarray) -> DecoyReading:
        found, common, before = DecoyReading(np.zeros(size), alone), float(true.sum()), -1.0
        for _ in range(_ROUNDS):
            at_a, at_b = (min(common / records, 1.0) for records in sizes)
            overlap = float(np.sqrt(at_a * at_b))
            rest = pairs - everyone - np.minimum(true, most) * min(1.0, 2 * overlap)
            apart = min(1.0, max(0.0, _least_ratio(rest[span], kin[span]) - overlap) / max(1 - overlap, 1e-3))
            houses = np.zeros(size)
            if apart > 0:
                left = 1 - at_a, apart * (1 - at_b)
                houses = (
                    _smooth_counts(
                        decoys.accepted_counts(count_bins, sizes, left, float(edges[min(end + 2, size - 1)]), draws)
                    )
                    * of_kin
                )
            part = min(1.0, 1.5 * overlap)
            false = alone + (1 - part) * houses + part * by_partners
            found = DecoyReading(true_share(accepted, false), false)
            true = accepted * found.share
            sure = np.r_[true[:1], np.minimum(true[1:], most)][found.share > 0.5]
            common = (common + float(sure.sum())) / 2
            if abs(common - before) < 0.5:
                break
            before = common
        return found

    return repeat_rounds(np.zeros(size)), repeat_rounds(accepted * true_share(accepted, alone + by_partners))


def _least_ratio(pairs: np.ndarray, kin: np.ndarray) -> float:
    """The least ratio of the two over a range of bins that contains a fixed part of `kin`; 0 if there is none."""
    total = kin.sum()
    if total <= 0:
        return 0.0
    of_kin, of_pairs = np.r_[0, np.cumsum(kin)], np.r_[0, np.cumsum(pairs)]
    ends = np.searchsorted(of_kin, of_kin[:-1] + _PART * total)
    starts = np.flatnonzero(ends < len(of_kin))
    ends = ends[starts]
    return float(((of_pairs[ends] - of_pairs[starts]) / (of_kin[ends] - of_kin[starts])).min())


def _scale_counts(counts: list[np.ndarray], sizes: tuple[int, int]) -> np.ndarray:
    """From counts within each file to counts between the two, by the number of pairs there are."""
    rates = [count / records**2 for count, records in zip(counts, sizes, strict=True)]
    mean: np.ndarray = (rates[0] + rates[1]) / 2 * sizes[0] * sizes[1]
    return mean


def _smooth_counts(counts: np.ndarray) -> np.ndarray:
    return np.convolve(np.r_[counts[0], counts, counts[-1]], [0.25, 0.5, 0.25], "valid")
