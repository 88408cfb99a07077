"""The link between two computing parties: what it counts, and messages that are refused."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from securevfl_crypto.errors import CryptoError, MalformedError
from securevfl_crypto.two.wire import MemoryEnd, MemoryWires, swap

EIGHT = [(np.uint8, (2,))]


async def _send(wire: MemoryEnd, array: np.ndarray, label: str = "a") -> list[np.ndarray]:
    await wire.send(label, [array])
    return []


def test_messages_arrive_in_order_and_are_counted() -> None:
    wires = MemoryWires(record=True)
    zero, one = wires.pair()

    async def first() -> list[int]:
        await zero.send("a", [np.arange(3, dtype=np.uint64)])
        await zero.send("a", [np.zeros(5, np.uint8), np.ones((1, 2), np.uint32)])
        (got,) = await zero.receive("b", EIGHT)
        return [int(x) for x in got]

    async def second() -> list[int]:
        (got,) = await one.receive("a", [(np.uint64, (3,))])
        await one.receive("a", [(np.uint8, (5,)), (np.uint32, (1, 2))])
        await one.send("b", [np.array([7, 8], np.uint8)])
        return [int(x) for x in got]

    assert wires.run(first(), second()) == ([7, 8], [0, 1, 2])
    assert (zero.me, one.me) == (0, 1)
    assert wires.messages == {"a": 2, "b": 1}
    assert wires.octets == {"a": 24 + 5 + 8, "b": 2}
    assert [(each.sender, each.label, each.depth) for each in wires.record] == [(0, "a", 1), (0, "a", 1), (1, "b", 2)]
    assert wires.depth == 2


def test_a_swap_is_one_exchange() -> None:
    wires = MemoryWires()
    zero, one = wires.pair()

    async def program(wire: MemoryEnd) -> int:
        total = 0
        for _ in range(3):
            (got,) = await swap(wire, "s", [np.array([wire.me, 5], np.uint8)])
            total += int(got[0])
        (wide,) = await swap(wire, "t", [np.zeros(2 + wire.me, np.uint8)], [(np.uint8, (3 - wire.me,))])
        return total + len(wide)

    assert wires.run(program(zero), program(one)) == (3 + 3, 0 + 2)
    assert wires.depth == 4
    assert wires.messages == {"s": 6, "t": 2}


def test_links_work_in_an_event_loop() -> None:
    wires = MemoryWires()
    ends = wires.pair()

    async def program() -> list[list[np.ndarray]]:
        return await asyncio.gather(*(swap(end, "s", [np.array([end.me], np.uint8)]) for end in ends))

    (from_one,), (from_zero,) = asyncio.run(program())
    assert (int(from_one[0]), int(from_zero[0])) == (1, 0)


@pytest.mark.parametrize(
    ("array", "label", "match"),
    [
        (np.zeros(2, np.uint8), "b", "instead of 'a'"),
        (np.zeros(3, np.uint8), "a", r"\(3,\).*expected uint8 \(2,\)"),
        (np.zeros((2, 1), np.uint8), "a", "expected"),
        (np.zeros(2, np.int8), "a", "sent int8"),
    ],
)
def test_other_messages_are_refused(array: np.ndarray, label: str, match: str) -> None:
    wires = MemoryWires()
    zero, one = wires.pair()
    with pytest.raises(MalformedError, match=match):
        wires.run(_send(zero, array, label), one.receive("a", EIGHT))


def test_messages_with_more_or_fewer_arrays_are_refused() -> None:
    wires = MemoryWires()
    zero, one = wires.pair()
    with pytest.raises(MalformedError, match="1 arrays in 'a'; expected 2"):
        wires.run(_send(zero, np.zeros(2, np.uint8)), one.receive("a", EIGHT * 2))


def test_what_is_sent_does_not_change_with_the_senders_array() -> None:
    wires = MemoryWires()
    zero, one = wires.pair()
    array = np.zeros(2, np.uint8)

    async def changing() -> list[np.ndarray]:
        await zero.send("a", [array])
        array[:] = 9
        return []

    _, (got,) = wires.run(changing(), one.receive("a", EIGHT))
    assert not got.any()


def test_parties_that_both_wait_are_told() -> None:
    wires = MemoryWires()
    zero, one = wires.pair()
    with pytest.raises(CryptoError, match="waits"):
        wires.run(zero.receive("a", EIGHT), one.receive("a", EIGHT))
