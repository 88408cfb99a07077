"""The threshold from the scores alone, without knowing one true pair.

Greedy assignment goes down the scores. A pair of score s is *accepted* if both records are still free, and *refused*
if one is taken. Of records that occur once in each file a refused pair is a false one, so refused pairs show how many
false pairs there are. Those of one household are counted by themselves, see `households`. Of strangers, with ``g(s)``
false pairs of score s among all compared, and ``free(s)`` the share of pairs whose records are both still free when the
scores have come down to s,

    refused(s) ~ Poisson(g(s) (1 - free(s)))        and        false accepted(s) = g(s) free(s).

g is fitted to the refused pairs as a smooth log-density: a penalty on second differences over equal bins (Whittaker's
graduation; Eilers and Marx, "Flexible smoothing with B-splines and penalties", Statistical Science 1996, section 4,
with one basis function a bin), so it goes on log-linearly where nothing was seen. What is accepted beyond the false
pairs is true, a share that is taken to grow with the score. Precision above a threshold follows, and recall, as a
share of the true pairs that the scores show. Nothing is assumed about the scores of true pairs.

The same thought as target-decoy counts (Elias and Gygi, Nature Methods 2007), with the refused pairs for decoys; hence
their "+1": precision is given as if one pair more were false than estimated.

Where records have many errors, few people are common and households go apart, the threshold of the best F1 lies so low
that members of one household stand above it, and the files leave open how many people are common (see `decoys`). The
estimate is then far too high: 0.57 where 0.14 to 0.28 was true. What shows this are the pairs *within* the files: so
many of them are as similar as the threshold that nearly every record has one in its own file. With an estimate that is
not good either, no threshold is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.decoys import Decoys, Reading, decoys_of, read_twice
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.households import find_kin
from securevfl_psi.linkage.recall import Span, spans_of
from securevfl_psi.linkage.similarity import Candidates

__all__ = ["BINS", "Estimate", "descending", "estimate"]

BINS = 50
"""Equal bins of scores, of one probability each."""
_PENALTY = 1e3
_DOUBTED, _CROWDED = 0.75, 0.5
"""A precision below the first is not believed at a threshold at which a record resembles more than so many others of
its own file. Found on simulated families (``benchmarks/linkage_recall.py``); it held on others."""
_FEWEST = 10
"""True pairs that have to stand out. Of two files with none in common, noise makes up to about as many."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """What the scores say of the pairs that were assigned one to one.

    Attributes:
        scores: of the assigned pairs, descending, (k,).
        probabilities: that they are true, by their scores, descending, (k,).
        edges: scores between which probabilities change, descending: the thresholds to choose from.
        alike: how many others of its own file a record resembles as much as each edge, (edges,); empty where that is
            not known.
        spans: between which bounds the recall is at a threshold, by each way to count false pairs.
    """

    scores: np.ndarray
    probabilities: np.ndarray
    edges: np.ndarray
    spans: tuple[Span, ...] = ()
    alike: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def matches(self) -> float:
        """Number of true pairs that the scores show; those that no block or no score shows are not counted."""
        return float(self.probabilities.sum())

    def precision(self, threshold: float) -> float:
        """Share of the pairs at or above `threshold` that is true; 0 where there are none."""
        above = self._above(threshold)
        return max(0.0, float(self.probabilities[:above].sum()) - 1) / max(above, 1)

    def recall(self, threshold: float) -> float:
        """Share of `matches` at or above `threshold`."""
        return float(self.probabilities[: self._above(threshold)].sum()) / max(self.matches, 1e-300)

    def recall_between(self, threshold: float) -> tuple[float, float]:
        """Bounds of the share of *all* true pairs at or above `threshold`, those that no score shows included."""
        bounds = [span.at(threshold) for span in self.spans] or [(0.0, 1.0)]
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    def probability(self, scores: np.ndarray) -> np.ndarray:
        """That assigned pairs of other scores are true: of the assigned pair with the next lower score, (m,)."""
        at = np.searchsorted(-self.scores, -scores, side="left")
        probabilities: np.ndarray = self.probabilities[np.minimum(at, len(self.scores) - 1)]
        return probabilities

    def threshold(self, *, precision: float | None = None) -> float:
        """The threshold of the best F1, or the lowest with at least a precision.

        Raises:
            LinkageError: fewer than 10 true pairs stand out, most pairs would be false, no threshold is so precise; or,
                where no precision is asked for, pairs of people and of household members are not told apart.
        """
        if precision is not None and not 0 < precision < 1:
            raise LinkageError(f"a precision of {precision!r}; above 0 and below 1 is possible")
        cure = "compare more fields, or set threshold= from linkages of such files whose truth you know"
        if self.matches < _FEWEST:
            raise LinkageError(f"about {self.matches:.0f} true pairs stand out; {_FEWEST} are needed: {cure}")
        counts = np.array([self._above(edge) for edge in self.edges])
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
        """Refuse a doubtful threshold at which members of one household stand above it."""
        said = self.precision(threshold)
        if said < _DOUBTED and others > _CROWDED:
            raise LinkageError(
                f"precision is about {said:.2f} at the best threshold, {threshold:.3f}, or far less: there a record "
                f"resembles {others:.1f} others of its own file, so people with errors and members of one household "
                "are not told apart. Give witnesses; or ask for a precision, 0.9 say: fewer links, more of them right"
            )

    def _above(self, threshold: float) -> int:
        return int(np.searchsorted(-self.scores, -threshold, side="right"))


def estimate(
    candidates: Candidates,
    taken: np.ndarray,
    encodings: tuple[Encodings, Encodings] | None = None,
    blocks: tuple[np.ndarray, np.ndarray] | None = None,
) -> Estimate:
    """Probabilities of assigned pairs to be true.

    Args:
        candidates: all compared pairs above a similarity that is low enough to show false ones, too.
        taken: which of them `assign_greedy` took.
        encodings: of a and of b, so that refused pairs of one household are told from those of strangers; without them
            all are taken for strangers, and files with households get a threshold that is far too high.
        blocks: as the candidates were found by.

    Raises:
        LinkageError: no candidates.
    """
    scores = candidates.scores
    if not len(scores):
        raise LinkageError("no pair was compared; are both files filled, and do their blocks meet?")
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
    free = sum(_free(after - part * accepted, candidates.sizes) for part in (0.0, 0.5, 0.5, 1.0)) / 4
    everyone = np.exp(_smooth_log_rate(refused, np.maximum(1 - free, 1e-12)))
    strangers = free * everyone
    edges = high - width * np.arange(1, BINS + 1)
    edges[-1] = low
    probabilities = _true_share(accepted, strangers)
    readings: tuple[Reading, ...] = (Reading(probabilities, strangers),)
    decoys: Decoys | None = None
    if kin is not None and encodings is not None:
        # Pairs of households that were accepted count as true at first, so that the first count is too small. In the
        # second, true pairs of doubtful score count as without partner: it is too large, and a third would be larger.
        once = kin.accepted(probabilities[bins[taken]], bins, BINS, candidates.sizes)
        doubted = _true_share(accepted, strangers + once)
        twice = kin.accepted(doubted[bins[taken]], bins, BINS, candidates.sizes)
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
    alike = np.empty(0) if decoys is None else decoys.alike(edges)
    spans = spans_of(readings, accepted, edges, encodings)
    return Estimate(scores[taken], probabilities[bins[taken]], edges, spans, alike)


def _true_share(accepted: np.ndarray, false: np.ndarray) -> np.ndarray:
    """Of the accepted pairs of each bin, descending, (bins,)."""
    share = np.divide(accepted - false, accepted, out=np.zeros(BINS), where=accepted > 0)
    clipped: np.ndarray = np.clip(descending(share, accepted), 0, 1)
    return clipped


def _free(taken: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
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


def descending(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
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
