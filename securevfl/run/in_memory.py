"""Run all parties of a job in one process: one task for each party, connected by meshes in memory and sharing nothing
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar, cast

from securevfl.errors import PartyFailed, PeerEnded, SecureVFLError
from securevfl.party.attempts import Attempts
from securevfl.party.program import run_and_close
from securevfl.party.reports import View
from securevfl.party_context import PartyContext
from securevfl.run.blocking import attach_ledgers, run_blocking
from securevfl.run.runner import PartyRunner
from securevfl.transport import WINDOW, Channel, MemoryHub

__all__ = ["run_in_memory"]

T = TypeVar("T")


def run_in_memory(
    programs: Mapping[str, Callable[[PartyContext], Awaitable[T]]],
    site_at: Callable[[str, Mapping[str, Channel]], PartyContext],
    *,
    window: int = WINDOW,
) -> tuple[dict[str, T], dict[str, PartyContext]]:
    """Run all parties to their end.

    Args:
        programs: party → the program to run with its context.
        site_at: builds a party's context from its name and its channels.
        window: bytes that may be on their way in each direction of a channel; 1 lets one message through at a time.

    Returns:
        Party → its result, and party → its site.

    Raises:
        PartyFailed: a program ended with an unforeseen error, its `__cause__`; the others stopped.
        SecureVFLError: any other, as the first party raised it; it carries all ledgers.
    """
    sites: dict[str, PartyContext] = {}
    failed: list[tuple[str, BaseException]] = []

    async def run_attempt(name: str, view: View, channels: Mapping[str, Channel]) -> T:
        try:
            site = sites[name] = site_at(name, channels)
            return await run_and_close(site, programs[name](site))
        except (Exception, asyncio.CancelledError) as error:
            failed.append((name, error))
            raise

    async def run_party(name: str, runner: PartyRunner[T]) -> T:
        try:
            return cast("T", await runner.run())  # memory holds no earlier end, so there is a result
        except (Exception, asyncio.CancelledError) as error:
            failed.append((name, error))
            raise

    async def run_all() -> dict[str, T]:
        hub = MemoryHub(sorted(programs), window=window)
        async with asyncio.TaskGroup() as group:
            tasks = {}
            for name, mesh in hub.items():
                runner = PartyRunner(mesh, Attempts(mesh.incarnation), partial(run_attempt, name))
                tasks[name] = group.create_task(run_party(name, runner), name=name)
        if failed:  # a task that nobody here cancelled: a group that is cancelled or fails does not come this far
            raise PeerEnded("a party's task was cancelled")
        return {name: task.result() for name, task in tasks.items()}

    try:
        with attach_ledgers(sites):
            return run_blocking(run_all), sites
    except* Exception:
        causes = [one for one in failed if not isinstance(one[1], PeerEnded | asyncio.CancelledError)]
        name, error = (causes or failed)[0]  # who ended it, before those who noticed
    raised = error if isinstance(error, SecureVFLError) else PartyFailed(name, error)
    raised.ledgers = tuple(site.ledger for _, site in sorted(sites.items()))
    if raised is not error:
        raise raised from error
    raised.add_note(f"raised at party {name!r}; the other parties stopped")
    raise raised
