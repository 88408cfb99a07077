"""A party leaves a job for good: its officer signs that, and the party's next process tells the others."""

from __future__ import annotations

import msgspec

from securevfl.agreement import Agreement, PartyFile
from securevfl.errors import InputError
from securevfl.party.leaving import LEAVING, LeavingWord
from securevfl.process.state_folder import StateFolder

__all__ = ["leave_job"]


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
