"""A party leaves a job for good: its officer signs that, and the party's next process tells the others. What attempts
without it need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from securevfl.agreement import Agreement, PartyFile
from securevfl.errors import InputError
from securevfl.party.leaving import LEAVING, LeavingWord
from securevfl.process.state_folder import StateFolder

__all__ = ["Departed", "leave_job"]


@dataclass(kw_only=True)
class Departed:
    """What was decided of parties that left for good, as attempts need it.

    Attributes:
        gone: their names.
        epoch: after which epoch the others went on at the latest.
        facts: remaining party → its signed word, for the ledger.
    """

    gone: tuple[str, ...] = ()
    epoch: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """For the report."""
        return [
            f"{name} left for good; the job went on without it from epoch {self.epoch}. Its part of the model is "
            "missing, and the figures are those of the others' columns"
            for name in self.gone
        ]


def leave_job(agreement: Agreement, own: PartyFile) -> None:
    """Sign that this party leaves, and store that in its state folder. Doing it again changes nothing.

    Raises:
        InUse: the party's process runs.
        InputError: by the agreement the job does not go on without this party, or the party has finished.
    """
    proposal, me = agreement.proposal, own.party
    if proposal.limits.leaving != "go-on":
        raise InputError(
            f"agreement {agreement.digest[:16]} has leaving = 'end': the job does not go on without {me!r}. To leave "
            "it, stop the party's process, and tell the others: they stop theirs"
        )
    if me not in proposal.passive_names:
        raise InputError(
            f"{me!r} has the labels, and without them the job cannot go on: stop the party's process, and tell the "
            "others: they stop theirs"
        )
    with StateFolder.lock(own.state, party=me, agreement=agreement.digest) as state:
        if state.outcome is not None and state.outcome.get("done"):
            raise InputError(f"{me!r} has finished this job: there is nothing to leave")
        word = LeavingWord(me, agreement.digest, (me,))
        signed = msgspec.structs.replace(word, signature=own.signing_key().sign(LEAVING, word.signed_content))
        if signed not in state.leaving_words:
            state.store_leaving_words([*state.leaving_words, signed])
