"""Liveness of a party's links: a silent peer ends the run with an error that names it and the awaited step.

Several times in each timeout, a party sends its peers a heartbeat with the number of steps its program has taken and
the peers it waits for. A peer is silent if these steps do not advance and it waits for nobody else. A peer that waits
for a third party gets twice the time, so that the party that waits for the silent one directly names it first. During
one long step, a peer sends heartbeats as long as its program takes steps or its gate reports that it computes.

The clock is the party's own event loop: while this process computes, the loop and so the clock pause. In a simulation,
a party that computes for an hour is therefore not called silent by the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from securevfl_net.link_state import Beat

from securevfl.errors import PeerSilent, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link

__all__ = ["run_with_liveness"]

T = TypeVar("T")

_LOOKS = 20
"""Looks at the links in one span of patience."""
_SELDOM = 5.0
"""Most seconds between two checks."""


async def run_with_liveness(site: PartyContext, work: Awaitable[T]) -> T:
    """Run a party's `work` under the watch.

    Raises:
        PeerSilent: a peer was silent for longer than `PartyContext.silence`; the message names it and the awaited step.
        ProtocolError: the two wait for each other, and both live.
    """
    task = asyncio.current_task()
    if task is None or not site.links:
        return await work
    watch = _LivenessMonitor(site, task)
    looking = asyncio.ensure_future(watch.check_peers())
    try:
        return await work
    except asyncio.CancelledError:
        if watch.error is None:
            raise
        task.uncancel()
        raise watch.error from None
    finally:
        looking.cancel()


class _LivenessMonitor:
    """Checks a party's links from time to time, and cancels the task of its program if a peer is silent."""

    def __init__(self, site: PartyContext, task: asyncio.Task[object]) -> None:
        self.error: ProtocolError | None = None
        self._site = site
        self._task = task
        self._silent = dict.fromkeys(site.links, 0.0)
        self._seen: dict[str, tuple[int, int, float, str]] = {}

    async def check_peers(self) -> None:
        """Send beats, count silent seconds, and end the program after too many."""
        pause = min(self._site.silence / _LOOKS, _SELDOM)
        before = time.monotonic()
        while self.error is None:
            await asyncio.sleep(pause)
            now = time.monotonic()
            passed, before = min(now - before, 2 * pause), now  # longer: this process computed
            for link in self._site.links.values():
                link.send_beat(self._own_beat(link))
            for link in self._site.links.values():
                self._count_silence(link, passed)

    def _own_beat(self, link: Link) -> Beat:
        links = self._site.links.values()
        awaited = next(((one.peer, one.awaits) for one in links if one.awaits), ("", ""))
        steps = sum(one.steps for one in links)
        return Beat(steps=steps, sent=link.sent, read=link.received, awaits=awaited[0], step=awaited[1])

    def _count_silence(self, link: Link, passed: float) -> None:
        beat = link.last_beat
        seen = (link.steps, beat.steps, beat.worked, link.awaits)
        if not link.awaits or seen != self._seen.get(link.peer):
            self._seen[link.peer], self._silent[link.peer] = seen, 0.0
            return
        self._silent[link.peer] += passed
        elsewhere = beat.awaits not in ("", link.me)
        if self._silent[link.peer] > self._site.silence * (2 if elsewhere else 1):
            self.error = self._explain_silence(link, beat)
            self._task.cancel()

    def _explain_silence(self, link: Link, beat: Beat) -> ProtocolError:
        what = f"{link.me!r} has waited {self._silent[link.peer]:.0f} s for {link.peer!r} ({link.awaits})"
        age = time.monotonic() - beat.at if beat.at else self._silent[link.peer]
        if age > self._silent[link.peer] / 2:  # what it last reported is out of date, so it proves nothing
            return PeerSilent(
                f"{what}: no sign of life from {link.peer!r} for {age:.0f} s; it may be stopped, or the link cut",
                party=link.peer,
            )
        if beat.awaits == link.me:
            lost = beat.sent > link.received or link.sent > beat.read
            sides = (
                f"{link.peer!r} reports {beat.sent} messages sent and {beat.read} read; {link.me!r} read "
                f"{link.received} and sent {link.sent}"
            )
            why = (
                "a message was lost on the way"
                if lost
                else f"they run different programs, or {link.peer!r} hangs: check its ledger"
            )
            return ProtocolError(f"{what}, which itself waits for {link.me!r} ({beat.step}): {sides}; {why}")
        if beat.awaits:
            return PeerSilent(
                f"{what}, which waits for {beat.awaits!r} ({beat.step}): check that party first",
                party=beat.awaits if beat.awaits in self._site.links else "",
            )
        return PeerSilent(
            f"{what}, which showed no sign of life: its process runs, and its program takes no step; check its log",
            party=link.peer,
        )
