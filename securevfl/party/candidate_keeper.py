"""Checkpoints of a job that trains several candidates one after the other, in one folder.

Epoch e of a candidate is the job's epoch `first` + e, where `first` counts the planned epochs of all candidates before
it. So the last epoch that all parties have is one place in the whole job, and everybody resumes in the same candidate.
The last checkpoints of candidates that are over stay: an attempt that resumes later loads each of them, trains nothing
more of it, and can still keep it.
"""

from __future__ import annotations

from collections.abc import Mapping

from securevfl.party_context import Keeper
from securevfl.privacy import Journal
from securevfl.privacy.scoped_journal import ScopedJournal

__all__ = ["CandidateKeeper"]


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
