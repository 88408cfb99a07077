"""DP-SGD of a model that several parties train on shares: each counts how often its own rows were used.

The noise is made where the sums of gradients are, see `securevfl.shares.dp_steps`. Batches are shuffled partitions of
the rows, and the shuffle is no secret: T epochs are T releases of a row, without amplification, as in `sgd`. A row is
what all parties hold of one person: replacing all of it is what ε is about, so that each party counts all of ε.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.errors import InputError
from securevfl.privacy.accountant import GaussianRelease
from securevfl.privacy.counts import RowCounts
from securevfl.privacy.spent import Spent

__all__ = ["SharedSteps"]


class SharedSteps:
    """Counts how often rows of one party took part in noisy steps.

    Args:
        rows: number of rows that exist; uses are counted per row number.
        times: planned number of uses of one row; one more is refused.
        sigma: noise multiplier, which the noise of any two computing parties reaches.
        clip: C, largest L2 norm of one row, over all parties.
        delta: δ of the accounting.
    """

    what = "model"

    def __init__(self, *, rows: int, times: int, sigma: float, clip: float, delta: float) -> None:
        self.sigma = sigma
        self.clip = clip
        self.counts = RowCounts("a row would train", rows, times)
        self._delta = delta

    def use(self, rows: np.ndarray) -> None:
        """Count one use of these rows (n,), each once; before anything of them leaves.

        Raises:
            InputError: a row twice in a batch: it would move the sum twice as far.
            PolicyError: a row would be used more often than planned.
        """
        if len(np.unique(rows)) != len(rows):
            raise InputError(f"a batch of {len(rows)} rows holds one twice, and noise is sized for one use in a batch")
        self.counts.add(rows)

    def state(self) -> dict[str, object]:
        """Nothing: counts are in the party's journal."""
        return {}

    def load(self, state: Mapping[str, object]) -> None:
        """Go on from a `state`."""

    @property
    def planned(self) -> GaussianRelease:
        """What one row's uses amount to if all that are planned happen."""
        return GaussianRelease(self.sigma, self.counts.times)

    @property
    def spent(self) -> Spent:
        """The price so far, of the row that was used most often."""
        release = GaussianRelease(self.sigma, self.counts.most)
        return Spent.of(self.what, release, self._delta, clip=self.clip)
