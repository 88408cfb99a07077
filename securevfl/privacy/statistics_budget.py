"""The budget of statistics before a model: what each release spends, and the noise that it needs.

*Neighbours*: two tables that differ in one common row, in all columns of the passive parties; the number of rows and
the active party's own rows are known to it anyway. ε bounds what the active party reads of that row.

=============  =============================================  ============================  ==============
release        what it is                                     sensitivity Δ                 share of μ²
=============  =============================================  ============================  ==============
preparation    noisy counts that cut the columns              √2 and √18 a column            20 %
own blocks     correlations among a passive party's columns   √2 R²                         30 %, or none
correlations   sums of products of scores                     2 √(Σ R_a² R_p² + Σ R_p² R_q²)  30 %
counts         rows of each class in each bin                 √(2 F)                        20 %
=============  =============================================  ============================  ==============

R is the norm that a row of scores is clipped to. All are Gaussian, so μ² adds up, and ε follows exactly
(`securevfl.privacy.gaussian_dp`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from securevfl.privacy.gaussian_dp import epsilon_at, mu_for
from securevfl.privacy.sums_budget import SumsUses

__all__ = ["StatisticsBudget", "StatisticsUses", "clip_norm"]

_PREPARATION, _OWN, _SCORES, _COUNTS = 0.2, 0.3, 0.3, 0.2
_SLACK = 1.5
"""A row of c standardised scores has a norm of about √c; few rows have more than this many times that; a
lower bound makes correlations of columns that rise together too small."""


def clip_norm(scores: int) -> float:
    """R, the norm that a row of so many scores is clipped to."""
    return _SLACK * math.sqrt(scores)


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsBudget:
    """The budget of a release of statistics.

    Attributes:
        epsilon: ε of a common row's columns at the passive parties.
        delta: δ.
        passive: number of passive parties.
        own_blocks: whether passive parties send the correlations among their own columns.
    """

    epsilon: float
    delta: float
    passive: int
    own_blocks: bool

    @property
    def mu(self) -> float:
        """μ of everything."""
        return mu_for(self.epsilon, self.delta)

    @property
    def units(self) -> int:
        """The release is one unit; see `SumsUses`."""
        return 1

    @property
    def residual(self) -> float:
        """No one norm bounds all releases; reports show 1."""
        return 1.0

    def _compute_mu(self, share: float) -> float:
        total = 1.0 if self.own_blocks else 1.0 - _OWN
        return self.mu * math.sqrt(share / total)

    def mu_column(self, columns: int) -> float:
        """μ of the noisy counts of one of a passive party's columns."""
        return self._compute_mu(_PREPARATION) / math.sqrt(self.passive * max(columns, 1))

    @property
    def mu_own(self) -> float:
        """μ of one passive party's own correlations; 0 if it does not send them."""
        return self._compute_mu(_OWN) / math.sqrt(self.passive) if self.own_blocks else 0.0

    def own_sigma(self, scores: int) -> float:
        """σ of the noise on each sum of products of two of a party's own scores."""
        return math.sqrt(2.0) * clip_norm(scores) ** 2 / self.mu_own

    def scores_sigma(self, scores: tuple[int, ...]) -> float:
        """σ of the noise on each sum of products of scores of two parties.

        Args:
            scores: columns of each data party, the active one's first.
        """
        active, passive = clip_norm(scores[0]), [clip_norm(one) for one in scores[1:]]
        squares = sum((active * one) ** 2 for one in passive)
        squares += sum((one * other) ** 2 for i, one in enumerate(passive) for other in passive[i + 1 :])
        return 2 * math.sqrt(squares) / self._compute_mu(_SCORES)

    def counts_sigma(self, columns: int) -> float:
        """σ of the noise on each count of rows.

        Args:
            columns: binned columns of all passive parties.
        """
        return math.sqrt(2.0 * max(columns, 1)) / self._compute_mu(_COUNTS)

    def spent_epsilon(self) -> float:
        """ε of everything, from the shares of μ²."""
        shares = [_PREPARATION, _SCORES, _COUNTS, *([_OWN] if self.own_blocks else [])]
        return epsilon_at(math.sqrt(sum(self._compute_mu(one) ** 2 for one in shares)), self.delta)

    def summary_sentence(self) -> str:
        """One sentence for reports."""
        return (
            f"ε = {self.spent_epsilon():.3g} (δ = {self.delta:g}) of a common row's columns at the passive parties, "
            "for everything that the active party reads of them here"
        )


class StatisticsUses(SumsUses):
    """Counts releases of statistics: each is one unit."""
