"""Run a coroutine to its end from synchronous code, also inside a running event loop. Interrupts carry the ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

from securevfl.party_context import PartyContext

__all__ = ["attach_ledgers", "run_blocking"]

T = TypeVar("T")


@contextmanager
def attach_ledgers(sites: Mapping[str, PartyContext]) -> Iterator[None]:
    """An interrupt of the run inside carries all ledgers."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as interrupt:
        interrupt.ledgers = tuple(site.ledger for site in sites.values())  # type: ignore[union-attr]
        raise


def run_blocking(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run to the end. If an event loop already runs (a notebook), use a separate thread, which an interrupt of the
    calling thread stops.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        found: list[T] = []

        async def run_storing() -> None:
            found.append(await main())

        asyncio.run(run_storing())  # it formats its task when it resets the signal handler: with arrays that takes long
        return found[0]
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[object] | None]] = []

    async def run_noting() -> T:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await main()

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(asyncio.run, run_noting())
        try:
            return result.result()
        except KeyboardInterrupt:
            for loop, task in running:
                if task is not None:
                    with suppress(RuntimeError):  # the loop was closed: the run is over
                        loop.call_soon_threadsafe(task.cancel)
            raise
