"""Make cards and proposals: a card from a party's own file, a proposal from a job file and the parties' cards."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from securevfl_net.identity import read_certificates

from securevfl.agreement.approvals import read_bytes
from securevfl.agreement.canonical import MOST_BYTES
from securevfl.agreement.cards import PartyCard, TableSchema, certificate_text
from securevfl.agreement.party_file import PartyFile
from securevfl.agreement.peers import identity_of
from securevfl.agreement.proposal import AgreedLimits, Proposal, ServingTerms
from securevfl.agreement.versions import Versions
from securevfl.errors import InputError
from securevfl.jobfile.job_file import JobSections
from securevfl.jobfile.toml_text import raise_all, read_sections, read_toml
from securevfl.party import JobTerms, Leaving, terms_of_job, with_default_protection
from securevfl.report import Card
from securevfl.run.job_card import job_card, refuse_unaccepted_leaks
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, PartyRole

__all__ = ["Planned", "make_party_card", "parse_span", "parse_time", "planned_epsilon", "propose_job", "read_card"]

LEAVING_AFTER = 3600
"""Seconds after which an absent party is gone, unless the proposer says otherwise."""

ROOM = 2.0
"""A proposal's default limit on ε, as a multiple of the job's plan: room for what restarts release again."""

_PRIVATE = ("data", "party", "policy", "report", "baselines", "name")
"""Sections of a job file that no agreement contains: tables, policies, and settings of simulations only."""

_SPAN = re.compile(r"([1-9][0-9]{0,4})(m|h|d|w)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def make_party_card(own: PartyFile) -> PartyCard:
    """Make a party's card from its own file; reads its table, key and certificate.

    Raises:
        InputError: one of them cannot be used.
    """
    table = own.read_table()
    role: PartyRole = COORDINATOR if table is None else PASSIVE if table.label is None else ACTIVE
    known = identity_of(own)
    authority = None
    if own.keys.authority is not None:
        (issuer,) = read_certificates(own.resolve_path(own.keys.authority))
        if not known.certificate.issued_by(issuer):
            raise InputError(
                f"{own.resolve_path(own.keys.authority)} did not issue {known.certificate_file}: name the one that did"
            )
        authority = certificate_text(issuer)
    names = own.data is not None and own.data.show == "names"
    return PartyCard(
        name=own.party,
        role=role,
        signing_key=own.signing_key().public_key.hex,
        certificates=() if authority is not None else (certificate_text(known.certificate),),
        authority=authority,
        table=None if table is None else TableSchema.of_table(table, names=names),
    )


def read_card(path: str | Path) -> PartyCard:
    """A card file.

    Raises:
        InputError: the file cannot be read, or is not a card.
    """
    try:
        return PartyCard.decode(read_bytes(path, "a card of `securevfl card`", MOST_BYTES))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse_time(text: str, now: datetime) -> str:
    """The end of an agreement, as `Limits.expires` has it.

    Args:
        text: ``"30d"`` from now (m, h, d or w), a day ``"2026-12-31"`` (its end), or a time in UTC.
        now: the time, in UTC.

    Raises:
        InputError: it is none of these forms, or in the past.
    """
    span = _SPAN.fullmatch(text)
    try:
        if span is not None:
            end = now + timedelta(**{_UNITS[span[2]]: int(span[1])})
        elif len(text) == 10:
            end = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)
        else:
            end = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise InputError(
            f"the end is {text[:40]!r}; give a time from now (30d, 12h), a day (2026-12-31), or 2026-12-31T12:00:00Z"
        ) from None
    if end <= now:
        raise InputError(f"the end is {end:%Y-%m-%dT%H:%M:%SZ}, which is past; give a later one")
    return f"{end:%Y-%m-%dT%H:%M:%SZ}"


def parse_span(text: str) -> int:
    """Seconds of a span such as ``"30m"`` (m, h, d or w).

    Raises:
        InputError: it has another form.
    """
    span = _SPAN.fullmatch(text)
    if span is None:
        raise InputError(f"the span is {text[:40]!r}; give minutes, hours, days or weeks: 30m, 2h, 3d, 1w")
    return int(timedelta(**{_UNITS[span[2]]: int(span[1])}).total_seconds())


@dataclass(frozen=True)
class Planned:
    """What a job plans to release about one party.

    Attributes:
        epsilon: infinite without noise; 0 where nothing is released.
        delta: with which it is counted.
    """

    epsilon: float
    delta: float


def planned_epsilon(proposal: Proposal, party: str) -> Planned:
    """ε that one attempt at the proposal's job plans for a party; of the fewest releases that are possible, where their
    number depends on the rows."""
    role, job = proposal.card_of(party).role, proposal.job_of()
    if role == COORDINATOR or not proposal.passive_names:
        return Planned(0.0, 0.0)
    owners = [party] if role == ACTIVE else proposal.owner_names
    found = [terms_of_job(job, party, active=owner, passive=proposal.passive_names) for owner in owners]
    most = max(found, key=lambda one: 0.0 if one.epsilon is None else one.epsilon)
    return Planned(0.0 if most.epsilon is None else most.epsilon, most.delta)


def propose_job(
    job_file: str | Path,
    cards: Sequence[PartyCard],
    *,
    purpose: str,
    expires: str,
    now: datetime,
    limits: Mapping[str, Any] | None = None,
    epsilon: Mapping[str, tuple[float, float]] | None = None,
    serving: ServingTerms | None = None,
    accept_leak: bool = False,
    protocol: int | None = None,
    start: str = "",
) -> Proposal:
    """A proposal for the job of a job file. Tables, policies, the device, the pool and what the
    report decides with are left out.

    Args:
        job_file: TOML.
        cards: of all parties.
        purpose: why, in words.
        expires: see `when`.
        now: the time, in UTC.
        limits: other fields of `AgreedLimits`; `leaving` is that of the job file.
        epsilon: party → most ε and its δ; for others, `ROOM` times the job's plan, without a limit if it plans none.
        serving: how the model may be asked.
        accept_leak: accept leaks, as if the job file did.
        start: see `Proposal.start`.
        protocol: of `PROTOCOLS`, an older one if a party has an older release; the newest by default.

    Raises:
        InputError: a protocol that this installation does not speak, mistakes in the file, or parties that the
            algorithm cannot serve; or reasons of a model that has none.
        PolicyError: the algorithm does not support the protection; or somebody could read what the job does not accept.
    """
    versions = Versions.read_installed()
    if protocol is not None:
        versions = versions.replace(protocol=protocol)
        if found := versions.describe_differences():
            raise InputError(f"--protocol: {found[0]}")
    file = Path(job_file)
    content = {
        key: value for key, value in read_toml(file, "job", "examples/credit.toml").items() if key not in _PRIVATE
    }
    if isinstance(content.get("job"), dict):
        content["job"] = {key: value for key, value in content["job"].items() if key not in ("device", "pool")}
    sections, _, found = read_sections(JobSections, content, [])
    raise_all(file, found)
    doubled = sorted({card.name for card in cards if [one.name for one in cards].count(card.name) > 1})
    if doubled:
        raise InputError(f"two cards are of {doubled[0]!r}; give each party's once")
    names = {role: tuple(sorted(card.name for card in cards if card.role == role)) for role in (ACTIVE, PASSIVE)}
    coordinator = next((card.name for card in cards if card.role == COORDINATOR), "")
    job = sections.build_job().replace(accept_leak=accept_leak or sections.job.accept_leak)
    proposal = Proposal(
        id=secrets.token_hex(16),
        purpose=purpose,
        limits=AgreedLimits(expires=parse_time(expires, now), **_leaving_limits(sections.job.leaving, limits or {})),
        versions=versions,
        job=JobTerms(**{name: getattr(sections.job, name) for name in JobTerms.__struct_fields__}),
        algorithm=sections.algorithm,
        align=sections.align,
        link=sections.link,
        protection=with_default_protection(job, names[ACTIVE], names[PASSIVE], coordinator).protection,
        party=tuple(sorted(cards, key=lambda card: card.name)),
        serving=serving,
        start=start,
    )
    if serving is not None and serving.reasons:
        proposal.algorithm.check_reasons(proposal.protection)
    given = dict(epsilon or {})
    for name in given:
        proposal.card_of(name)
    proposal = proposal.replace(
        party=tuple(_bound_budget(proposal, card, given.get(card.name)) for card in proposal.party)
    )
    refuse_unaccepted_leaks(_card_of(proposal), accepted=job.accept_leak)
    return Proposal.decode(proposal.signed_bytes)  # what the others will read


def _leaving_limits(leaving: Leaving, limits: Mapping[str, Any]) -> dict[str, Any]:
    """The limits with what the job file says of parties that leave."""
    found = {name: value for name, value in limits.items() if value is not None}
    if leaving == "go-on":
        found = {"leaving_after": LEAVING_AFTER} | found
    return found | {"leaving": leaving}


def _card_of(proposal: Proposal) -> Card | None:
    """The card of the proposal's job, with the numbers of columns that the parties show."""
    columns = {}
    for party in proposal.party:
        shown = () if party.table is None else (party.table.numbers, party.table.categories)
        columns[party.name] = sum(one if isinstance(one, int) else len(one) for one in shown)
    return job_card(proposal.job_of(), proposal.owner_names, proposal.passive_names, columns=columns)


def _bound_budget(proposal: Proposal, card: PartyCard, given: tuple[float, float] | None) -> PartyCard:
    planned = planned_epsilon(proposal, card.name)
    if given is not None:
        return card.replace(epsilon=given[0], delta=given[1])
    if card.epsilon is None and 0 < planned.epsilon < math.inf and planned.delta > 0:
        return card.replace(epsilon=round(ROOM * planned.epsilon, 3), delta=planned.delta)
    return card
