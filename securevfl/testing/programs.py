"""Party programs as tasks of one process: sites with channels in memory between every two, run to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from securevfl.errors import PartyFailed, PeerEnded, SecureVFLError
from securevfl.party import Job, job_exchanges
from securevfl.party.program import run_and_close
from securevfl.party_context import SILENCE, Keeper, Observer, PartyContext, PartySecret
from securevfl.privacy import Ledgers
from securevfl.run.blocking import carrying, run_blocking
from securevfl.run.context_building import build_context, draw_secret
from securevfl.run.roster import Roster
from securevfl.transport import WINDOW, MemoryChannel, memory_pair

__all__ = ["run_programs", "sites_of"]

T = TypeVar("T")


def sites_of(
    job: Job,
    names: Iterable[str],
    *,
    owners: Sequence[str],
    run: str,
    coordinator: str = "",
    observer: Observer | None = None,
    observers: Mapping[str, Observer] | None = None,
    keepers: Mapping[str, Keeper] | None = None,
    secrets: Mapping[str, PartySecret] | None = None,
    window: int = WINDOW,
    silence: float = SILENCE,
    ledgers: Ledgers | None = None,
) -> dict[str, PartyContext]:
    """A site for each name, linked with every other by links that let through what the job declares.

    Args:
        job: what they run.
        names: of all parties, and of the coordinator where there is one.
        owners: the parties with labels; the first one hears `observer`.
        run: name of the run, for the ledgers.
        coordinator: the name of the party without a table; empty where there is none.
        observer: hears how it goes on.
        observers: party → what hears of it alone, in place of `observer`.
        keepers: party → what keeps its checkpoints.
        secrets: party → its secret; for the others it comes from the operating system where the job seals the cut, and
            from the job's seed where it does not.
        window: bytes that may be on their way in each direction of a link.
        silence: see `PartyContext.silence`; the same for all of them.
        ledgers: opens the parties' ledgers; with new keys unless given.
    """
    roster = Roster.of(names, owners=owners, coordinator=coordinator)
    messages = job_exchanges(job, len(roster.passive))
    ends: dict[str, dict[str, MemoryChannel]] = {name: {} for name in roster.names}
    for i, one in enumerate(roster.names):
        for other in roster.names[i + 1 :]:
            ends[one][other], ends[other][one] = memory_pair(window)
    ledgers = ledgers or Ledgers(runs=[run])
    sites = {}
    for name in roster.names:
        secret = (secrets or {}).get(name)
        sites[name] = build_context(
            job,
            roster,
            name,
            ends[name],
            run=run,
            ledgers=ledgers,
            secret=draw_secret(job, name) if secret is None else secret,
            keeper=(keepers or {}).get(name),
            observer=(observers or {}).get(name) or (observer if name == owners[0] else None),
            messages=messages,
            silence=silence,
        )
    return sites


def run_programs(programs: Mapping[str, Callable[[], Awaitable[T]]], sites: Mapping[str, PartyContext]) -> dict[str, T]:
    """Run all parties' programs to their end, each with its site's links and ledger closed after it.

    Raises:
        PartyFailed: a program ended with an unforeseen error, its `__cause__`; the others stopped.
        SecureVFLError: any other, as the first party raised it; it carries all ledgers.
    """
    failed: list[tuple[str, BaseException]] = []

    async def guarded(name: str) -> T:
        try:
            return await run_and_close(sites[name], programs[name]())
        except asyncio.CancelledError as error:
            failed.append((name, error))
            raise
        except Exception as error:
            failed.append((name, error))
            for _ in range(20):  # the others read what is on its way to them, a refusal perhaps, before they stop
                await asyncio.sleep(0)
            raise

    async def together() -> dict[str, T]:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(guarded(name), name=name) for name in programs}
        if failed:  # a task that nobody here cancelled: a group that is cancelled or fails does not come this far
            raise PeerEnded("a party's task was cancelled")
        return {name: task.result() for name, task in tasks.items()}

    try:
        with carrying(sites):
            return run_blocking(together)
    except* Exception:
        causes = [one for one in failed if not isinstance(one[1], PeerEnded | asyncio.CancelledError)]
        name, error = (causes or failed)[0]  # who ended it, before those who noticed
    known = isinstance(error, SecureVFLError)
    raised = error if isinstance(error, SecureVFLError) else PartyFailed(name, error)
    raised.ledgers = tuple(site.ledger for site in sites.values())
    if known:
        raised.add_note(f"raised at party {name!r}; the other parties stopped")
        raise raised
    raise raised from error
