"""All parties in one process: a task each, in-memory channels between every two, nothing else in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch

from securevfl.algorithms import Split, Table, Trained
from securevfl.align import Alignment, align
from securevfl.data import FeatureEncoder, Parties, PartyTable
from securevfl.errors import PartyFailed, PolicyError, SecureVFLError
from securevfl.jobs.job import Job
from securevfl.party import Observer, Site, derive_seed
from securevfl.privacy import Clock, Ledger, Link, Policy, Reading
from securevfl.transport import MemoryChannel, memory_pair

__all__ = ["Aligned", "Ran", "align_parties", "run_parties"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """The alignment of all parties of a simulation.

    Attributes:
        parties: party → its `Alignment`.
        readings: party → its clock during alignment.
        ledgers: party → its ledger of the alignment.
    """

    parties: Mapping[str, Alignment]
    readings: Mapping[str, Reading] = field(default_factory=dict)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)

    @property
    def common(self) -> int:
        """Number of common rows."""
        return len(next(iter(self.parties.values())).rows)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a run left: each party's result and ledger."""

    trained: Mapping[str, Trained]
    ledgers: Mapping[str, Ledger]
    split: Split


def align_parties(parties: Parties, job: Job, observer: Observer | None = None) -> Aligned:
    """Align the parties' tables by PSI and let all verify the result.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: fewer common rows than a party's policy allows.
        InputError: identifiers that are empty or doubled.
    """
    sites = _sites(job, parties, "alignment", observer)
    sites[parties.active.name].observer.phase("alignment")
    found = _run({name: _program(site, align(site, parties[name].ids)) for name, site in sites.items()}, sites)
    readings = {name: site.clock.lap() for name, site in sites.items()}
    return Aligned(parties=found, readings=readings, ledgers={name: site.ledger for name, site in sites.items()})


def run_parties(
    job: Job,
    parties: Parties,
    aligned: Aligned,
    *,
    run: str,
    split: Split | None = None,
    observer: Observer | None = None,
) -> Ran:
    """Train on the aligned rows, each party as a task of its own.

    Args:
        job: what to run.
        parties: their tables; exactly those that `aligned` tells about.
        aligned: the verified alignment.
        run: name of the run, for the ledgers.
        split: which of the aligned rows train, validate and test; from the job's seed if None.
        observer: hears how it goes on.

    Raises:
        PartyFailed: a party's program ended with an unforeseen error, its `__cause__`.
        SecureVFLError: any other, as the party raised it.
    """
    sites = _sites(job, parties, run, observer)
    parts = split or Split.of(aligned.common, valid=job.valid, test=job.test, seed=job.seed)
    programs = {
        name: _program(site, _train(site, parties[name], aligned.parties[name], job, parts))
        for name, site in sites.items()
    }
    trained = _run(programs, sites)
    return Ran(trained=trained, ledgers={name: site.ledger for name, site in sites.items()}, split=parts)


async def _train(site: Site, table: PartyTable, alignment: Alignment, job: Job, split: Split) -> Trained:
    """One party's program after alignment: encode its own rows, then its role in the algorithm."""
    alignment.require_verified(site)
    encoder = FeatureEncoder.fit(table, alignment.rows[split.train], clip=job.clip, scale=job.scale)
    x = torch.from_numpy(encoder.transform(table, alignment.rows))
    if site.role == "passive":
        return await job.algorithm.passive(site, job.plan, job.protection, Table(x=x, split=split)).run()
    if table.label is None:
        raise PolicyError(f"{site.name!r} has no labels and cannot be the active party")
    y = torch.from_numpy(np.ascontiguousarray(table.label[alignment.rows]))
    mine = Table(x=x, y=y, classes=len(table.classes), split=split)
    return await job.algorithm.active(site, job.plan, job.protection, mine).run()


def _sites(job: Job, parties: Parties, run: str, observer: Observer | None) -> dict[str, Site]:
    """A site for each party, linked with every other."""
    active = parties.active.name
    names = sorted(parties)
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
            role="active" if name == active else "passive",
            active=active,
            passive=tuple(n for n in names if n != active),
            links={peer: Link(name, peer, ends[name, peer], ledger, policy, clock) for peer in names if peer != name},
            ledger=ledger,
            policy=policy,
            clock=clock,
            job=job.digest,
            seed=job.seed,
            private_seed=derive_seed(job.seed, "private", name),
            observer=(observer if name == active else None) or Observer(),
        )
    return sites


def _program(site: Site, work: Awaitable[T]) -> Callable[[], Awaitable[T]]:
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
        site.ledger.close("done")
        site.close()
        return result

    return program


def _run(programs: Mapping[str, Callable[[], Awaitable[T]]], sites: Mapping[str, Site]) -> dict[str, T]:
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
        return _blocking(together)
    except* Exception:
        name, error = failed[0]
    known = isinstance(error, SecureVFLError)
    raised = error if isinstance(error, SecureVFLError) else PartyFailed(name, error)
    raised.ledgers = tuple(site.ledger for site in sites.values())
    if known:
        raised.add_note(f"raised at party {name!r}; the other parties stopped")
        raise raised
    raise raised from error


def _blocking(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run to the end, also where an event loop runs already (a notebook): then in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()
