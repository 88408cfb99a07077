"""What a card is computed from besides findings: how many numbers of each row a job answers, and who learns which rows
the parties have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from securevfl.party import Job
from securevfl.privacy import Finding, Policy
from securevfl.report.record import MemberRecord
from securevfl.transport import COORDINATOR

__all__ = ["count_numbers", "list_members"]


def count_numbers(findings: Sequence[Finding], job: Job, outputs: int = 1) -> list[Finding]:
    """Add to the results among findings how many numbers of each row their owner's policy allows, or the job plans.

    Args:
        findings: of the job.
        job: the job.
        outputs: of its model: 1 for two classes or a number, else one a class or label.
    """
    found = []
    for one in findings:
        allowed = job.policies.get(one.about, Policy()).allowed_results
        most = None if allowed is None else max(allowed, job.protection.numbers_per_answer(outputs))
        sights = tuple(replace(sight, numbers=most) if sight.result else sight for sight in one.sights)
        found.append(replace(one, sights=sights))
    return found


def list_members(job: Job, owners: Sequence[str], passive: Sequence[str], helper: str = "") -> list[MemberRecord]:
    """List what each party learns of who is whose customer, by the job's alignment.

    Args:
        job: the job.
        owners: names of the parties with labels.
        passive: names of the others.
        helper: name of a coordinator without data; empty if there is none.
    """
    if not passive:
        return []
    book = len(owners) > 1
    pairs = len(passive) > 1 and job.align.runs_in_pairs(len(passive), book=book)
    common = "which of its rows the other party has" if len(passive) == 1 else "which of its rows all parties have"
    both = f"{common}; with a label book also which are in the book" if book else common
    linked = None if job.link is None else job.link.linker
    found = []
    for name in owners:
        standing, says = "by design", both
        if linked == "active":
            standing, says = "reads it", "whom each party has, from encodings whose key it holds"
        elif linked is None and job.align.protocol == "unsafe_salted_hash":
            standing, says = "reads it", "whom each party has, common or not, by hashing every possible identifier"
        elif pairs:
            says = "which of its rows each passive party has, party by party"
        found.append(MemberRecord(party=name, standing=standing, says=says))
    found += [MemberRecord(party=name, standing="by design", says=both) for name in passive]
    if linked == "coordinator":
        name = helper or COORDINATOR
        found.append(MemberRecord(party=name, standing="reads it", says="who may be whom, from keyed encodings"))
    elif helper:
        found.append(MemberRecord(party=helper, standing="nothing found", says="how many rows are common, not which"))
    return found
