"""Base of the mechanisms with Gaussian noise: counts uses of rows and their cost."""

from __future__ import annotations

from collections.abc import Mapping

from securevfl.privacy.accountant import GaussianRelease, epsilon_rdp
from securevfl.privacy.counts import RowCounts
from securevfl.privacy.spent import Spent

__all__ = ["GaussianUses"]


class GaussianUses:
    """Counts uses of rows under one σ, and what they cost. See `Counted`.

    Args:
        what: what is released, as in `PROTECTS`.
        words: describes one use of a row, for the error when there is one too many.
        rows: number of rows that exist; uses are counted per row number.
        times: planned number of uses of one row; one more is refused.
        sigma: noise multiplier (standard deviation of the noise over the sensitivity).
        clip: largest L2 norm, of what the mechanism clips.
        delta: δ of the accounting.
    """

    def __init__(
        self, what: str, words: str, *, rows: int, times: int, sigma: float, clip: float, delta: float
    ) -> None:
        self.what = what
        self.sigma = sigma
        self.clip = clip
        self.counts = RowCounts(words, rows, times)
        self._delta = delta

    def get_state(self) -> dict[str, object]:
        """Empty: counts are in the party's journal, where restoring a checkpoint cannot roll them back."""
        return {}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Do nothing; see `get_state`."""

    @property
    def planned_release(self) -> GaussianRelease:
        """What one row's uses amount to if all that are planned happen."""
        return GaussianRelease(self.sigma, self.counts.times)

    @property
    def planned_epsilon(self) -> float:
        """ε of one row if every planned use happens, by RDP."""
        return epsilon_rdp(self.planned_release, self._delta)

    @property
    def cost_so_far(self) -> Spent:
        """The price so far, of the row that was used most often."""
        release = GaussianRelease(self.sigma, self.counts.max_releases)
        return Spent.from_release(self.what, release, self._delta, clip=self.clip)
