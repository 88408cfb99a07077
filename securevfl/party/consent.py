"""Consent: before a job begins, each party checks it against its own policy and sends the others its decision.

Label owners decide first, because only they know whether a label book will reveal pairwise intersections; then the
passive parties and the coordinator answer. A party that refuses names the rule and sends nothing else; a party that
receives a refusal stops. Only these control messages cross before all have agreed. Parties that keep journals compare
them here, see `securevfl.party.attempts`, and the running numbers of result books, see
`securevfl.party.running_numbers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from securevfl.align import alignment_exchanges, link_exchanges
from securevfl.errors import PolicyError, ProtocolError
from securevfl.party.attempts import agree_attempt, attempt_fields
from securevfl.party.job import Job
from securevfl.party.planning import plan_epsilon, planned_numbers
from securevfl.party.remedies import find_remedies
from securevfl.party.running_numbers import compare_running, running_fields
from securevfl.party_context import PartyContext
from securevfl.privacy import (
    READABLE_KINDS,
    REFUSED,
    SHARES,
    Finding,
    Link,
    Policy,
    Terms,
    describe_broken_rule,
    fan_out,
)
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Scalar

__all__ = ["EXCHANGES", "Terms", "exchange_consent", "rule_against", "terms_of_job"]

_CONSENT = "party/consent"
_ROLES: tuple[PartyRole, ...] = (ACTIVE, PASSIVE, COORDINATOR)
EXCHANGES = tuple(
    Exchange(step, Kind.CONTROL, sender, receiver, words, reveals)
    for sender in _ROLES
    for receiver in _ROLES
    for step, words, reveals in (
        (_CONSENT, "consent to the job", ""),
        (REFUSED, "refusal of the job", "which rule of the sender's policy the job breaks"),
    )
)
"""Messages of consent, between any two parties."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What the plan of numbers of a row follows from beside the job; see `exchange_consent`."""

    columns: int
    classes: int
    predicts: bool


async def exchange_consent(
    site: PartyContext,
    job: Job,
    *,
    book: bool,
    among: Sequence[str] = (),
    columns: int = 0,
    classes: int = 0,
    predicts: bool = False,
) -> None:
    """Send this party's decision to all peers and receive theirs.

    Args:
        site: the party's context.
        job: the job to consent to.
        book: at a label owner, whether it has a label book.
        among: all passive parties of the job, where fewer take part: the rows that those share with the active party
            become known to it.
        columns: how many columns its table has, for the bound of numbers of a row; 0 if unknown.
        classes: how many classes the label has, likewise; 0 if unknown.
        predicts: whether the job is trained, and rows are predicted by its model.

    Raises:
        PolicyError: this party refuses, or a peer does; names the party and the rule.
        ProtocolError: a peer has another job.
        InputError: the parties' journals record different attempts; see `agree_attempt`.
    """
    owners = [name for name in site.label_owners if name != site.name]
    others = sorted(set(site.links) - set(owners))
    books, said = {site.name: book}, dict[str, tuple[str, Mapping[str, Scalar]]]()
    if site.role != ACTIVE:
        await _receive_decisions(site, owners, books, said)
    await _send_decision(site, job, books, among, _Numbers(columns, classes, predicts))
    if site.role == ACTIVE:
        await _receive_decisions(site, owners, books, said)
    await _receive_decisions(site, others, books, said)
    site.ledger.record_peers(said)
    compare_running(site, {name: meta for name, (_, meta) in said.items()})
    await agree_attempt(site, _CONSENT, {name: meta for name, (_, meta) in said.items()})


async def _send_decision(
    site: PartyContext, job: Job, books: dict[str, bool], among: Sequence[str], numbers: _Numbers
) -> None:
    rule = "" if site.role == COORDINATOR else _own_rule(site, job, books, among, numbers)
    if rule:
        meta = {"rule": rule}
        await fan_out(site.other_links, lambda link: link.send(Kind.CONTROL, REFUSED, meta=meta))
        raise PolicyError(f"{site.name!r} refuses the job: {rule}")
    if site.simulated and site.role == PASSIVE and planned_numbers(job, site.name) is None:
        _note_uncounted(site, job)
    book = books[site.name]
    await fan_out(site.other_links, lambda link: _send_consent(link, site, book))


def _note_uncounted(site: PartyContext, job: Job) -> None:
    """Note in a simulation what between organisations would have been refused."""
    if site.policy.allowed_results is not None and not site.policy.writes_bound:
        site.notes.append(
            f"{job.algorithm.title} does not count the numbers of a row of {site.name!r} that it opens: between "
            'organisations its policy has to say max_results = "unlimited"'
        )


async def _send_consent(link: Link, site: PartyContext, book: bool) -> None:
    meta = {"job": site.job, "book": book, **site.ledger.introduction, **attempt_fields(site), **running_fields(site)}
    await link.send(Kind.CONTROL, _CONSENT, meta=meta)


def _own_rule(site: PartyContext, job: Job, books: dict[str, bool], among: Sequence[str], numbers: _Numbers) -> str:
    passive, fewer = among or site.passive, len(among) > len(site.passive)
    owners = (site.name,) if site.role == ACTIVE else site.label_owners
    stranger = next((rule for owner in owners if (rule := _unknown_asker(site, owner))), "")
    if stranger:
        return stranger
    rules = (
        rule_against(
            job,
            site.name,
            active=owner,
            passive=passive,
            pairwise=fewer or books.get(owner, False),
            columns=numbers.columns,
            classes=numbers.classes,
            predicts=numbers.predicts,
            asker=site.organisation_of(owner),
            simulated=site.simulated,
        )
        for owner in owners
    )
    return next((rule for rule in rules if rule), "")


def _unknown_asker(site: PartyContext, owner: str) -> str:
    """Why a passive party cannot tell whose numbers it would count; empty if it can. One organisation could otherwise
    ask under several names, each with its own count. The refusal names no other organisation: peers read it."""
    if site.role == ACTIVE or site.simulated or site.policy.max_results == "unlimited" or owner in site.organisations:
        return ""
    askers = site.results.askers
    if not askers or site.organisation_of(owner) in askers:
        return ""
    return (
        f"max_results: {site.name!r} counts what it answers for each organisation, and does not know which one "
        f'{owner!r} is: its officer has to write that into its party file, [organisations] {owner} = "…", with the '
        "name that it had before if it was answered before"
    )


async def _receive_decisions(
    site: PartyContext, names: Iterable[str], books: dict[str, bool], said: dict[str, tuple[str, Mapping[str, Scalar]]]
) -> None:
    for name in names:
        message = await site.links[name].receive(Kind.CONTROL, _CONSENT)
        if message.meta.get("job") != site.job:
            raise ProtocolError(
                f"{name!r} runs job {message.meta.get('job')!r:.20}, {site.name!r} job {site.job!r:.20}: use one job "
                "file"
            )
        books[name] = message.meta.get("book") is True
        said[name] = site.role_of(name), message.meta


def terms_of_job(
    job: Job,
    party: str,
    *,
    active: str,
    passive: Sequence[str],
    pairwise: bool = False,
    columns: int = 0,
    classes: int = 0,
    predicts: bool = False,
    asker: str = "",
    simulated: bool = False,
) -> Terms:
    """What `job` would do to `party`, by its declared exchanges.

    Args:
        job: the job.
        party: one of them.
        active: name of the active party, or of the label owner.
        passive: names of the passive parties.
        pairwise: whether alignment would show the active party pairwise intersections, as a label book needs.
        columns: how many columns its table has; 0 where that is not known.
        classes: how many classes the label has; 0 where that is not known.
        predicts: whether the job is trained, and rows are predicted by its model.
        asker: organisation of the active party; its name unless given.
        simulated: see `Terms.simulated`.
    """
    protection, mine = job.planned_protection(len(passive)), party == active
    role: PartyRole = ACTIVE if mine else PASSIVE
    pairwise = pairwise or job.align.runs_in_pairs(len(passive))
    aligning = alignment_exchanges(len(passive), book=pairwise, align=job.align)
    aligning = (*aligning, *(() if job.link is None else link_exchanges(job.link)))
    training = job.algorithm.exchanges(protection, len(passive)) if passive else ()
    known_to = active if pairwise and not mine and len(passive) > 1 else ""
    sends = frozenset({Kind.CONTROL}) | _content_kinds(e for e in aligning if e.sender == role)
    if not training:
        return Terms(sends=sends, pairwise=known_to)
    content = [e for e in training if role in (e.sender, e.receiver)]
    findings = job.findings(passive, active)
    planned = plan_epsilon(job, mine=mine, passive=len(passive))
    return Terms(
        protections=_name_protections(content),
        key_bits=min((e.key_bits for e in content if "paillier" in e.ciphers), default=0),
        sends=sends | _content_kinds(e for e in content if e.sender == role),
        receives=_content_kinds(e for e in content if e.receiver == role),
        opens=frozenset(e.opened for e in training if e.opened is not None),
        noised=protection.policy().noised,
        epsilon=planned.epsilon,
        delta=planned.delta,
        unbounded=planned.unbounded,
        predictions=planned.predictions,
        releases=_name_releases(job, mine),
        numbers=0 if mine else planned_numbers(job, party, classes, columns=columns, predicts=predicts),
        columns=columns,
        asker=asker or active,
        simulated=simulated,
        few_rows=not mine and protection.takes_few_rows,
        useless=not mine and protection.answers_useless,
        leaks=_describe_leaks(findings, party),
        computing=protection.trusted_parties(active, passive),
        pairwise=known_to,
    )


def _name_releases(job: Job, mine: bool) -> str:
    if job.protection.on_shares or job.algorithm.covers_training(job.protection):
        return "the model"
    return "gradients" if mine else "activations"


def _describe_leaks(findings: Iterable[Finding], party: str) -> tuple[str, ...]:
    """What others could read of this party's data: who, and what, as text. Findings shared by several parties appear
    once.
    """
    who: dict[str, list[str]] = {}
    for finding in findings:
        if finding.about == party and finding.severity == "leak":
            who.setdefault(finding.learns, []).append(repr(finding.party))
    return tuple(f"{' and '.join(names)} learn{'s' * (len(names) == 1)} {text}" for text, names in who.items())


def _content_kinds(exchanges: Iterable[Exchange]) -> frozenset[Kind]:
    return frozenset(exchange.kind for exchange in exchanges)


def _name_protections(content: Iterable[Exchange]) -> frozenset[str]:
    """Protections under which row-level content may cross: the ciphers of encrypted content, ``"shares"``, and
    ``"plain"`` for the rest.
    """
    found: set[str] = set()
    for exchange in content:
        found |= exchange.ciphers
        if exchange.kind in READABLE_KINDS:
            found.add("plain")
        if exchange.kind is Kind.SHARE:
            found.add(SHARES)
    return frozenset(found)


def rule_against(
    job: Job,
    party: str,
    *,
    active: str,
    passive: Sequence[str],
    pairwise: bool = False,
    columns: int = 0,
    classes: int = 0,
    predicts: bool = False,
    asker: str = "",
    simulated: bool = False,
) -> str:
    """The rule of `party`'s own policy that `job` breaks, in words; empty if it accepts the job. See `terms_of_job`."""
    if not passive:
        return ""
    own = job.policies.get(party, Policy())
    found = terms_of_job(
        job,
        party,
        active=active,
        passive=passive,
        pairwise=pairwise,
        columns=columns,
        classes=classes,
        predicts=predicts,
        asker=asker,
        simulated=simulated,
    )
    if found.leaks and not own.leaks:
        found = replace(found, cure=find_remedies(job, party, active=active, passive=passive))
    return describe_broken_rule(own, found, party)
