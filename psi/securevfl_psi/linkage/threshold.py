"""Estimates the threshold from the scores alone, without any known true pair.

Greedy assignment takes pairs by falling score. It *accepts* a pair of score s if both records are still free, and
*refuses* it if one is taken. If each person occurs once in a file, a refused pair is false, so refused pairs show how
many false pairs there are. Those of one household are counted separately, see `households`. For strangers, let ``g(s)``
be the number of false pairs of score s among all compared pairs, and ``free(s)`` the share of pairs whose records are
both still free at score s. Then

    refused(s) ~ Poisson(g(s) (1 - free(s)))        and        false accepted(s) = g(s) free(s).

g is fitted to the refused pairs as a smooth log-density: a penalty on second differences over equal bins (Whittaker's
graduation; Eilers and Marx, "Flexible smoothing with B-splines and penalties", Statistical Science 1996, section 4,
with one basis function a bin), so it continues log-linearly where there are no counts. Accepted pairs beyond the false
ones are true; their share is assumed to grow with the score. Precision above a threshold follows, and recall, as a
share of the true pairs that the scores show. Nothing else is assumed about the scores of true pairs.

This is the idea of target-decoy counts (Elias and Gygi, Nature Methods 2007), with refused pairs as decoys; hence their
"+1": precision is computed as if one pair more were false than estimated.

Limit: if records have many errors, few people are common, and members of one household are often in different files,
the threshold with the best F1 lies so low that it accepts pairs of one household, and the files leave open how many
people are common (see `decoys`). The estimated precision is then far too high: 0.57, while 0.14 to 0.28 was true. The
pairs *within* the files reveal this case: nearly every record then has another in its own file that is as similar as
the threshold. If the estimated precision is low as well, `MatchEstimate.choose_threshold` raises an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.decoys import DecoyReading, Decoys, decoys_of, read_twice
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.households import find_kin
from securevfl_psi.linkage.recall import Span, spans_of
from securevfl_psi.linkage.similarity import Candidates

__all__ = ["BINS", "MatchEstimate", "estimate_matches", "fit_descending"]

BINS = 50
"""The number of equal bins of scores; all pairs of a bin get one probability."""
_PENALTY = 1e3
_DOUBTED, _CROWDED = 0.75, 0.5
"""An estimated precision below the first is rejected if, at the threshold, a record resembles more than this many
others of its own file. Chosen on simulated families (``benchmarks/linkage_recall.py``), and confirmed on others."""
_FEWEST = 10
"""The least number of visible true pairs. Two files without common people can show about this many by chance."""


@dataclass(frozen=True, eq=False)
class MatchEstimate:
    """Estimated precision and recall of assigned pairs, by threshold.

    Attributes:
        scores: the scores of the assigned pairs, descending, (k,).
        probabilities: the probability that each pair is true, descending, (k,).
        edges: the scores between which probabilities change, descending: the thresholds to choose from.
        alike: the mean number of other records of its own file that a record resembles at least as much as each edge,
            (edges,); empty if unknown.
        spans: bounds of the recall at a threshold, one for each way to count false pairs.
    """

    scores: np.ndarray
    probabilities: np.ndarray
    edges: np.ndarray
    spans: tuple[Span, ...] = ()
    alike: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def matches(self) -> float:
        """The number of true pairs that the scores show, without those outside all blocks or with low scores."""
        return float(self.probabilities.sum())

    def precision(self, threshold: float) -> float:
        """Share of the pairs at or above `threshold` that is true; 0 where there are none."""
        above = self._count_above(threshold)
        return max(0.0, float(self.probabilities[:above].sum()) - 1) / max(above, 1)

    def recall(self, threshold: float) -> float:
        """Share of `matches` at or above `threshold`."""
        return float(self.probabilities[: self._count_above(threshold)].sum()) / max(self.matches, 1e-300)

    def recall_between(self, threshold: float) -> tuple[float, float]:
        """Bounds of the share of *all* true pairs at or above `threshold`, including those that no score shows."""
        bounds = [span.recall_at(threshold) for span in self.spans] or [(0.0, 1.0)]
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """The probability that pairs of these scores are true: that of the assigned pair with the next lower score."""
        at = np.searchsorted(-self.scores, -scores, side="left")
        probabilities: np.ndarray = self.probabilities[np.minimum(at, len(self.scores) - 1)]
        return probabilities

    def choose_threshold(self, *, precision: float | None = None) -> float:
        """Choose the threshold with the best estimated F1, or the lowest with at least the given precision.

        Raises:
            LinkageError: fewer than 10 true pairs are visible, most pairs would be false, or no threshold reaches the
                precision; or, if no precision is given, the scores do not separate people from household members.
        """
        if precision is not None and not 0 < precision < 1:
            raise LinkageError(f"precision is {precision!r}; expected a number above 0 and below 1")
        cure = "compare more fields, or set threshold= from linkages of such files whose truth you know"
        if self.matches < _FEWEST:
            raise LinkageError(
                f"the scores show about {self.matches:.0f} true pairs; at least {_FEWEST} are needed: {cure}"
            )
        counts = np.array([self._count_above(edge) for edge in self.edges])
        true = np.concatenate([[0.0], np.cumsum(self.probabilities)])[counts]
        f1 = 2 * true / (counts + self.matches)
        if precision is None:
            best = int(f1.argmax())
            chosen, wanted = float(self.edges[best]), 0.5
        else:
            enough = np.flatnonzero([self.precision(edge) >= precision for edge in self.edges])
            chosen, wanted = float(self.edges[enough[-1] if len(enough) else int(f1.argmax())]), precision
        if self.precision(chosen) < wanted:
            raise LinkageError(f"the best precision is about {self.precision(chosen):.3f}, {wanted} is needed: {cure}")
        if precision is None and len(self.alike):
            self._require_told_apart(chosen, float(self.alike[best]))
        return chosen

    def _require_told_apart(self, threshold: float, others: float) -> None:
        """Refuse a threshold of low estimated precision that accepts pairs of one household."""
        said = self.precision(threshold)
        if said < _DOUBTED and others > _CROWDED:
            raise LinkageError(
                f"precision is about {said:.2f} at the best threshold, {threshold:.3f}, or far less: there a record "
                f"resembles {others:.1f} others of its own file, so the scores do not separate people with errors from "
                "members of one household. Give witnesses, or ask for a precision such as 0.9, for fewer links"
            )

    def _count_above(self, threshold: float) -> int:
        return int(np.searchsorted(-self.scores, -threshold, side="right"))


def estimate_matches(
    candidates: Candidates,
    taken: np.ndarray,
    encodings: tuple[Encodings, Encodings] | None = None,
    blocks: tuple[np.ndarray, np.ndarray] | None = None,
) -> MatchEstimate:
    """Estimate the probability that each assigned pair is true.

    Args:
        candidates: all compared pairs above a similarity that is low enough to include false ones.
        taken: the candidates that `assign_greedy` took.
        encodings: those of a and of b, to separate refused pairs of one household from those of strangers. Without them
            all count as strangers, and files with households get a threshold that is far too high.
        blocks: the blocking tokens by which the candidates were found.

    Raises:
        LinkageError: there are no candidates.
    """
    scores = candidates.scores
    if not len(scores):
        raise LinkageError(
            "no pair was compared: check that both files have records, and that some share a blocking value"
        )
    low, high = float(scores[-1]), float(scores[0])
    width = (high - low) / BINS or 1.0
    bins = np.clip((high - scores) / width, 0, BINS - 1).astype(np.int64)  # 0 is the highest
    accepted = np.bincount(bins[taken], minlength=BINS).astype(np.float64)
    pairs = np.bincount(bins, minlength=BINS).astype(np.float64)
    kin = None if encodings is None else find_kin(*encodings, candidates, taken)
    refused = pairs - accepted
    if kin is not None:
        refused = refused - np.bincount(bins[kin.refused], minlength=BINS)
    after = np.cumsum(accepted)
    free = sum(_free_share(after - part * accepted, candidates.sizes) for part in (0.0, 0.5, 0.5, 1.0)) / 4
    everyone = np.exp(_smooth_log_rate(refused, np.maximum(1 - free, 1e-12)))
    strangers = free * everyone
    edges = high - width * np.arange(1, BINS + 1)
    edges[-1] = low
    probabilities = _true_share(accepted, strangers)
    readings: tuple[DecoyReading, ...] = (DecoyReading(probabilities, strangers),)
    decoys: Decoys | None = None
    if kin is not None and encodings is not None:
        # The first count treats accepted pairs of households as true, so it is too small. The second treats true pairs
        # of doubtful score as records without partner, so it is too large; a third would be larger.
        once = kin.estimate_accepted(probabilities[bins[taken]], bins, BINS, candidates.sizes)
        doubted = _true_share(accepted, strangers + once)
        twice = kin.estimate_accepted(doubted[bins[taken]], bins, BINS, candidates.sizes)
        decoys = decoys_of(encodings, candidates, blocks)
        readings = read_twice(
            decoys,
            (accepted, pairs),
            (strangers, everyone),
            (once + twice) / 2,
            edges,
            candidates.sizes,
            _true_share,
        )
        probabilities = np.mean([reading.share for reading in readings], axis=0)
    alike = np.empty(0) if decoys is None else decoys.count_alike(edges)
    spans = spans_of(readings, accepted, edges, encodings)
    return MatchEstimate(scores[taken], probabilities[bins[taken]], edges, spans, alike)


def _true_share(accepted: np.ndarray, false: np.ndarray) -> np.ndarray:
    """Of the accepted pairs of each bin, descending, (bins,)."""
    share = np.divide(accepted - false, accepted, out=np.zeros(BINS), where=accepted > 0)
    clipped: np.ndarray = np.clip(fit_descending(share, accepted), 0, 1)
    return clipped


def _free_share(taken: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """Share of all pairs of which neither record is taken."""
    free: np.ndarray = (sizes[0] - taken) * (sizes[1] - taken) / (sizes[0] * sizes[1])
    return free


def _smooth_log_rate(counts: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    """Logarithm of the rate of Poisson counts, (k,), by penalised likelihood: Newton steps, halved where they fail."""
    size = len(counts)
    second = np.diff(np.eye(size), 2, axis=0)
    penalty = _PENALTY * second.T @ second + 1e-8 * np.eye(size)

    def loss(log_rate: np.ndarray) -> float:
        mean = exposure * np.exp(np.minimum(log_rate, 600))
        return float((mean - counts * log_rate).sum() + log_rate @ penalty @ log_rate / 2)

    log_rate = np.full(size, np.log((counts.sum() + 0.5) / exposure.sum()))
    now = loss(log_rate)
    for _ in range(100):
        mean = exposure * np.exp(log_rate)
        step = np.linalg.solve(np.diag(mean) + penalty, mean - counts + penalty @ log_rate)
        while loss(log_rate - step) > now and np.abs(step).max() > 1e-9:
            step = step / 2
        before, now = now, min(now, loss(log_rate - step))
        log_rate = log_rate - step
        if before - now <= 1e-9 * max(1.0, abs(now)):
            break
    return log_rate


def fit_descending(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The closest descending sequence by weighted squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, length = value, weight, 1
        while pools and (pools[-1][0] < mean or not pools[-1][1] or not total):
            other, other_weight, other_length = pools.pop()
            mean = (mean * total + other * other_weight) / ((total + other_weight) or 1.0)
            total, length = total + other_weight, length + other_length
        pools.append((mean, total, length))
    return np.concatenate([np.full(length, mean) for mean, _, length in pools])
