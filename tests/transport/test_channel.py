"""The contract of a channel, over every implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
import torch

from securevfl.errors import ProtocolError
from securevfl.transport import Channel, Kind, Message, encode, memory_pair

PAIRS: list[Callable[[], tuple[Channel, Channel]]] = [memory_pair]


@pytest.fixture(params=PAIRS, ids=lambda pair: pair.__name__)
def ends(request: pytest.FixtureRequest) -> tuple[Channel, Channel]:
    return request.param()


def _message(i: int) -> Message:
    return Message(Kind.STATISTIC, f"m{i}", {"a": np.full(i, i)}, {"i": i})


def test_messages_arrive_once_and_in_order_both_ways(ends: tuple[Channel, Channel]) -> None:
    async def main() -> None:
        a, b = ends
        sizes = [a.send(_message(i)) for i in range(5)]
        b.send(_message(9))
        for i in range(5):
            message, size = await b.receive()
            assert (message.meta["i"], size) == (i, sizes[i])
        assert (await a.receive())[0].what == "m9"

    asyncio.run(main())


def test_the_size_is_what_the_codec_writes(ends: tuple[Channel, Channel]) -> None:
    message = Message(Kind.ACTIVATION, "z", {"z": torch.zeros(33, 7), "c": np.zeros((3, 5), np.uint8)}, {"epoch": 3})
    assert ends[0].send(message) == len(encode(message))


def test_a_reader_waits_for_what_comes_later(ends: tuple[Channel, Channel]) -> None:
    async def main() -> None:
        a, b = ends
        reader = asyncio.create_task(b.receive())
        await asyncio.sleep(0)
        assert not reader.done()
        a.send(_message(1))
        assert (await reader)[0].what == "m1"

    asyncio.run(main())


def test_what_was_sent_before_closing_still_arrives_and_then_reading_is_an_error(ends: tuple[Channel, Channel]) -> None:
    async def main() -> None:
        a, b = ends
        a.send(_message(1))
        a.close()
        assert (await b.receive())[0].what == "m1"
        with pytest.raises(ProtocolError, match="the peer ended"):
            await b.receive()
        with pytest.raises(ProtocolError, match="closed"):
            a.send(_message(2))

    asyncio.run(main())


def test_closing_wakes_a_waiting_reader(ends: tuple[Channel, Channel]) -> None:
    async def main() -> None:
        a, b = ends
        reader = asyncio.create_task(b.receive())
        await asyncio.sleep(0)
        a.close()
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(reader, 5)

    asyncio.run(main())


def test_memory_channels_pass_tensors_by_reference() -> None:
    async def main() -> None:
        a, b = memory_pair()
        tensor = torch.ones(3)
        a.send(Message(Kind.ACTIVATION, "z", {"z": tensor}))
        assert (await b.receive())[0].arrays["z"] is tensor

    asyncio.run(main())
