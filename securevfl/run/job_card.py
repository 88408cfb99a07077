"""The card of a job that has not run, and findings as records have them. Loads no torch: a proposal has a card."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from securevfl.errors import PolicyError
from securevfl.party import Job
from securevfl.privacy import Finding, Policy, load_measured
from securevfl.report import Card, make_card
from securevfl.report.attack_record import AttackRecord
from securevfl.report.record import FigureRecord, LearnedRecord, PartyRecord, SightRecord
from securevfl.run.card_inputs import count_numbers, list_members
from securevfl.transport import Sight

__all__ = ["add_budgets", "job_card", "merge_findings", "refuse_unaccepted_leaks", "run_title"]

_SHOWN = 6
"""Cells that a refusal names."""

_LOOKS = ("z,", "each part of z,")
"""Sights that a budget of opened values counts, as ``measured.json`` calls them."""


def run_title(job: Job) -> str:
    """Title of a run: what was trained, under which protection."""
    return f"{job.algorithm.title_for(job.number_loss)}, {job.protection.title}"


def merge_findings(findings: Sequence[Finding]) -> list[LearnedRecord]:
    """Merge findings with the same text into one line (one party about several others, or several parties), with the
    results of attacks on such data.
    """
    about: dict[tuple[str, str, str, tuple[Sight, ...]], list[str]] = {}
    for f in findings:
        about.setdefault((f.party, f.learns, f.severity, f.sights), []).append(f.about)
    who: dict[tuple[str, str, str, tuple[Sight, ...]], list[str]] = {}
    for (party, learns, severity, sights), others in about.items():
        who.setdefault((", ".join(others), learns, severity, sights), []).append(party)
    return [
        LearnedRecord(
            party=", ".join(names),
            about=others,
            learns=learns,
            severity=severity,
            sights=[_sight_record(one) for one in sights],
        )
        for (others, learns, severity, sights), names in who.items()
    ]


def job_card(
    job: Job,
    owners: Sequence[str],
    passive: Sequence[str],
    attacked: AttackRecord | None = None,
    *,
    columns: Mapping[str, int] | None = None,
) -> Card | None:
    """Worst case: who could read what of whose data in this job; None if no party has a peer.

    Args:
        job: that has not run.
        owners: names of the parties with labels.
        passive: names of the others.
        attacked: attacks on this job; their figures replace published ones.
        columns: party → how many it has, where that is known.
    """
    if not passive:
        return None
    found = [f for owner in owners for f in job.findings(passive, owner)]
    learned = merge_findings(count_numbers(add_budgets(found, job), job))
    roles = {**dict.fromkeys(owners, "active"), **dict.fromkeys(passive, "passive")}
    helper = job.protection.coordinator_among(roles)
    roles |= {helper: "coordinator"} if helper else {}
    known = columns or {}
    parties = [
        PartyRecord(name=name, role=role, rows=0, columns=[f"column {i + 1}" for i in range(known.get(name, 0))])
        for name, role in roles.items()
    ]
    return make_card(
        learned,
        parties,
        attacked,
        title=run_title(job),
        assumes=job.protection.assumptions(owners, passive),
        members=list_members(job, owners, passive, helper),
    )


def add_budgets(findings: Sequence[Finding], job: Job) -> list[Finding]:
    """Add to findings about features how many openings per row their owner's policy allows. A budget of at least as
    many values of z as a row has columns bounds nothing.
    """
    found = []
    for one in findings:
        most = job.policies.get(one.about, Policy()).max_looks
        if most is not None and most < 1:
            budget = f"max_looks = {most:g}: numbers for each column of a row"
            sights = tuple(
                replace(sight, budget=budget) if sight.view.startswith(_LOOKS) else sight for sight in one.sights
            )
            one = replace(one, sights=sights)  # noqa: PLW2901 - the same finding, with its bound
        found.append(one)
    return found


def _sight_record(one: Sight) -> SightRecord:
    found = load_measured().get(one.view)
    return SightRecord(
        of=one.of,
        severity=one.severity,
        through=one.through,
        epsilon=None if one.epsilon is None or math.isinf(one.epsilon) else one.epsilon,
        auc=one.auc,
        budget=one.budget,
        result=one.result,
        numbers=one.numbers,
        measured=None
        if found is None
        else FigureRecord(
            got=found.got,
            without=found.without,
            attribute=found.attribute,
            attribute_without=found.attribute_without,
            cell=found.cell,
            after=dict(found.after),
        ),
    )


def refuse_unaccepted_leaks(card: Card | None, *, accepted: bool) -> None:
    """Refuse a job some of whose cells are read, whatever protection it names, unless it accepts that: between
    organisations. A simulation runs without, because one person has all tables there; its card says what it would need.

    Args:
        card: of the job; None where no party has a peer.
        accepted: whether the job has ``accept_leak``.

    Raises:
        PolicyError: who would read what, and how to accept it.
    """
    cells = () if card is None or accepted else card.read_cells
    if not cells:
        return
    found = []
    for cell in cells[:_SHOWN]:
        what = f"{cell.of} of {cell.about}" if cell.about else cell.of
        figure = f" ({cell.figure})" if cell.figure else ""
        found.append(f"{cell.reader} reads {what} {cell.says}{figure}")
    found += [f"and {len(cells) - _SHOWN} more"] if len(cells) > _SHOWN else []
    raise PolicyError(
        f"{len(cells)} cells of the job's card are 'reads it': {'; '.join(found)}. Choose another protection, noise or "
        "a smaller max_results, which `securevfl check` shows; or accept the leak: --accept-leak, in a job file "
        "accept_leak = true under [job]"
    )
