"""Party programs as tasks of one process: sites with channels in memory between every two, run to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TypeVar

import msgspec

from securevfl.algorithms import Trained
from securevfl.errors import PartyFailed, SecureVFLError
from securevfl.jobs.job import Job
from securevfl.jobs.receipt import totals
from securevfl.privacy import Clock, Ledger, Link, Policy, Spent
from securevfl.site import Keeper, Observer, Site, derive_seed
from securevfl.transport import MemoryChannel, memory_pair

__all__ = ["blocking", "note_spent", "program", "run_programs", "sites_of"]

T = TypeVar("T")


def sites_of(
    job: Job,
    names: Iterable[str],
    *,
    active: str,
    run: str,
    passive: Sequence[str] | None = None,
    observer: Observer | None = None,
    keepers: Mapping[str, Keeper] | None = None,
) -> dict[str, Site]:
    """A site for each name, linked with every other.

    Args:
        job: what they run.
        names: of all parties, and of the coordinator where there is one.
        active: the party that the passive ones work for; it hears `observer`.
        run: name of the run, for the ledgers.
        passive: names of the passive parties, all others being active; None for all but `active`.
        observer: hears how it goes on.
        keepers: party → what keeps its checkpoints.
    """
    names = sorted(names)
    passive = tuple(n for n in names if n != active) if passive is None else tuple(passive)
    ends: dict[tuple[str, str], MemoryChannel] = {}
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            ends[one, other], ends[other, one] = memory_pair()
    sites = {}
    for name in names:
        policy = job.policy(name) if len(names) > 1 else job.policies.get(name, Policy())
        ledger, clock = Ledger(name, run=run, job=job.digest, policy=policy.describe()), Clock()
        sites[name] = Site(
            name=name,
            role="passive" if name in passive else "active",
            active=active,
            passive=passive,
            links={peer: Link(name, peer, ends[name, peer], ledger, policy, clock) for peer in names if peer != name},
            ledger=ledger,
            policy=policy,
            clock=clock,
            job=job.digest,
            seed=job.seed,
            private_seed=derive_seed(job.seed, "private", name),
            observer=(observer if name == active else None) or Observer(),
            keeper=(keepers or {}).get(name, Keeper()),
        )
    return sites


def program(site: Site, work: Awaitable[T]) -> Callable[[], Awaitable[T]]:
    """`work`, with the site's links and ledger closed when it ends, well or badly."""

    async def program() -> T:
        try:
            result = await work
        except asyncio.CancelledError:
            site.ledger.close("cancelled: another party failed")
            raise
        except BaseException as error:
            site.ledger.close(f"failed: {type(error).__name__}: {error}")
            raise
        _note_spent(site.ledger, result)
        site.ledger.close("done")
        site.close()
        return result

    return program


def _note_spent(ledger: Ledger, result: object) -> None:
    """Write into the party's own ledger what its releases cost."""
    if isinstance(result, Trained):
        note_spent(ledger, result.spent)


def note_spent(ledger: Ledger, spent: Sequence[Spent]) -> None:
    """Write these releases of the ledger's party, and what they cost together, into it."""
    for one in spent:
        ledger.note("epsilon", {name: value for name, value in asdict(one).items() if _scalar(value)})
    for total in totals({ledger.party: spent}):
        ledger.note("epsilon total", {n: v for n, v in msgspec.structs.asdict(total).items() if _scalar(v)})


def _scalar(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def run_programs(programs: Mapping[str, Callable[[], Awaitable[T]]], sites: Mapping[str, Site]) -> dict[str, T]:
    """Run all programs to their end; the first error ends them all and is raised."""
    failed: list[tuple[str, Exception]] = []

    async def guarded(name: str) -> T:
        try:
            return await programs[name]()
        except Exception as error:
            failed.append((name, error))
            raise

    async def together() -> dict[str, T]:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(guarded(name), name=name) for name in programs}
        return {name: task.result() for name, task in tasks.items()}

    try:
        return blocking(together)
    except* Exception:
        name, error = failed[0]
    known = isinstance(error, SecureVFLError)
    raised = error if isinstance(error, SecureVFLError) else PartyFailed(name, error)
    raised.ledgers = tuple(site.ledger for site in sites.values())
    if known:
        raised.add_note(f"raised at party {name!r}; the other parties stopped")
        raise raised
    raise raised from error


def blocking(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run to the end, also where an event loop runs already (a notebook): then in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()
