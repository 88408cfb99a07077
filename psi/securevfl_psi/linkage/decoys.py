"""False pairs of households, counted by decoys: the pairs within each file, of which none is true.

Whoever is in a file once makes no true pair with himself, so every pair *within* a file is false; and there are
households among them, as between the files. With ``w(s)`` such pairs for each pair compared, less those of strangers,
and ``r(s)`` pairs between the files of which no more are true than said,

    share = (pairs between the files) / w        and, of people common to both files, overlap,
    apart = (share - overlap) / (1 - overlap),

where apart is 0 if members of a household are always in the same files, and 1 if each is in a file by himself. For if a
member follows his household with some probability, a pair of a household is between the files as often as within one if
the two go apart, and as often as people are common if they go together. Of pairs that no true pair refuses,
``w (1 - overlap)^2 apart`` are left; how many of these a one-to-one assignment accepts is found by playing it: rows of
the one file against rows of the same, of which as many are left out.

The share is read where it is least, since true pairs can only add to it. It needs the overlap, which needs the true
pairs: both are iterated. Where few are in common this is far better than quasi-independence (see `households`), which
takes a dirty true pair for two people without partner and multiplies that by how rare partners are. Where many are in
common quasi-independence is better; so the two are mixed by the overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from securevfl_psi.linkage.assignment import assign_greedy
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.similarity import Candidates, similar_pairs

__all__ = ["Decoys", "Reading", "decoys_of", "read_twice"]

_PLAYS = 2
"""How often each file is played against itself; the average counts."""
_PART = 0.2
"""Part of the pairs of households over which their share is read."""
_ROUNDS = 15
_CLEAN, _MOST = 0.05, 1.5
"""True pairs are nowhere more frequent than so many times what they are where at most this part of the pairs of
households is."""


@dataclass(frozen=True, eq=False)
class Decoys:
    """Pairs within a file.

    Attributes:
        files: of a and of b, both orders of each pair.
        least: every pair within a file of at least this similarity is here.
    """

    files: tuple[Candidates, Candidates]
    least: float

    def expected_counts(self, bins: Callable[[np.ndarray], np.ndarray], sizes: tuple[int, int]) -> np.ndarray:
        """How many there would be between files of these sizes, in each bin."""
        return _between([bins(file.scores) for file in self.files], sizes)

    def alike(self, thresholds: np.ndarray) -> np.ndarray:
        """How many others of its own file a record resembles as much as that, on average over both files.

        Args:
            thresholds: similarities, (k,); below `least` not all pairs are known, and it is more.

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
        """How many a one-to-one assignment accepts between files of these sizes, in each bin.

        Args:
            bins: scores to counts.
            sizes: records at a and at b.
            left: shares of the records that take part, at a and at b.
            least: similarity below which pairs do not matter.
            draws: uniform numbers of the rows of a and of b, (plays, 2, n) each.
        """
        counts = []
        for file, numbers in zip(self.files, draws, strict=True):
            part, total = file.at_least(least), np.zeros_like(bins(file.scores[:0]))
            for first, second in numbers:
                keep = (first < left[0])[part.rows_a] & (second < left[1])[part.rows_b]
                rest = Candidates(part.rows_a[keep], part.rows_b[keep], part.scores[keep], part.sizes, least, 0)
                total = total + bins(rest.scores[assign_greedy(rest)])
            counts.append(total / len(numbers))
        return _between(counts, sizes)


@dataclass(frozen=True, eq=False)
class Reading:
    """What one course of the iteration ends with.

    Attributes:
        share: of the accepted pairs of each bin that is true, descending, (bins,).
        false: accepted pairs of each bin that are expected to be false, (bins,).
    """

    share: np.ndarray
    false: np.ndarray


def decoys_of(
    encodings: tuple[Encodings, Encodings], candidates: Candidates, blocks: tuple[np.ndarray, np.ndarray] | None
) -> Decoys:
    """The pairs within each file, as similar as the candidates.

    Args:
        encodings: of a and of b.
        candidates: the pairs between them.
        blocks: tokens of both, if only pairs with an equal one were compared.
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
) -> tuple[Reading, Reading]:
    """The iteration from no true pair, and from as many as there are by quasi-independence. Where the two end apart,
    the files leave open how many people are common.

    Args:
        decoys: pairs within the files.
        counts: of each bin, highest scores first: pairs that were accepted, and all pairs, (bins,) each.
        strangers: of each bin, pairs of strangers that were accepted, and all, (bins,) each.
        by_partners: pairs of households that were accepted, by quasi-independence, (bins,).
        edges: lower ends of the bins, (bins,).
        sizes: records at a and at b.
        true_share: accepted and false pairs of each bin to the share of true ones.
    """
    (accepted, pairs), (alone, everyone) = counts, strangers
    size, high = len(edges), edges[0] + (edges[0] - edges[1])

    def bins(scores: np.ndarray) -> np.ndarray:
        at = np.clip((high - scores) / (edges[0] - edges[1]), 0, size - 1).astype(np.int64)
        return np.bincount(at, minlength=size).astype(np.float64)

    seen = edges >= decoys.least - 1e-9
    kin = _smooth(np.where(seen, np.maximum(decoys.expected_counts(bins, sizes) - everyone, 0), 0))
    known = np.flatnonzero(seen & (kin > 4) & (everyone <= 0.3 * (kin + everyone)))
    end = int(known[-1]) + 1 if len(known) else 0
    large = np.flatnonzero(kin[:end] > 0.2 * kin[:end].max(initial=0))
    span = slice(large[0], large[-1] + 1) if len(large) else slice(0, 0)
    clean = np.flatnonzero(np.cumsum(kin) <= _CLEAN * kin[:end].sum())[1:] if end else np.empty(0, dtype=np.int64)
    most = _MOST * float(accepted[clean].mean()) if len(clean) >= 3 else np.inf
    rng = np.random.default_rng(0)  # which rows are left out of a play: the same for the same files
    draws = tuple(rng.random((_PLAYS, 2, file.sizes[0])) for file in decoys.files)
    of_kin = np.divide(kin, kin + everyone, out=np.zeros(size), where=kin + everyone > 0)

    def course(true: np.ndarray) -> Reading:
        found, common, before = Reading(np.zeros(size), alone), float(true.sum()), -1.0
        for _ in range(_ROUNDS):
            at_a, at_b = (min(common / records, 1.0) for records in sizes)
            overlap = float(np.sqrt(at_a * at_b))
            rest = pairs - everyone - np.minimum(true, most) * min(1.0, 2 * overlap)
            apart = min(1.0, max(0.0, _least(rest[span], kin[span]) - overlap) / max(1 - overlap, 1e-3))
            houses = np.zeros(size)
            if apart > 0:
                left = 1 - at_a, apart * (1 - at_b)
                houses = (
                    _smooth(decoys.accepted_counts(bins, sizes, left, float(edges[min(end + 2, size - 1)]), draws))
                    * of_kin
                )
            part = min(1.0, 1.5 * overlap)
            false = alone + (1 - part) * houses + part * by_partners
            found = Reading(true_share(accepted, false), false)
            true = accepted * found.share
            sure = np.r_[true[:1], np.minimum(true[1:], most)][found.share > 0.5]
            common = (common + float(sure.sum())) / 2
            if abs(common - before) < 0.5:
                break
            before = common
        return found

    return course(np.zeros(size)), course(accepted * true_share(accepted, alone + by_partners))


def _least(pairs: np.ndarray, kin: np.ndarray) -> float:
    """The least ratio of the two over a stretch that has a part of `kin`; 0 where there is none."""
    total = kin.sum()
    if total <= 0:
        return 0.0
    of_kin, of_pairs = np.r_[0, np.cumsum(kin)], np.r_[0, np.cumsum(pairs)]
    ends = np.searchsorted(of_kin, of_kin[:-1] + _PART * total)
    starts = np.flatnonzero(ends < len(of_kin))
    ends = ends[starts]
    return float(((of_pairs[ends] - of_pairs[starts]) / (of_kin[ends] - of_kin[starts])).min())


def _between(counts: list[np.ndarray], sizes: tuple[int, int]) -> np.ndarray:
    """From counts within each file to counts between the two, by the number of pairs there are."""
    rates = [count / records**2 for count, records in zip(counts, sizes, strict=True)]
    mean: np.ndarray = (rates[0] + rates[1]) / 2 * sizes[0] * sizes[1]
    return mean


def _smooth(counts: np.ndarray) -> np.ndarray:
    return np.convolve(np.r_[counts[0], counts, counts[-1]], [0.25, 0.5, 0.25], "valid")
