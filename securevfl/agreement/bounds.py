"""Limits of an agreement on a running job: expiry, attempts, time, and versions. Its limits on ε become part of the
party's policy, which is checked against each plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from securevfl.agreement.approvals import Agreement
from securevfl.agreement.party_file import PartyBudget
from securevfl.errors import Expired, InputError

__all__ = ["AgreementUse", "check_running", "check_versions"]


@dataclass(frozen=True, kw_only=True)
class AgreementUse:
    """What a party has used of an agreement, from its state folder.

    Attributes:
        attempts: begun, with the one that is about to begin.
        seconds: in attempts so far, all together.
    """

    attempts: int = 0
    seconds: float = 0.0


def check_running(
    agreement: Agreement, party: str, spent: AgreementUse, now: datetime, *, budget: PartyBudget | None = None
) -> None:
    """Raise an error if the agreement or the party's own budget is used up.

    Args:
        agreement: whose approvals were verified.
        party: this one.
        spent: by it.
        now: the time, in UTC.
        budget: the party's own bounds, on top.

    Raises:
        Expired: the time, the attempts or the seconds are used up; the message gives the amounts and the remedy.
    """
    limits = agreement.proposal.limits
    own = budget or PartyBudget()
    if limits.is_over(now):
        raise Expired(
            f"agreement {agreement.digest[:16]} ended at {limits.expires}, and it is {now:%Y-%m-%dT%H:%M:%SZ}: propose "
            "a new one with a later end, or set the clock"
        )
    for what, used, bounds in (
        ("attempts", spent.attempts, {"the agreement": limits.attempts, "the budget": own.attempts}),
        ("seconds", spent.seconds, {"the agreement": limits.seconds, "the budget": own.seconds}),
    ):
        for whose, bound in bounds.items():
            if bound is not None and used > bound:
                cure = "propose a new one" if whose == "the agreement" else "raise [budget] in the party file"
                raise Expired(f"{party!r} has used {used:,.0f} {what}; {whose} allows {bound:,}: {cure}")


def check_versions(agreement: Agreement) -> None:
    """Refuse an agreement on versions that this installation does not speak.

    Raises:
        InputError: names each of them.
    """
    versions = agreement.proposal.versions
    found = versions.describe_differences()
    if found:
        raise InputError(
            f"agreement {agreement.digest[:16]} (written by securevfl {versions.securevfl}) is for versions that this "
            f"installation does not speak: {'; '.join(found)}, or agree again, with --protocol if a party is older"
        )
