"""The contract of a channel, over every implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
import torch

from securevfl.errors import InputError, ProtocolError
from securevfl.transport import Channel, Kind, Message, encode_message, memory_pair


def one_message() -> tuple[Channel, Channel]:
    """A window that lets one message through at a time."""
    return memory_pair(window=1)


PAIRS: list[Callable[[], tuple[Channel, Channel]]] = [memory_pair, one_message]


@pytest.fixture(params=PAIRS, ids=lambda pair: pair.__name__)
def ends(request: pytest.FixtureRequest) -> tuple[Channel, Channel]:
    return request.param()


def _message(i: int) -> Message:
    return Message(Kind.STATISTIC, f"m{i}", {"a": np.full(i, i)}, {"i": i})


def test_messages_arrive_once_and_in_order_both_ways(ends: tuple[Channel, Channel]) -> None:
    async def main() -> None:
        a, b = ends
        sizes: list[int] = []

        async def write() -> None:
            for i in range(5):
                sizes.append(await a.send(_message(i)))

        writer = asyncio.create_task(write())
        await b.send(_message(9))
        for i in range(5):
            message, size = await b.receive()
            assert message.meta["i"] == i
            assert size == len(encode_message(_message(i)))
        await writer
        assert sizes == [len(encode_message(_message(i))) for i in range(5)]
        assert (await a.receive())[0].what == "m9"

    asyncio.run(main())


def test_the_size_is_what_the_codec_writes(ends: tuple[Channel, Channel]) -> None:
    message = Message(Kind.ACTIVATION, "z", {"z": torch.zeros(33, 7), "c": np.zeros((3, 5), np.uint8)}, {"epoch": 3})
    assert asyncio.run(ends[0].send(message)) == len(encode_message(message))


def test_a_reader_waits_for_what_comes_later(ends: tuple[Channel, Channel]) -> None:
    async def main() -> None:
        a, b = ends
        reader = asyncio.create_task(b.receive())
        await asyncio.sleep(0)
        assert not reader.done()
        await a.send(_message(1))
        assert (await reader)[0].what == "m1"

    asyncio.run(main())


def test_what_was_sent_before_closing_still_arrives_and_then_reading_is_an_error(ends: tuple[Channel, Channel]) -> None:
    async def main() -> None:
        a, b = ends
        await a.send(_message(1))
        a.close()
        assert (await b.receive())[0].what == "m1"
        with pytest.raises(ProtocolError, match="the peer ended"):
            await b.receive()
        with pytest.raises(ProtocolError, match="closed"):
            await a.send(_message(2))

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
        await a.send(Message(Kind.ACTIVATION, "z", {"z": tensor}))
        assert (await b.receive())[0].arrays["z"] is tensor

    asyncio.run(main())


def test_a_full_window_makes_the_sender_wait_and_reading_lets_it_go_on() -> None:
    async def main() -> None:
        a, b = memory_pair(window=1)
        assert a.can_send
        await a.send(_message(0))
        assert not a.can_send
        writers = [asyncio.create_task(a.send(_message(i))) for i in (1, 2)]
        await asyncio.sleep(0.01)
        assert not any(writer.done() for writer in writers)
        assert [(await b.receive())[0].what for _ in range(3)] == ["m0", "m1", "m2"]
        await asyncio.gather(*writers)
        assert a.can_send

    asyncio.run(main())


def test_a_message_larger_than_the_window_passes() -> None:
    async def main() -> None:
        a, b = memory_pair(window=100)
        await a.send(Message(Kind.STATISTIC, "small", {"a": np.zeros(1)}))
        await a.send(Message(Kind.STATISTIC, "large", {"a": np.zeros(10_000)}))
        assert not a.can_send
        assert [(await b.receive())[0].what for _ in range(2)] == ["small", "large"]

    asyncio.run(main())


@pytest.mark.parametrize("who", ["peer", "self"])
def test_a_sender_that_waits_learns_that_nobody_will_read(who: str) -> None:
    async def main() -> None:
        a, b = memory_pair(window=1)
        await a.send(_message(0))
        writer = asyncio.create_task(a.send(_message(1)))
        await asyncio.sleep(0)
        (b if who == "peer" else a).close()
        with pytest.raises(ProtocolError, match=r"will not read|was closed"):
            await asyncio.wait_for(writer, 5)

    asyncio.run(main())


def test_a_window_holds_at_least_a_byte() -> None:
    with pytest.raises(InputError, match="at least 1"):
        memory_pair(window=0)
