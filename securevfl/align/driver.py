"""Moves the frames of a joint run over a party's links: a reader and a writer for each, all at the same time.

A writer that waits, because the peer reads slowly or because something has to arrive first, holds up no reader; and a
reader takes in what comes even while the writer waits. So no window of a channel, however small, can block two parties
that both send: the one whose window is full is read by a reader that does not depend on its peer's writer. What may
wait at this end is bounded by the scripts: `securevfl_psi.conversations.scripts`.
"""

from __future__ import annotations

import asyncio

import numpy as np
from securevfl_psi.conversations.scripts import Incoming, Outgoing
from securevfl_psi.errors import RowsDifferError
from securevfl_psi.joint import Joint
from securevfl_psi.wire import Frame
from securevfl_psi.wire import Kind as FrameKind

from securevfl.align.exchanges import CROSSINGS
from securevfl.errors import AlignmentError, ProtocolError
from securevfl.privacy import Link
from securevfl.site import Site

__all__ = ["drive"]


class _News:
    """Wakes all that wait, whenever anything was sent or heard."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        await self._event.wait()


async def drive(site: Site, joint: Joint) -> None:
    """Runs a party's scripts with all its peers to their end.

    Raises:
        AlignmentError: a peer does not have the same common rows in the same order.
        Exception: the first error of any script or link; the others are cancelled.
    """
    news = _News()
    links = [site.links[peer] for peer in joint.terms.peers]
    try:
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(_write(link, joint.sending(link.peer), news))
                group.create_task(_read(link, joint.hearing(link.peer), news))
    except BaseExceptionGroup as failed:
        first: BaseException = failed
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def _write(link: Link, script: Outgoing, news: _News) -> None:
    for frame in script:
        if frame is None:
            await news.wait()
            continue
        crossing = CROSSINGS[frame.kind]
        payload = np.frombuffer(frame.payload, dtype=np.uint8)
        array = payload.reshape(-1, crossing.width) if crossing.width else payload
        await link.send(crossing.kind, crossing.step, meta={}, guard=crossing.guard, **{crossing.name: array})
        news.ring()
        await asyncio.sleep(0)  # a send that need not wait would not let anybody else in
    news.ring()


async def _read(link: Link, script: Incoming, news: _News) -> None:
    try:
        due = next(script, None)
        while True:
            if due is None:
                await news.wait()
                due = next(script)
                continue
            frame = await _receive(link, due)
            due = script.send(frame)
            news.ring()
    except StopIteration:
        news.ring()
    except RowsDifferError:
        raise AlignmentError(
            f"{link.me!r} and {link.peer!r} do not have the same common rows in the same order; nothing was trained. "
            "Do both normalise identifiers alike?"
        ) from None


async def _receive(link: Link, due: FrameKind) -> Frame:
    crossing = CROSSINGS[due]
    message = await link.receive(crossing.kind, crossing.step, crossing.name)
    array = np.asarray(message.arrays[crossing.name])
    shape = array.shape[1:] == (crossing.width,) if crossing.width else array.ndim == 1
    if array.dtype != np.uint8 or not array.ndim or not shape:
        raise ProtocolError(
            f"{link.peer!r} sent {crossing.step!r} as {array.dtype} {array.shape}; uint8 "
            f"{f'(n, {crossing.width})' if crossing.width else '(n,)'} was expected"
        )
    return Frame(due, array.tobytes())
