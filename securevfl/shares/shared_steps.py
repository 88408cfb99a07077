"""DP-SGD for a model that several parties train on shares: each party counts how often its rows were used.

`securevfl.shares.dp_steps` adds the noise to the sums of gradients. Batches are shuffled partitions of the rows, and
the shuffle is public: T epochs are T releases of a row, without amplification, as in `sgd`. A row is one person's data
at all parties. ε covers replacing all of it, so each party counts the full ε.
"""

from __future__ import annotations

import numpy as np

from securevfl.errors import InputError, PolicyError
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
        scored: numbers of the rows that validate or test. None of them may train: ε of the model is that of a row that
            does nothing else in the run.
    """

    def __init__(
        self, *, rows: int, times: int, sigma: float, clip: float, delta: float, scored: np.ndarray | None = None
    ) -> None:
        super().__init__("model", "a row would train", rows=rows, times=times, sigma=sigma, clip=clip, delta=delta)
        self._scored = np.zeros(rows, bool)
        if scored is not None:
            self._scored[scored] = True

    def count_use(self, rows: np.ndarray) -> None:
        """Count one use of these rows (n,), each once. Call it before anything computed from them leaves.

        Raises:
            InputError: a batch contains a row twice, which would move the sum twice as far.
            PolicyError: a row would be used more often than planned, or also validates or tests.
        """
        if self._scored[rows].any():
            raise PolicyError(
                f"{int(self._scored[rows].sum())} rows of a batch also validate or test, and ε of the model is that of "
                "rows that only train: let training_rows and feed return rows of the split's training part alone"
            )
        if len(np.unique(rows)) != len(rows):
            raise InputError(
                f"a batch of {len(rows)} rows contains a row twice, and the noise is sized for one use per batch"
            )
        self.counts.add(rows)
