"""A repeated place of a stream gives a secret away; the code makes it impossible."""

from __future__ import annotations

import copy
import hashlib

import numpy as np
import pytest
from securevfl_crypto.errors import ReusedError
from securevfl_crypto.replicated import Computing, Share, agreed_streams, memory_wires, take_turns
from securevfl_crypto.replicated.keys import Streams
from securevfl_crypto.ring import Stream


def shared(values: np.ndarray, seed: int) -> list[Share]:
    """A sharing from a seed, one share for each party."""
    words = values.view(np.uint64)
    first, second = np.random.default_rng(seed).integers(0, 2**64, (2, *words.shape), dtype=np.uint64)
    x = (first, second, words - first - second)
    return [Share(x[i], x[(i + 1) % 3]) for i in range(3)]


def stream(text: str) -> Stream:
    return Stream(hashlib.sha256(text.encode()).digest())


def one_product(streams: list[Streams], x: list[Share], w: list[Share]) -> np.ndarray:
    """What party 2 receives of a product."""
    wires = memory_wires(record=True)

    async def program(index: int) -> None:
        await Computing(index, wires[index], streams[index]).multiply(x[index], w[index])

    take_turns([program(index) for index in range(3)], wires[0].links)
    return wires[2].received[0][2][1]


def test_a_replay_under_repeated_places_gives_a_secret_away() -> None:
    """Two runs under the same keys, the second with another x₀ that party 2 knows: it solves for w."""
    x, w = (shared(np.random.default_rng(seed).integers(-9, 9, 6), seed) for seed in (3, 4))
    other = [Share(s.mine.copy(), s.next.copy()) for s in x]
    other[0].mine[:] += np.uint64(5)  # x₀ is at parties 0 and 2
    other[2].next[:] += np.uint64(5)

    def again() -> list[Streams]:
        keys = [f"key {i}" for i in range(3)]
        return [Streams(i, stream(keys[i]), stream(keys[(i + 1) % 3]), stream("own")) for i in range(3)]

    difference = one_product(again(), other, w) - one_product(again(), x, w)
    solved = difference * np.uint64(pow(5, -1, 1 << 64))  # w₀ + w₁
    np.testing.assert_array_equal(solved + w[2].mine, w[0].mine + w[0].next + w[1].next)


def fresh_streams() -> list[Streams]:
    wires = memory_wires()
    return take_turns([agreed_streams(index, wires[index], "run 1") for index in range(3)], wires[0].links)


def test_the_code_cannot_replay() -> None:
    """A stream refuses a place twice, cannot be copied, and each incarnation has other keys."""
    x, w = (shared(np.arange(6), seed) for seed in (3, 4))
    streams = fresh_streams()
    first = one_product(streams, x, w)
    assert (one_product(streams, x, w) != first).all()
    assert (one_product(fresh_streams(), x, w) != first).all()
    for again in (streams[0], streams[0]._streams[0]):
        with pytest.raises(ReusedError):
            copy.deepcopy(again)
    for party in streams:
        party._drawn.clear()
    with pytest.raises(ReusedError):
        one_product(streams, x, w)
