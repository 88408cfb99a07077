"""Whether what an attack got contradicts what a job claims of it: by the bounds of `securevfl.privacy.severity`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from securevfl.attacks.measure import Measured
from securevfl.privacy.findings import Finding
from securevfl.privacy.severity import NOTE_AUC_GAIN, NOTE_CORRELATION_GAIN, NOTE_R2_GAIN, OK_AUC

__all__ = ["CLAIMED", "SEVERITIES", "claims", "contradiction", "measures_as_leak"]

_SPREAD = 3.0
SEVERITIES = ("", "ok", "note", "leak")
"""What a job states, the mildest first; empty where it states nothing."""

CLAIMED = ("labels", "features", "attribute", "others' columns")
"""Beginnings of the names of attacks that findings of a job speak of."""


def claims(findings: Iterable[Finding]) -> Mapping[tuple[str, str], str]:
    """(who learns, about whom) → the worst severity that a job states; a pair that it does not name is missing."""
    worst: dict[tuple[str, str], str] = {}
    for one in findings:
        pair = one.party, one.about
        worst[pair] = max(worst.get(pair, ""), one.severity, key=SEVERITIES.index)
    return worst


def measures_as_leak(one: Measured) -> bool:
    """Whether an attack got so much that nobody may call it *ok*, beyond what chance gives.

    Labels: an AUC above 0.55 without known labels, or 0.05 above the same learner without the view. Attributes: 0.05
    above; columns: 0.10 of R² above. A number: a correlation 0.10 above. AUCs and correlations have to exceed chance by
    three standard errors, too.
    """
    if one.metric == "AUC":
        bound = OK_AUC - 0.5 if one.attack.startswith("labels") and not one.known else NOTE_AUC_GAIN
        return one.gain > max(bound, _SPREAD * one.error)
    if one.metric == "correlation":
        return one.gain > max(NOTE_CORRELATION_GAIN, _SPREAD * one.error)
    return one.gain > NOTE_R2_GAIN


def contradiction(one: Measured, severity: str) -> str:
    """What was got although a claim says otherwise, or nothing does; empty where the claim holds.

    Args:
        one: what an attack got.
        severity: what the job states of this attacker and victim: ``"ok"``, or empty where it states nothing.
    """
    if severity not in ("", "ok") or not one.attack.startswith(CLAIMED) or not measures_as_leak(one):
        return ""
    known = f" with {one.known} known" if one.known else ""
    return (
        f"{one.attacker} about {one.victim}: {one.attack}{known} gets {one.metric} {one.value:.2f} of {one.target} "
        f"(without the view: {one.baseline:.2f})"
    )
