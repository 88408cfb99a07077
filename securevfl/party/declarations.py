"""All messages that a run may send: those declared by the alignment, the party's program, the protection and the
algorithm.

Links enforce it, receipts and audits take their words from it, refusals and findings are made from it.
"""

from __future__ import annotations

from securevfl.align import declarable_exchanges, link_exchanges
from securevfl.party import consent, numbering
from securevfl.party import ledger_heads as heads
from securevfl.party.candidates import CHOICE_EXCHANGES
from securevfl.party.job import Job
from securevfl.transport import Exchange, Exchanges

__all__ = ["job_exchanges"]


def job_exchanges(job: Job, passive: int) -> Exchanges:
    """All messages of a job with `passive` passive parties, from consent to prediction and the signed heads.

    Raises:
        ProtocolError: two parts of it declare one message differently.
    """
    training = job.algorithm.all_exchanges(job.planned_protection(passive), passive) if passive else ()
    parts: tuple[tuple[Exchange, ...], ...] = (
        consent.EXCHANGES,
        declarable_exchanges(job.align),
        () if job.link is None else link_exchanges(job.link),
        numbering.EXCHANGES,
        training,
        CHOICE_EXCHANGES if job.algorithm.chooses else (),
        heads.EXCHANGES,
    )
    return Exchanges(exchange for part in parts for exchange in part)
