"""Move the frames of a joint run over a party's links: a reader and a writer for each, all at once.

A writer waits if its peer reads slowly or if something must arrive first; this delays no reader, and a reader keeps
reading while the writer waits. So no window of a channel, however small, can deadlock two parties that both send: the
party whose window is full is read by a reader that does not depend on its peer's writer. The scripts bound what may
wait at this end: `securevfl_psi.conversations.scripts`.
"""

from __future__ import annotations

import asyncio

import numpy as np
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.errors import RowsDifferError
from securevfl_psi.joint import Joint
from securevfl_psi.wire import Frame

from securevfl.align.exchanges import Crossing, find_crossing
from securevfl.errors import AlignmentError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link

__all__ = ["drive_scripts"]


class _Wakeup:
    """Wakes all waiting tasks whenever a frame was sent or received."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        await self._event.wait()


async def drive_scripts(site: PartyContext, joint: Joint) -> None:
    """Runs a party's scripts with all its peers to their end.

    Raises:
        AlignmentError: a peer does not have the same common rows in the same order.
        Exception: the first error of any script or link; the others are cancelled.
    """
    news = _Wakeup()
    links = [site.links[peer] for peer in joint.terms.peers]
    try:
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(_write_frames(link, joint, news))
                group.create_task(_read_frames(link, joint, news))
    except BaseExceptionGroup as failed:
        first: BaseException = failed
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def _write_frames(link: Link, joint: Joint, news: _Wakeup) -> None:
    script: Outgoing = joint.send_script(link.peer)
    for frame in script:
        if frame is None:
            await (asyncio.sleep(0) if joint.is_busy(link.peer) else news.wait())
            continue
        way = find_crossing(frame.kind, joint.protocol_with(link.peer))
        payload = np.frombuffer(frame.payload, dtype=np.uint8)
        array = payload.reshape(-1, way.width) if way.width else payload
        await link.send(way.kind, way.step, meta={}, guard=way.guard, **{way.name: array})
        news.ring()
        await asyncio.sleep(0)  # a send that need not wait would not let anybody else in
    news.ring()


async def _read_frames(link: Link, joint: Joint, news: _Wakeup) -> None:
    script: Incoming = joint.receive_script(link.peer)
    try:
        due = next(script, None)
        while True:
            if due is None:
                await news.wait()
                due = next(script)
                continue
            way = find_crossing(due, joint.protocol_with(link.peer))
            due = script.send(Frame(due, await _receive_frame(link, way)))
            news.ring()
    except StopIteration:
        news.ring()
    except RowsDifferError:
        raise AlignmentError(
            f"{link.me!r} and {link.peer!r} do not have the same common rows in the same order; nothing was trained. "
            "Do both normalise identifiers alike?"
        ) from None


async def _receive_frame(link: Link, way: Crossing) -> bytes:
    message = await link.receive(way.kind, way.step, way.name)
    array = np.asarray(message.arrays[way.name])
    shape = array.shape[1:] == (way.width,) if way.width else array.ndim == 1
    if array.dtype != np.uint8 or not array.ndim or not shape:
        raise ProtocolError(
            f"{link.peer!r} sent {way.step!r} as {array.dtype} {array.shape}; uint8 "
            f"{f'(n, {way.width})' if way.width else '(n,)'} was expected"
        )
    return array.tobytes()
