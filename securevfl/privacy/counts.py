"""Count how often rows were released: in memory, and reserved in the party's journal before each release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from securevfl.errors import PolicyError

__all__ = ["EarlierCounts", "RowCounts"]


@dataclass(frozen=True)
class EarlierCounts:
    """How often each row was released by earlier attempts.

    Attributes:
        kept: in the epochs that the run resumes after, (rows,) int64: they are part of the plan.
        lost: in addition, in epochs that are repeated, (rows,) int64.
    """

    kept: np.ndarray
    lost: np.ndarray

    def add_lost(self, times: int) -> EarlierCounts:
        """These counts, and `times` more releases of every row in epochs that are repeated."""
        return EarlierCounts(self.kept, self.lost + times)


class RowCounts:
    """How often each row was released, over all attempts at a run.

    Args:
        would: the beginning of a refusal, for example ``"a row's activations would be released"``.
        rows: number of rows that exist.
        times: planned number of releases of one row; one more is refused.
    """

    def __init__(self, would: str, rows: int, times: int) -> None:
        self.times = times
        self.rows = rows
        self._would = would
        self._counts = np.zeros(rows, dtype=np.int64)
        self._epoch = np.zeros(rows, dtype=np.int64)
        self._lost = np.zeros(rows, dtype=np.int64)
        self._reserve: Callable[[int], None] | None = None
        self._reserved = 0

    def add(self, rows: np.ndarray) -> None:
        """Count one more release of each of these rows, (n,); a row that appears twice counts twice. After
        `begin_attempt`, the journal reserves them first.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was counted.
            OSError: the reservation could not be written; nothing was counted.
        """
        named, often = np.unique(rows, return_counts=True)
        # Check the plan and reserve before counting: a refusal or a full disk must leave the counts unchanged.
        after = self._counts[named] + often
        if after.max(initial=0) > self.times:
            raise PolicyError(
                f"{self._would} {after.max()} times; the budget was planned for {self.times}: plan more epochs (and "
                "more noise) before training"
            )
        epoch = self._epoch[named] + often
        most = int(epoch.max(initial=0))
        if most > self._reserved and self._reserve is not None:
            self._reserve(most)
            self._reserved = most
        self._counts[named], self._epoch[named] = after, epoch

    def releases_left(self, rows: np.ndarray) -> np.ndarray:
        """How many releases of each of these rows (n,) the plan has left, (n,) int64."""
        found: np.ndarray = self.times - self._counts[rows]
        return found

    def begin_attempt(self, before: EarlierCounts, reserve: Callable[[int], None]) -> None:
        """Start an attempt: continue the counts of earlier ones, and reserve each epoch's releases before they happen.

        Args:
            before: what earlier attempts released.
            reserve: writes down the most releases of a row in this epoch, durably.
        """
        self._counts, self._lost = before.kept.copy(), before.lost.copy()
        self._epoch = np.zeros_like(self._counts)
        self._reserve, self._reserved = reserve, 0

    def end_epoch(self) -> np.ndarray:
        """Return how often each row was released in this epoch, (rows,) int64, and start the next epoch."""
        found, self._epoch = self._epoch, np.zeros_like(self._epoch)
        self._reserved = 0
        return found

    @property
    def max_releases(self) -> int:
        """Releases of the most-released row, including those of interrupted attempts."""
        return int((self._counts + self._lost).max(initial=0))

    @property
    def max_lost(self) -> int:
        """How often interrupted attempts may have released one row beyond the epochs that the run resumes after."""
        return int(self._lost.max(initial=0))
