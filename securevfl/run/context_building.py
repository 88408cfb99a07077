"""Build a party's context for one attempt from its own files and its channels to the peers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from securevfl.party import Job, job_exchanges
from securevfl.party_context import SILENCE, Keeper, Observer, PartyContext, PartySecret
from securevfl.privacy import Clock, HeldNumbers, Ledger, Link, OpensLedgers, Policy, ResultBook
from securevfl.privacy.link import MessageObserver
from securevfl.run.roster import Roster
from securevfl.transport import Channel, Exchanges, PartyRole

__all__ = ["build_context", "build_links", "draw_secret", "record_declarations"]


def draw_secret(job: Job, name: str) -> PartySecret:
    """Draw a party's first secret: from the operating system where features depend on it (a sealed cut, an algorithm
    that draws secretly), otherwise from the job's seed."""
    hides = job.protection.is_sealed or job.algorithm.draws_secretly
    return PartySecret.generate() if hides else PartySecret.from_seed(job.seed, name)


def build_context(
    job: Job,
    roster: Roster,
    name: str,
    channels: Mapping[str, Channel],
    *,
    run: str,
    ledgers: OpensLedgers,
    secret: PartySecret,
    keeper: Keeper | None = None,
    observer: Observer | None = None,
    messages: Exchanges | None = None,
    silence: float = SILENCE,
    results: ResultBook | None = None,
    held: HeldNumbers | None = None,
    own_policy: Policy | None = None,
    organisations: Mapping[str, str] | None = None,
    simulated: bool = False,
    filters: Path | None = None,
    gone: tuple[str, ...] = (),
) -> PartyContext:
    """Build a party's context; its links pass only the messages that the job declares.

    Args:
        job: what is run.
        roster: who takes part.
        name: the party.
        channels: peer → the channel to it.
        run: name of the run, for the ledger.
        ledgers: opens the party's ledger.
        secret: the party's own.
        keeper: keeps its checkpoints.
        observer: receives progress events.
        messages: what the job declares, where it is known already.
        silence: see `PartyContext.silence`.
        results: the party's result book; the keeper's unless given, if the policy writes a bound of numbers of a row.
        held: see `PartyContext.held`.
        own_policy: the party's, before an agreement tightens it for this job; that of the job unless given.
        organisations: see `PartyContext.organisations`.
        filters: see `PartyContext.filters`.
        gone: see `PartyContext.gone`.
        simulated: see `PartyContext.simulated`.
    """
    messages = messages or job_exchanges(job, len(roster.passive))
    observer = observer or Observer()
    role = roster.role_of(name)
    policy = job.policy(name) if channels else job.policies.get(name, Policy())
    keeper, clock = keeper or Keeper(), Clock()
    if results is None:
        results = keeper.results if policy.writes_bound or policy.max_epsilon is not None else ResultBook()
    ledger = ledgers.open(name, run=run, job=job.digest, policy=policy.text(), role=role)
    if channels:
        record_declarations(ledger, messages, role)
    heard = observer.message_passed if observer.listening else _count_for(observer)
    links = build_links(roster, name, channels, messages, ledger=ledger, policy=policy, clock=clock, heard=heard)
    return PartyContext(
        name=name,
        active=roster.owners[0],
        passive=roster.passive,
        owners=roster.owners,
        coordinator=roster.coordinator,
        links=links,
        ledger=ledger,
        policy=policy,
        clock=clock,
        job=job.digest,
        seed=job.seed,
        secret=secret,
        observer=observer,
        keeper=keeper,
        silence=silence,
        results=results,
        held=held or HeldNumbers(),
        epsilon_over_jobs=(own_policy or job.policies.get(name, Policy())).max_epsilon,
        organisations=organisations or {},
        simulated=simulated,
        filters=filters,
        gone=gone,
        pool=job.pool,
        device=job.device,
    )


def _count_for(observer: Observer) -> MessageObserver | None:
    """Counts messages for an observer that wants no more of them."""
    if not observer.counting:
        return None
    return lambda party, peer, way, message: observer.message_counted(peer, way, message.kind)


def build_links(
    roster: Roster,
    name: str,
    channels: Mapping[str, Channel],
    messages: Exchanges | None,
    *,
    ledger: Ledger,
    policy: Policy,
    clock: Clock,
    heard: MessageObserver | None = None,
) -> dict[str, Link]:
    """Build a party's links to its peers.

    Args:
        roster: who takes part.
        name: the party.
        channels: peer → the channel to it.
        messages: the only ones that the links pass; None to pass all, which only tests do.
        ledger: the party's own.
        policy: the party's own.
        clock: the party's own.
        heard: receives every message; see `Observer.message_passed`.
    """
    role = roster.role_of(name)
    return {
        peer: Link(
            name,
            peer,
            channel,
            ledger,
            policy,
            clock,
            sends=None if messages is None else messages.declared_between(role, roster.role_of(peer)),
            takes=None if messages is None else messages.declared_between(roster.role_of(peer), role),
            heard=heard,
        )
        for peer, channel in sorted(channels.items())
    }


def record_declarations(ledger: Ledger, messages: Exchanges, role: PartyRole) -> None:
    """Record in a party's ledger every message the job declares, so that an audit needs no other file."""
    for exchange in messages:
        if role in (exchange.sender, exchange.receiver):
            ledger.record_note(
                "exchange",
                {
                    "step": exchange.step,
                    "kind": exchange.kind.value,
                    "sender": exchange.sender,
                    "receiver": exchange.receiver,
                    "words": exchange.words,
                    "reveals": exchange.reveals,
                    "opened": "" if exchange.opened is None else exchange.opened.value,
                },
            )
