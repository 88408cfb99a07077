"""Servers of all parties over a mesh in memory, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import securevfl as sv
from securevfl.data import Parties, PartyTable
from securevfl.run.model_parts import PART, ModelPart
from securevfl.serving import Batching, ModelShelf, ServeActive, ServePassive, ServingContext, ServingPolicy
from securevfl.testing.parties import make_parties
from securevfl.transport import MemoryHub

JOB = sv.Job(
    protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4, top=(4,), bottom=(3,)), epochs=1, batch_size=32, seed=5
)
PATIENCE = 60.0
"""Seconds that a test waits at most, on however busy a machine."""


def unlabelled(people: Parties) -> dict[str, PartyTable]:
    """The parties' tables, to predict: without labels."""
    bank = replace(people["bank"], label=None, classes=(), label_name="")
    return {"bank": bank} | {table.name: table for table in people.passive}


def trained(folder: Path, job: sv.Job = JOB, people: Parties | None = None) -> dict[str, ModelPart]:
    """Each party's part of a model, read from its own file alone."""
    people = people or make_parties()
    sv.simulate(job, people).model().save(folder)
    return {name: ModelPart.load(folder / f"{name}{PART}", name, job) for name in people}


@dataclass
class Served:
    """Servers that run, and what they run over."""

    hub: MemoryHub
    servers: dict[str, ServeActive | ServePassive]
    tasks: dict[str, asyncio.Task[None]]
    start: Callable[[str], None]

    @property
    def bank(self) -> ServeActive:
        server = self.servers["bank"]
        assert isinstance(server, ServeActive)
        return server

    def crash(self, name: str) -> None:
        """End a party without a word."""
        self.hub.crash(name)
        self.tasks[name].cancel()

    async def again(self, name: str) -> None:
        """Start a party that crashed, and wait until all serve in a new session."""
        others = [server for party, server in self.servers.items() if party != name]
        before = [server.sessions for server in others]
        self.start(name)
        await until(lambda: all(server.sessions > count for server, count in zip(others, before, strict=True)))
        await until(lambda: self.bank.is_ready)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, with a generous limit."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


def places(
    folder: Path,
    tables: Mapping[str, Callable[[], PartyTable]],
    job: sv.Job = JOB,
    policies: Mapping[str, ServingPolicy] | None = None,
    now: Callable[[], float] = lambda: 1.8e9,
) -> dict[str, ServingContext]:
    """Where each party serves. A passive party without a policy bounds no numbers of its rows."""
    passive = tuple(name for name in tables if name != "bank")
    unbounded = {name: sv.Policy(max_results="unlimited") for name in passive}
    job = job.replace(policies={**unbounded, **job.policies})
    return {
        name: ServingContext(
            name=name,
            active="bank",
            passive=passive,
            job=job,
            load=load,
            folder=folder / name,
            policy=(policies or {}).get(name, ServingPolicy()),
            now=now,
        )
        for name, load in tables.items()
    }


def ready(
    folder: Path,
    parts: Mapping[str, ModelPart],
    policies: Mapping[str, ServingPolicy] | None = None,
    job: sv.Job = JOB,
    people: Parties | None = None,
    now: Callable[[], float] = lambda: 1.8e9,
) -> dict[str, ServingContext]:
    """Where each party serves, with its part of a model on its shelf."""
    tables = unlabelled(people or make_parties())
    loads: dict[str, Callable[[], PartyTable]] = {name: partial(_same, table) for name, table in tables.items()}
    at = places(folder, loads, job, policies, now)
    for name, place in at.items():
        put(place, parts[name])
    return at


def _same(table: PartyTable) -> PartyTable:
    return table


def put(place: ServingContext, part: ModelPart) -> None:
    """What a party's operator does with a new part."""
    ModelShelf(place.folder / "models", place.name, place.job).put_part(part)


@asynccontextmanager
async def served(
    at: Mapping[str, ServingContext], batching: Batching | None = None, *, run: str = ""
) -> AsyncIterator[Served]:
    """Servers of all parties, ready."""
    hub = MemoryHub(at)
    servers: dict[str, ServeActive | ServePassive] = {}
    tasks: dict[str, asyncio.Task[None]] = {}

    def start(name: str) -> None:
        if name in tasks:
            hub.start(name)
        place = at[name]
        servers[name] = (
            ServeActive(hub[name], place, batching, run=run) if name == "bank" else ServePassive(hub[name], place)
        )
        tasks[name] = asyncio.ensure_future(servers[name].run())

    for name in at:
        start(name)
    running = Served(hub, servers, tasks, start)
    try:
        await until(
            lambda: running.bank.is_ready or bool(running.bank.problem) or any(t.done() for t in tasks.values())
        )
        for task in tasks.values():
            if task.done():
                await task
        yield running
    finally:
        for task in tasks.values():
            task.cancel()
        for task in tasks.values():
            with suppress(asyncio.CancelledError, Exception):
                await task


def forget_answers(bank: ServeActive) -> None:
    """Let the active party lose the answers that it holds, so that it asks again."""
    assert bank._live is not None
    assert bank._live.joint is not None
    answers = bank._live.joint.answers
    answers.path.unlink(missing_ok=True)
    answers._kept.clear()


def scores_of(outcomes: Sequence[object]) -> np.ndarray:
    """Probabilities (n, classes), where every customer got some."""
    assert all(isinstance(one, np.ndarray) for one in outcomes), outcomes
    return np.array(outcomes)
