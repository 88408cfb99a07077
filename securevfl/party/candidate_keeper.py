"""Checkpoints and the journal of a job that trains several candidates one after the other, in one folder.

Epoch e of a candidate is the job's epoch `first` + e, where `first` counts the planned epochs of all candidates before
it. So the last epoch that all parties have is one place in the whole job, and everybody resumes in the same candidate.
The last checkpoints of candidates that are over stay: an attempt that resumes later loads each of them, trains nothing
more of it, and can still keep it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.party_context import Keeper
from securevfl.privacy import Journal
from securevfl.privacy.counts import EarlierCounts

__all__ = ["CandidateKeeper", "ScopedJournal"]


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
        self._outer.reserve_releases(epoch, self._add_scope(release), rows, most)

    def close_epoch(self, epoch: int, release: str, counts: np.ndarray) -> None:
        self._outer.close_epoch(epoch, self._add_scope(release), counts)

    def max_releases(self, release: str, epoch: int) -> int:
        return self._outer.max_releases(self._add_scope(release), epoch)

    def earlier_counts(self, release: str, rows: int, start: int) -> EarlierCounts:
        return self._outer.earlier_counts(self._add_scope(release), rows, start)

    def _add_scope(self, release: str) -> str:
        return f"{self._scope}/{release}"


class CandidateKeeper(Keeper):
    """One candidate's checkpoints among those of the job.

    Args:
        outer: the party's keeper.
        name: of the candidate.
        first: the job's epochs before it.
        epochs: most epochs of the candidate.
    """

    def __init__(self, outer: Keeper, name: str, first: int, epochs: int) -> None:
        self._outer = outer
        self._first = first
        self.steps = outer.steps
        self.scope = outer.scope
        self.start, self.step = None, 0
        found = outer.last_position(first, first + epochs)
        if found is not None:
            self.start, self.step = found[0] - first, found[1]
        self._journal = ScopedJournal(outer.journal, name, outer.start or 0)

    @property
    def journal(self) -> Journal:
        """The party's, with this candidate's releases under its name."""
        return self._journal

    def load(self) -> dict[str, object] | None:
        return None if self.start is None else self._outer.load_from(self._first + self.start, self.step)

    def store_row_counts(self, counts: Mapping[str, tuple[int, int]]) -> None:
        self._outer.store_row_counts(counts)

    def read_row_counts(self) -> Mapping[str, tuple[int, int]]:
        return self._outer.read_row_counts()

    def is_due(self, epoch: int) -> bool:
        return self._outer.is_due(self._first + epoch)

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        self._outer.save(self._first + epoch, state, step=step)
