"""Check a proposal against a party's own file before a person signs it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from securevfl_net.identity import read_certificates

from securevfl.agreement.approvals import Approval
from securevfl.agreement.cards import PartyCard
from securevfl.agreement.differences import flatten_fields
from securevfl.agreement.party_file import PartyFile
from securevfl.agreement.proposal import Proposal
from securevfl.agreement.proposing import make_party_card, planned_epsilon
from securevfl.errors import InputError, PolicyError
from securevfl.party import rule_against
from securevfl.transport import ACTIVE, COORDINATOR

__all__ = ["ProposalCheck", "approve_proposal", "check_proposal"]

_BOUNDS = ("epsilon", "delta")


@dataclass(frozen=True, kw_only=True)
class ProposalCheck:
    """Result of the check.

    Attributes:
        differences: where the proposal describes this party, its keys, its table or the software differently from this
            installation; each names the field and both values.
        refusals: rules of the party's policy and budget that the proposal breaks.
        notes: what the party should know, but need not prevent signing.
    """

    differences: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def raise_refusals(self) -> None:
        """Do nothing, unless something was found.

        Raises:
            InputError: differences.
            PolicyError: refusals alone.
        """
        if self.differences:
            differs = _join_lines("the agreement differs from this party's own file", self.differences)
            raise InputError(f"{differs}; correct the file, or have it proposed again with this party's new card")
        if self.refusals:
            raise PolicyError(_join_lines("this party refuses the agreement", self.refusals))


def _join_lines(what: str, found: tuple[str, ...]) -> str:
    return f"{what}: {found[0]}" if len(found) == 1 else f"{what}:\n  " + "\n  ".join(found)


def check_proposal(proposal: Proposal, own: PartyFile, now: datetime) -> ProposalCheck:
    """Check a proposal against a party's own file: its card, policy, budget and installation. Reads the table.

    Args:
        proposal: it.
        own: the party's file.
        now: the time, in UTC.

    Raises:
        InputError: the proposal does not name the party, or a file of the party's cannot be used.
    """
    differences = _against_card(proposal, own)
    differences += [
        f"signing_key of {name}: the agreement names {proposal.card_of(name).public_key.fingerprint}, "
        f"[peer.{name}] expects {peer.signed_by}"
        for name, peer in own.peers.items()
        if name in proposal.party_names and peer.signed_by not in (None, proposal.card_of(name).public_key.fingerprint)
    ]
    differences += [f"versions.{text}" for text in proposal.versions.describe_differences()]
    unknown = [
        f"{name} signs with {proposal.card_of(name).public_key.fingerprint}: compare that with {name} in person, "
        f"or set signed_by in [peer.{name}]"
        for name in proposal.party_names
        if name != own.party and (name not in own.peers or own.peers[name].signed_by is None)
    ]
    return ProposalCheck(
        differences=tuple(differences), refusals=tuple(_find_refusals(proposal, own, now)), notes=tuple(unknown)
    )


def _against_card(proposal: Proposal, own: PartyFile) -> list[str]:
    named = dict(
        flatten_fields(
            {key: value for key, value in proposal.card_of(own.party).display_tree().items() if key not in _BOUNDS}
        )
    )
    mine = dict(flatten_fields(make_party_card(own).display_tree() | _known_by(proposal.card_of(own.party), own)))
    return [
        f"party.{own.party}.{path}: the agreement has {named.get(path, 'nothing')[:200]}, {own.path.name} has "
        f"{mine.get(path, 'nothing')[:200]}"
        for path in dict.fromkeys([*named, *mine])
        if named.get(path) != mine.get(path)
    ]


def _known_by(card: PartyCard, own: PartyFile) -> dict[str, Any]:
    """The certificates of the agreement, where this party's first one is among them: those that were rotated in since
    are endorsed by its signing key, not agreed on."""
    (first,) = read_certificates(own.resolve_path(own.keys.certificate))
    return {"certificates": card.display_tree()["certificates"]} if first in card.tls_certificates else {}


def _find_refusals(proposal: Proposal, own: PartyFile, now: datetime) -> list[str]:
    found = []
    if proposal.limits.is_over(now):
        found.append(f"it ended at {proposal.limits.expires}: propose again")
    if proposal.start:
        from securevfl.agreement.starting import find_start  # it reads parts of models, which loads what computes

        try:
            find_start(proposal, own.party, proposal.job_of(), own.start, None)
        except InputError as error:
            found.append(str(error))
    card, budget = proposal.card_of(own.party), own.budget
    if card.role != COORDINATOR:
        job = proposal.job_of(device=own.device, policies={own.party: own.policy})
        owners = [own.party] if card.role == ACTIVE else proposal.owner_names
        me = own.party
        found += [
            rule
            for owner in owners
            for passive in _passive_after(proposal, me)
            if (
                rule := rule_against(
                    job,
                    me,
                    active=owner,
                    passive=passive,
                    pairwise=proposal.has_book(owner),
                    columns=0 if card.table is None else card.table.columns,
                    classes=proposal.class_count,
                    asker=own.organisations.get(owner, owner),
                )
            )
        ]
    for what, asked, bound in (
        ("attempts", proposal.limits.attempts, budget.attempts),
        ("seconds", proposal.limits.seconds, budget.seconds),
    ):
        if bound is not None and asked > bound:
            found.append(f"it allows {asked:,} {what}; [budget] in {own.path.name} allows {bound:,}")
    planned = planned_epsilon(proposal, own.party)
    if card.epsilon is not None and planned.epsilon > card.epsilon * (1 + 1e-9):
        found.append(f"its job plans ε = {planned.epsilon:.4g} for {own.party!r}, and it allows {card.epsilon:g}")
    if budget.epsilon is not None and planned.epsilon > 0:
        if card.epsilon is None or card.delta is None:
            found.append(f"it sets no bound on ε; [budget] in {own.path.name} allows {budget.epsilon:g}: propose one")
        elif card.epsilon > budget.epsilon * (1 + 1e-9) or card.delta > budget.delta * (1 + 1e-9):
            found.append(
                f"it allows ε = {card.epsilon:g} at δ = {card.delta:g}; [budget] in {own.path.name} allows "
                f"{budget.epsilon:g} at {budget.delta:g}"
            )
    return list(dict.fromkeys(found))


def _passive_after(proposal: Proposal, me: str) -> list[tuple[str, ...]]:
    """Which passive parties the job may have, as a party's policy has to accept them: all; and where it goes on without
    some, the fewest that may remain with this party.
    """
    every = proposal.passive_names
    if proposal.limits.leaving == "end":
        return [every]
    return [every, (me,)] if me in every else [every, *((name,) for name in every)]


def approve_proposal(proposal: Proposal, own: PartyFile, now: datetime) -> Approval:
    """Check the proposal against the party's own file, and sign it.

    Args:
        proposal: that a person has read.
        own: the party's file.
        now: the time, in UTC.

    Raises:
        InputError: differences, each named by its field.
        Expired: it has ended.
        PolicyError: the party's policy or budget refuses it.
    """
    held = check_proposal(proposal, own, now)
    held.raise_refusals()
    return Approval.sign(proposal, own.party, own.signing_key())
