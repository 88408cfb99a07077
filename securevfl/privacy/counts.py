"""How often rows were released: counted in memory, reserved in the party's journal before it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from securevfl.errors import PolicyError

__all__ = ["Counts", "RowCounts"]


@dataclass(frozen=True)
class Counts:
    """How often each row was released by earlier attempts.

    Attributes:
        kept: in the epochs that the run goes on from, (rows,) int64: they are part of the plan.
        lost: besides, in epochs that are done again, (rows,) int64.
    """

    kept: np.ndarray
    lost: np.ndarray


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
        """One more release of each of these rows, (n,); one that is named twice counts twice. What the epoch may
        release is reserved first, where `go_on` said how.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was counted.
            OSError: it could not be reserved; likewise.
        """
        named, often = np.unique(rows, return_counts=True)
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

    def left(self, rows: np.ndarray) -> np.ndarray:
        """How many releases of each of these rows (n,) the plan has left, (n,) int64."""
        found: np.ndarray = self.times - self._counts[rows]
        return found

    def go_on(self, before: Counts, reserve: Callable[[int], None]) -> None:
        """Begin an attempt: count on from earlier ones, and reserve each epoch's releases before they happen.

        Args:
            before: what earlier attempts released.
            reserve: writes down the most releases of a row in this epoch, durably.
        """
        self._counts, self._lost = before.kept.copy(), before.lost.copy()
        self._epoch = np.zeros_like(self._counts)
        self._reserve, self._reserved = reserve, 0

    def end_epoch(self) -> np.ndarray:
        """How often each row was released since the last epoch ended, (rows,) int64; the next one begins."""
        found, self._epoch = self._epoch, np.zeros_like(self._epoch)
        self._reserved = 0
        return found

    @property
    def most(self) -> int:
        """Releases of the row that was released most often, those of attempts that broke off among them."""
        return int((self._counts + self._lost).max(initial=0))

    @property
    def lost(self) -> int:
        """The most that attempts which broke off may have released one row beyond what the run goes on from."""
        return int(self._lost.max(initial=0))
