"""DP-SGD of a model that several parties train on shares: each counts how often its own rows were used.

The noise is made where the sums of gradients are, see `securevfl.shares.dp_steps`. Batches are shuffled partitions of
the rows, and the shuffle is no secret: T epochs are T releases of a row, without amplification, as in `sgd`. A row is
what all parties hold of one person: replacing all of it is what ε is about, so that each party counts all of ε.
"""

from __future__ import annotations

import numpy as np

from securevfl.errors import InputError
from securevfl.privacy.uses import GaussianUses

__all__ = ["SharedSteps"]


class SharedSteps(GaussianUses):
    """Counts how often rows of one party took part in noisy steps.

    Args:
        rows: number of rows that exist; uses are counted per row number.
        times: planned number of uses of one row; one more is refused.
        sigma: noise multiplier, which the noise of any two computing parties reaches.
        clip: C, largest L2 norm of one row, over all parties.
        delta: δ of the accounting.
    """

    def __init__(self, *, rows: int, times: int, sigma: float, clip: float, delta: float) -> None:
        super().__init__("model", "a row would train", rows=rows, times=times, sigma=sigma, clip=clip, delta=delta)

    def use(self, rows: np.ndarray) -> None:
        """Count one use of these rows (n,), each once; before anything of them leaves.

        Raises:
            InputError: a row twice in a batch: it would move the sum twice as far.
            PolicyError: a row would be used more often than planned.
        """
        if len(np.unique(rows)) != len(rows):
            raise InputError(f"a batch of {len(rows)} rows holds one twice, and noise is sized for one use in a batch")
        self.counts.add(rows)
