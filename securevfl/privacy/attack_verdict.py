"""Compare what an attack achieved with what the job claims, by the bounds of `securevfl.privacy.severity`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from securevfl.attacks.measure import AttackScore
from securevfl.privacy.findings import Finding
from securevfl.privacy.severity import NOTE_AUC_GAIN, NOTE_CORRELATION_GAIN, NOTE_R2_GAIN, OK_AUC

__all__ = ["CLAIMED", "SEVERITIES", "describe_contradiction", "measures_as_leak", "worst_claims"]

_SPREAD = 3.0
SEVERITIES = ("", "ok", "note", "leak")
"""Severities a job can claim, mildest first; empty: no claim."""

CLAIMED = ("labels", "features", "attribute", "others' columns")
"""Prefixes of attack names that a job's findings cover."""


def worst_claims(findings: Iterable[Finding]) -> Mapping[tuple[str, str], str]:
    """(who learns, about whom) → the worst severity that the job claims. Pairs without a claim are missing."""
    worst: dict[tuple[str, str], str] = {}
    for one in findings:
        pair = one.party, one.about
        worst[pair] = max(worst.get(pair, ""), one.severity, key=SEVERITIES.index)
    return worst


def measures_as_leak(one: AttackScore) -> bool:
    """Return True if an attack gained too much to be called *ok*, and more than chance explains.

    Labels: an AUC above 0.55 without known labels, or 0.05 above the same learner without the view. Attributes: 0.05
    above; columns: 0.10 of R² above. A number: a correlation 0.10 above. AUCs and correlations must also exceed chance
    by three standard errors.
    """
    if one.metric == "AUC":
        bound = OK_AUC - 0.5 if one.attack.startswith("labels") and not one.known else NOTE_AUC_GAIN
        return one.gain > max(bound, _SPREAD * one.error)
    if one.metric == "correlation":
        return one.gain > max(NOTE_CORRELATION_GAIN, _SPREAD * one.error)
    return one.gain > NOTE_R2_GAIN


def describe_contradiction(one: AttackScore, severity: str) -> str:
    """Describe an attack result that contradicts the job's claim, or that the job does not mention; empty if there is
    no contradiction.

    Args:
        one: the attack's result.
        severity: what the job claims about this attacker and victim: ``"ok"``, or empty if it makes no claim.
    """
    if severity not in ("", "ok") or not one.attack.startswith(CLAIMED) or not measures_as_leak(one):
        return ""
    known = f" with {one.known} known" if one.known else ""
    return (
        f"{one.attacker} about {one.victim}: {one.attack}{known} gets {one.metric} {one.value:.2f} of {one.target} "
        f"(without the view: {one.baseline:.2f})"
    )
