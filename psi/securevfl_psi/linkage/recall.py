"""Bounds of the recall: from counts of true pairs, sampling and counting error, and true pairs that no score shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl_psi.linkage.decoys import DecoyReading
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.similarity import dice

__all__ = ["Span", "spans_of"]

_NORMAL = 1.64
"""Standard deviations of a normal 90 % interval."""
_ABOVE, _BELOW = 0.2, 0.1
"""The assumed relative error of the counts of false pairs above and below the threshold."""
_UNSEEN = 0.17
"""Assumed number of people whose record changed beyond recognition, for each true pair that the scores show."""
_SAMPLE = 5000


@dataclass(frozen=True, eq=False)
class Span:
    """One count of true and false pairs.

    Attributes:
        accepted: the number of accepted pairs in each bin, highest scores first, (bins,).
        reading: how many of them are true and false.
        edges: the lower ends of the bins, (bins,).
        usual: the mean similarity of two random records.
    """

    accepted: np.ndarray
    reading: DecoyReading
    edges: np.ndarray
    usual: float

    def recall_at(self, threshold: float) -> tuple[float, float]:
        """The least and the greatest recall at a threshold."""
        share, size = self.reading.share, len(self.edges)
        above = int(np.searchsorted(-self.edges, -threshold + 1e-9, side="right"))
        true, false = self.accepted * share, np.minimum(self.reading.false, self.accepted)
        kept, lost = float(true[:above].sum()), float(true[above:].sum())
        seen = (share > 0.15) & (np.arange(size) >= above)
        off = _NORMAL * _standard_deviation(float(false[:above].sum()), _ABOVE)
        off_below = _NORMAL * _standard_deviation(float(self.reading.false[seen].sum()), _BELOW)
        least, most = max(kept - off, 0.0), min(kept + off, float(self.accepted[:above].sum()))
        recall = kept / max(kept + lost, 1e-9)
        chance = _NORMAL * float(np.sqrt(recall * (1 - recall) / max(kept + lost, 1.0)))
        low = least / max(least + lost + off_below + self._estimate_unseen(true, above), 1e-9) - chance
        high = most / max(most + max(lost - off_below, 0.0), 1e-9) + chance
        return float(max(low, 0.0)), float(min(high, 1.0))

    def _estimate_unseen(self, true: np.ndarray, above: int) -> float:
        """Estimate the true pairs that look like strangers.

        These are people whose record changed beyond recognition, and those expected if the density of true pairs falls
        linearly from the last bin in which they are visible to zero at the usual similarity.
        """
        clear = np.flatnonzero(self.reading.share > 0.5)
        last = int(clear[-1]) if len(clear) else above
        last = min(last, len(self.edges) - 1)
        width = max(float(self.edges[0] - self.edges[1]), 1e-9)
        steps = max(0.0, float(self.edges[last] - self.usual) / width)
        falling = float(true[max(0, last - 4) : last + 1].mean())
        return _UNSEEN * float(true.sum()) + float(0.6 * steps * falling)


def spans_of(
    readings: Sequence[DecoyReading],
    accepted: np.ndarray,
    edges: np.ndarray,
    encodings: tuple[Encodings, Encodings] | None,
) -> tuple[Span, ...]:
    """Make a span for each reading.

    Args:
        readings: counts of true and false pairs.
        accepted: the number of accepted pairs in each bin, (bins,).
        edges: the lower ends of the bins, (bins,).
        encodings: those of a and of b. Without them, the usual similarity is that of the least similar candidates.
    """
    usual = float(edges[-1])
    if encodings is not None:
        a, b = encodings
        rng = np.random.default_rng(0)  # not a secret; a fixed seed gives the same estimate for the same files
        rows = [rng.integers(0, len(records), _SAMPLE) for records in encodings]
        usual = float(dice(a, b, rows[0], rows[1]).mean())
    return tuple(Span(accepted, reading, edges, usual) for reading in readings)


def _standard_deviation(count: float, share: float) -> float:
    return float(np.sqrt(count + (share * count) ** 2 + 1))
