"""A server that leaves for good: what it said last still arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from support.networks import Loopback

from securevfl.party.reports import View
from securevfl.serving.serving_sessions import SessionServer
from securevfl.transport import Channel, Kind, Mesh, Message

LAST = 12 << 20
"""Bytes: more than fits between two processes at once."""


class Speaker(SessionServer):
    """Says its last word, and is done before it has left."""

    def alignment_mark(self) -> str:
        return ""

    async def serve_session(self, view: View, channels: Mapping[str, Channel]) -> None:
        self.over = True
        await channels["b"].send(Message(Kind.STATISTIC, "last", {"a": np.zeros(LAST, np.uint8)}, {}))


class Listener(SessionServer):
    """Is slow to read it."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(mesh)
        self.heard = 0

    def alignment_mark(self) -> str:
        return ""

    async def serve_session(self, view: View, channels: Mapping[str, Channel]) -> None:
        self.over = True
        await asyncio.sleep(1.0)
        message, _ = await channels["a"].receive()
        self.heard = message.arrays["a"].size


def test_the_last_word_of_a_server_arrives_before_it_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        loopback = Loopback(tmp_path)
        try:
            await loopback.start("ab")
            speaker, listener = Speaker(loopback.meshes["a"]), Listener(loopback.meshes["b"])

            async def leave() -> None:
                await speaker.run()
                await speaker.mesh.close()

            async with asyncio.timeout(30):
                await asyncio.gather(leave(), listener.run())
            assert listener.heard == LAST
        finally:
            await loopback.close()

    asyncio.run(main())
