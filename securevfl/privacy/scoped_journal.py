"""A journal as one of several trainings in a job sees it: its releases are told from those of the others by name."""

from __future__ import annotations

import numpy as np

from securevfl.privacy.counts import EarlierCounts
from securevfl.privacy.journal import Journal

__all__ = ["ScopedJournal"]


class ScopedJournal(Journal):
    """Writes into another journal, with `scope` before the name of each release.

    Two trainings of one job both have an epoch 1, and both open predictions: without names of their own the one would
    count as a repetition of the other.

    Args:
        outer: the party's journal.
        scope: names the training.
        start: the epoch of the whole job that the attempt resumes after; 0 for a new one.
    """

    def __init__(self, outer: Journal, scope: str, start: int) -> None:
        self._outer = outer
        self._scope = scope
        self._start = start
        self.path, self.party, self.job = outer.path, outer.party, outer.job
        self.attempt, self.agreed, self.lost_attempts = outer.attempt, outer.agreed, outer.lost_attempts

    @property
    def head(self) -> str:
        return self._outer.head

    def has_line(self, head: str) -> bool:
        return self._outer.has_line(head)

    def begin_attempt(self, start: int) -> None:
        """Begin the attempt of the whole job, unless another training of it did; `start` is this training's, and not
        written."""
        self._outer.begin_attempt(self._start)
        self.attempt, self.agreed = self._outer.attempt, self._outer.agreed

    def reserve_releases(self, epoch: int, release: str, rows: int, most: int) -> None:
        self._outer.reserve_releases(epoch, self._name(release), rows, most)

    def close_epoch(self, epoch: int, release: str, counts: np.ndarray) -> None:
        self._outer.close_epoch(epoch, self._name(release), counts)

    def max_releases(self, release: str, epoch: int) -> int:
        return self._outer.max_releases(self._name(release), epoch)

    def earlier_counts(self, release: str, rows: int, start: int) -> EarlierCounts:
        return self._outer.earlier_counts(self._name(release), rows, start)

    def _name(self, release: str) -> str:
        return f"{self._scope}/{release}"
