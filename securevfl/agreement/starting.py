"""The earlier model that a job of an agreement goes on from: each party's own part, checked before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from securevfl.agreement.proposal import Proposal
from securevfl.data import FeatureEncoder, PartyTable
from securevfl.errors import InputError
from securevfl.party import Job
from securevfl.run.model_parts import read_first_part

__all__ = ["find_start"]


def find_start(
    proposal: Proposal, party: str, job: Job, place: Path | None, table: PartyTable | None
) -> dict[str, Any] | None:
    """A party's part of the earlier model; None if training starts from the beginning.

    Args:
        proposal: what was agreed.
        party: its name.
        job: of the proposal, with the party's own policy.
        place: where its party file says that the part is; None where it says nothing.
        table: the party's; None at a coordinator.

    Raises:
        InputError: the party file names no part, or one from which this job cannot go on with this table.
    """
    if not proposal.start:
        return None
    if place is None:
        raise InputError(
            f"the agreement goes on from the model of run {proposal.start[:16]}…: name the state folder that {party!r} "
            'had then in its party file, start = "old-state"'
        )
    part = read_first_part(place, party, proposal.start, job, proposal.passive_names)
    if table is None:
        return part
    FeatureEncoder.from_state(part["encoder"]).transform(table, np.arange(0))  # refuses other columns
    known, now = [str(name) for name in part["names"]], [str(name) for name in table.classes]
    if now and known != now:
        raise InputError(
            f"the earlier model predicts {', '.join(known)}; the labels of {party!r} are {', '.join(now)}: give labels "
            "of the same classes in the same order, or train from the beginning"
        )
    return part
