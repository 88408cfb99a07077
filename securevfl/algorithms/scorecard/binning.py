"""Bins of columns, and the weight of evidence of each bin.

With P rows of the second class and N of the first, and p_b and n_b of them in bin b:
``woe_b = ln((p_b + ½) / (n_b + ½)) − ln((P + ½) / (N + ½))``, above zero if the second class is more frequent in the
bin than overall. ``iv = Σ_b (p_b / P − n_b / N) woe_b`` (Siddiqi, "Credit Risk Scorecards", 2006, chapter 6, with
halves added so that an empty class gives no infinity).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

__all__ = ["Evidence", "EvidenceEncoder", "codes_of", "cut_points", "merge_to_monotone"]

_MOST = 6.0
"""Largest magnitude of a weight of evidence: activations of a sealed cut stay below 8."""


def cut_points(x: np.ndarray, bins: int, least: int) -> list[np.ndarray]:
    """Upper edges of each column's bins, ascending, float32: a bin contains the values above the previous edge up to
    its own, and the last bin all values above the last edge.

    Cuts are quantiles; those that would leave a bin with fewer than `least` rows are dropped. A column without a cut is
    one bin.

    Args:
        x: training rows, float32 (n, columns).
        bins: the most bins of a column.
        least: the fewest rows of a bin.
    """
    found = []
    for column in x.T:
        ordered = np.sort(column)
        wanted = np.unique(ordered[len(ordered) * np.arange(1, bins) // bins]) if len(ordered) else ordered
        kept: list[np.float32] = []
        before = 0
        for value in wanted:
            here = int(np.searchsorted(ordered, value, side="right"))
            if here - before >= least and len(ordered) - here >= least:
                kept.append(value)
                before = here
        found.append(np.array(kept, dtype=np.float32))
    return found


def codes_of(x: np.ndarray, cuts: Sequence[np.ndarray]) -> np.ndarray:
    """Each row's bin in each column, int64 (n, columns)."""
    columns = [np.searchsorted(cut, column, side="left") for cut, column in zip(cuts, x.T, strict=True)]
    return np.stack(columns, axis=1).astype(np.int64) if columns else np.zeros((len(x), 0), dtype=np.int64)


@dataclass(frozen=True)
class Evidence:
    """One column's bins.

    Attributes:
        rows: training rows of each bin, int64.
        positives: those of the second class.
        woe: weights of evidence, float64.
        iv: the information value.
    """

    rows: np.ndarray = field(repr=False)
    positives: np.ndarray = field(repr=False)
    woe: np.ndarray = field(repr=False)
    iv: float

    @classmethod
    def from_counts(cls, rows: np.ndarray, positives: np.ndarray) -> Evidence:
        """Compute the evidence of a column from the counts of its bins, int64."""
        negatives, p, n = rows - positives, int(positives.sum()), int((rows - positives).sum())
        whole = np.log((p + 0.5) / (n + 0.5))
        woe = np.clip(np.log((positives + 0.5) / (negatives + 0.5)) - whole, -_MOST, _MOST)
        iv = float(((positives / max(p, 1) - negatives / max(n, 1)) * woe).sum()) if len(rows) > 1 else 0.0
        return cls(rows, positives, woe if len(rows) > 1 else np.zeros(1), iv)


def merge_to_monotone(
    cuts: np.ndarray, rows: np.ndarray, positives: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge neighbouring bins until the share of the second class only rises or only falls: pool adjacent violators in
    the direction that changes the shares less.

    Args:
        cuts: of one column.
        rows: of each bin, int64.
        positives: those of the second class.

    Returns:
        Cuts, rows and positives of the remaining bins.
    """
    if len(rows) < 3:
        return cuts, rows, positives
    from sklearn.isotonic import IsotonicRegression

    share, place = positives / rows, np.arange(len(rows))
    fits = [
        IsotonicRegression(increasing=rises).fit(place, share, sample_weight=rows).predict(place)
        for rises in (True, False)
    ]
    best = min(fits, key=lambda fit: float((rows * (fit - share) ** 2).sum()))
    ends = np.append(np.abs(np.diff(best)) > 1e-12, True)
    starts = np.concatenate([[0], np.flatnonzero(ends)[:-1] + 1])
    return cuts[ends[:-1]], np.add.reduceat(rows, starts), np.add.reduceat(positives, starts)


class EvidenceEncoder(nn.Module):
    """The bottom of a scorecard: replaces each value by the weight of evidence of its bin.

    It has no trained parameters. It is saved with the party's part of the model.

    Args:
        columns: d.
        bins: the most bins of a column.
    """

    cuts: torch.Tensor
    woe: torch.Tensor

    def __init__(self, columns: int, bins: int) -> None:
        super().__init__()
        self.register_buffer("cuts", torch.full((columns, bins - 1), torch.inf))
        self.register_buffer("woe", torch.zeros((columns, bins)))

    def set_bins(self, cuts: Sequence[np.ndarray], found: Sequence[Evidence]) -> None:
        """Set the bins and the weights of evidence."""
        for j, (cut, one) in enumerate(zip(cuts, found, strict=True)):
            self.cuts[j] = torch.inf
            self.cuts[j, : len(cut)] = torch.from_numpy(cut)
            self.woe[j] = 0
            self.woe[j, : len(one.woe)] = torch.from_numpy(one.woe)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weights of evidence of features (n, d), (n, d)."""
        codes = torch.searchsorted(self.cuts, x.T.contiguous())
        return self.woe.gather(1, codes).T.contiguous()
