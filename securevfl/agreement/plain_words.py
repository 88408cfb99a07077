"""A proposal in plain English: what a person agrees to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from securevfl.agreement.approvals import Agreement
from securevfl.agreement.cards import PartyCard, TableSchema
from securevfl.agreement.proposal import Proposal
from securevfl.agreement.proposing import planned_epsilon
from securevfl.data.roles import name_labels
from securevfl.privacy import Finding
from securevfl.transport import ACTIVE, COORDINATOR

__all__ = ["Paragraph", "describe_approvals", "describe_proposal"]

_SEVERITIES = {"leak": "can read", "note": "learns, a known and limited leak:", "ok": "learns"}
_ORDER = list(_SEVERITIES)
_MANY = 40


@dataclass(frozen=True)
class Paragraph:
    """A heading and lines below it."""

    title: str
    lines: tuple[str, ...]


def describe_proposal(proposal: Proposal, *, me: str = "") -> list[Paragraph]:
    """Describe the whole proposal, for a person to read before signing.

    Args:
        proposal: it.
        me: the party that reads; its name is marked.
    """
    limits = proposal.limits
    return [
        Paragraph(
            f"Agreement {proposal.digest}",
            (
                f"Purpose: {proposal.purpose}",
                f"It ends on {limits.expiry_time:%Y-%m-%d %H:%M} UTC. Training ends before that after "
                f"{limits.attempts} attempts, or after {_format_span(limits.seconds)} in attempts.",
                _describe_leaving(proposal),
            ),
        ),
        Paragraph("Who takes part", tuple(line for card in proposal.party for line in _describe_party(card, me))),
        Paragraph("What runs", _describe_job(proposal)),
        Paragraph("Who learns what", tuple(_describe_findings(proposal))),
        Paragraph("What the releases may cost", tuple(_describe_cost(proposal, card) for card in proposal.party)),
        Paragraph("Afterwards", _describe_serving(proposal)),
    ]


def _describe_leaving(proposal: Proposal) -> str:
    limits = proposal.limits
    if limits.leaving_after is None:
        return "If a party leaves for good, the job ends at all parties."
    return (
        f"If a party with features alone leaves ({', '.join(proposal.passive_names)}), or is away for more than "
        f"{_format_span(limits.leaving_after)}, the job goes on without it from the last checkpoint, once all others "
        "have signed that. Its columns are then missing from the model. Without the party with the labels it ends."
    )


def _format_span(seconds: int) -> str:
    return str(timedelta(seconds=seconds)).removesuffix(", 0:00:00")


def _describe_party(card: PartyCard, me: str) -> list[str]:
    role = {ACTIVE: "has the labels", COORDINATOR: "coordinates and has no data"}.get(card.role, "has features alone")
    issuer = card.issuer_certificate
    known = (
        "certificate " + ", ".join(one.fingerprint for one in card.tls_certificates)
        if issuer is None
        else f"any certificate of its name that authority {issuer.fingerprint} issues"
    )
    lines = [
        f"{card.name}{' (you)' if card.name == me else ''} {role}",
        f"  signs with {card.public_key.fingerprint}",
        f"  shows {known}",
    ]
    return lines + ([] if card.table is None else [f"  brings {_describe_columns(card.table)}"])


def _describe_columns(table: TableSchema) -> str:
    parts = [
        _format_names(table.numbers, "number", "numbers"),
        _format_names(table.categories, "category", "categories"),
    ]
    if table.label is not None and table.classes is not None:
        if isinstance(table.classes, tuple) and table.label == name_labels(table.classes):
            parts.append(f"{len(table.classes)} labels, of which a row can have several: {table.label}")
            return "; ".join(part for part in parts if part)
        number = table.classes == 1
        what = "a number" if number else f"with {_format_names(table.classes, 'class', 'classes')}"
        parts.append(f"the label {table.label}{', ' if number else ' '}{what}")
    parts += ["labels of people that its table lacks"] if table.book else []
    return "; ".join(part for part in parts if part) or "no columns"


def _format_names(names: int | tuple[str, ...], one: str, many: str) -> str:
    count = names if isinstance(names, int) else len(names)
    if not count:
        return ""
    text = f"{count} {one if count == 1 else many}"
    if isinstance(names, int):
        return f"{text} (not named)"
    return f"{text}: {', '.join(names[:_MANY])}" + (", …" if count > _MANY else "")


def _describe_job(proposal: Proposal) -> tuple[str, ...]:
    tree = proposal.to_tree()
    assumed = proposal.protection.assumptions(proposal.owner_names, proposal.passive_names)
    return (
        f"{proposal.algorithm.title} under {proposal.protection.title}",
        *([f"  What follows is true only if {assumed}. By signing you state that you believe it."] if assumed else []),
        *(
            [
                f"  It goes on from the model of run {proposal.start}: each party begins from its own part of it, "
                "whose state folder its own file names (start). Rows that trained that model may validate and test "
                "now; then figures, and a proof that the model is useful, are too optimistic."
            ]
            if proposal.start
            else []
        ),
        f"  job: {_describe_options(tree['job'])}",
        f"  alignment: {_describe_options(tree['align'])}",
        *([f"  linkage, for want of a common identifier: {_describe_options(tree['link'])}"] if "link" in tree else []),
        f"  algorithm: {_describe_options(tree['algorithm'])}",
        f"  protection: {_describe_options(tree['protection'])}",
        f"  with {_describe_options(tree['versions'])}",
    )


def _describe_options(tree: dict[str, Any]) -> str:
    """Every option, without exception: people can agree only to what they see."""
    parts = []
    for key, value in tree.items():
        if isinstance(value, dict):
            parts.append(f"{key} ({_describe_options(value)})")
        else:
            parts.append(f"{key} {_format_value(value)}")
    return ", ".join(parts)


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _describe_findings(proposal: Proposal) -> list[str]:
    job, passive = proposal.job_of(), proposal.passive_names
    found = [one for owner in proposal.owner_names for one in job.findings(passive, owner)]
    ordered = sorted(dict.fromkeys(found), key=lambda one: _ORDER.index(one.severity))
    return _group_findings(ordered) or ["no party learns anything of another"]


def _group_findings(findings: Sequence[Finding]) -> list[str]:
    """Merge findings that several parties share."""
    who: dict[tuple[str, str, str], list[str]] = {}
    for one in findings:
        who.setdefault((one.severity, one.learns, one.about), []).append(one.party)
    return [
        f"[{severity}] {', '.join(names)} learn{'s' if len(names) == 1 else ''} of {about}: {text}"
        for (severity, text, about), names in who.items()
    ]


def _describe_cost(proposal: Proposal, card: PartyCard) -> str:
    planned = planned_epsilon(proposal, card.name)
    if planned.epsilon == 0:
        return f"{card.name}: releases nothing of its own with a cost"
    plans = "without noise, which no ε bounds" if math.isinf(planned.epsilon) else f"ε = {planned.epsilon:.4g}"
    covered = proposal.protection.on_shares or proposal.algorithm.covers_training(proposal.protection)
    if proposal.algorithm.describes and not math.isinf(planned.epsilon):
        plans += " for common rows"
    elif covered and not math.isinf(planned.epsilon):
        plans += " for rows that train; predictions are counted as numbers (max_results), not by ε"
    if card.epsilon is None or card.delta is None:
        return f"{card.name}: the job releases {plans}; the agreement sets no bound"
    return f"{card.name}: ε up to {card.epsilon:g} at δ = {card.delta:g}, over all attempts; one attempt plans {plans}"


def _describe_serving(proposal: Proposal) -> tuple[str, ...]:
    serving = proposal.serving
    if proposal.algorithm.describes:
        return ("No model comes of it, and nobody is scored by it.",)
    if serving is None:
        return ("This is about training alone: nobody may ask the model for scores under it.",)
    bounds = [f"at least {serving.min_batch} rows at once" if serving.min_batch > 1 else "one row or more at once"]
    bounds += [f"up to {serving.rows_per_day:,} rows a day"] if serving.rows_per_day is not None else []
    if serving.scores_per_record is not None:
        bounds.append(f"one row up to {serving.scores_per_record} times a day")
    found = f"{', '.join(serving.asks)} may ask the model for scores: {', '.join(bounds)}."
    if serving.reasons:
        found += (
            " Answers come with reasons: what each of the asking party's own columns adds, and what the others add "
            "together, which follows from the score."
        )
    return (found,)


def describe_approvals(agreement: Agreement) -> Paragraph:
    """Who has approved, as far as this party knows."""
    lines = [f"{name}: approved, the signature verifies" for name in agreement.approvals]
    lines += [f"{name}: not yet" for name in agreement.missing_parties]
    return Paragraph("Approvals", tuple(sorted(lines)))
