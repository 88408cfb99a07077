"""Small parties and jobs for tests."""

from __future__ import annotations

from securevfl.data import Parties
from securevfl.party import Job
from securevfl.run.simulation import Aligned, align_parties
from securevfl.testing.parties import low_overlap_parties, make_parties
from support.keys import ready_keys

__all__ = ["aligned", "low_overlap_parties", "make_parties", "ready_keys"]


def aligned(people: Parties, job: Job) -> Aligned:
    """The parties' alignment by the real protocol."""
    return align_parties(people, job)
