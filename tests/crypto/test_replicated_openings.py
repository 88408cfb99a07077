"""Several values, each opened to one party, in one round; and public random words that nobody alone chooses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from securevfl_crypto.errors import DisagreementError, UndeclaredOpening
from securevfl_crypto.replicated import (
    Clear,
    Computing,
    Expected,
    MemoryWire,
    Opening,
    Product,
    Share,
    deal_shares,
    memory_wires,
    run_three,
    take_turns,
)
from securevfl_crypto.replicated.keys import fixed_streams

X = np.arange(6, dtype=np.uint64) + np.uint64(1 << 50)
OPENINGS = {name: Opening(1, (party,), 3) for name, party in (("a", 0), ("b", 1), ("c", 2))}


class _Adding:
    """A wire that adds one to the first array of the messages of one label."""

    def __init__(self, wire: MemoryWire, label: str) -> None:
        self.wire, self.label = wire, label

    async def send(self, to: int, label: str, arrays: Sequence[np.ndarray]) -> None:
        changed = [arrays[0], arrays[1] + arrays[1].dtype.type(1)] if label == self.label else arrays
        await self.wire.send(to, label, changed)

    async def receive(self, source: int, label: str, expect: Expected) -> list[np.ndarray]:
        return await self.wire.receive(source, label, expect)


async def _open_thirds(party: Computing | Clear, x: Share) -> dict[str, np.ndarray]:
    return await party.open_each([("a", x[:2], 0), ("b", x[2:5], 1), ("c", x[5:], 2)])


def test_each_value_reaches_its_receiver_alone_in_one_round() -> None:
    dealt = deal_shares(X)

    async def program(party: Computing) -> dict[str, np.ndarray]:
        return await _open_thirds(party, party.read_dealt(dealt[party.index]))

    run = run_three(program, openings=OPENINGS, record=True)
    assert [list(found) for found in run.results] == [["a"], ["b"], ["c"]]
    assert np.array_equal(np.concatenate([found[name] for found, name in zip(run.results, "abc", strict=True)]), X)
    assert run.rounds == 1
    labels = [[label for _, label, _ in wire.received] for wire in run.wires]
    assert labels == [["open a"] * 2, ["open b"] * 2, ["open c"] * 2]


def test_none_is_sent_if_one_was_not_declared() -> None:
    for openings, match in (
        ({"a": 1, "b": 1}, "'c' is not among"),
        (OPENINGS | {"c": Opening(1, (1,))}, "declared for"),
    ):
        wires = memory_wires()
        party = Computing(0, wires[0], fixed_streams(b"x")[0], openings=openings)
        with pytest.raises(UndeclaredOpening, match=match):
            _open_thirds(party, party.constant(X)).send(None)
        assert wires[0].links.moved == 0
        engine = Clear(openings=openings)
        with pytest.raises(UndeclaredOpening, match=match):
            _open_thirds(engine, engine.constant(X)).send(None)


@pytest.mark.parametrize("label", ["open a", "open b", "open c"])
@pytest.mark.parametrize("liar", [0, 1, 2])
def test_a_changed_summand_is_found_by_its_digest(liar: int, label: str) -> None:
    if "abc"[liar] == label[-1]:
        pytest.skip("a receiver sends nothing of its own value")
    dealt, wires, streams = deal_shares(X), memory_wires(), fixed_streams(b"openings")

    async def program(index: int) -> None:
        wire = _Adding(wires[index], label) if index == liar else wires[index]
        party = Computing(index, wire, streams[index], openings=OPENINGS)
        await _open_thirds(party, party.read_dealt(dealt[index]))

    with pytest.raises(DisagreementError, match="hold different shares of"):
        take_turns([program(index) for index in range(3)], wires[0].links)


def test_coins_are_the_same_at_all_three_and_fresh() -> None:
    async def program(party: Computing) -> list[np.ndarray]:
        return [await party.toss_coins(4) for _ in range(2)]

    run = run_three(program)
    assert run.rounds == 2
    first, second = run.results[0]
    assert len(np.unique([*first, *second])) == 8
    for found in run.results[1:]:
        assert np.array_equal(found, [first, second])


def test_no_party_draws_all_of_the_coins() -> None:
    """Each lacks one summand until it is sent: the message of a party that changes its own is found by the third."""
    wires, streams = memory_wires(), fixed_streams(b"coins")

    async def program(index: int) -> None:
        party = Computing(index, _Adding(wires[index], "coins") if index == 1 else wires[index], streams[index])
        await party.toss_coins(2)

    with pytest.raises(DisagreementError, match="send different coins"):
        take_turns([program(index) for index in range(3)], wires[0].links)


@pytest.mark.parametrize("length", [0, 1, 7, 5000])
def test_an_inner_product_is_that_of_the_clear(length: int) -> None:
    rng = np.random.default_rng(length)
    left, right = (rng.integers(0, 1 << 64, shape, dtype=np.uint64) for shape in ((1, length), (length, 1)))
    dealt = deal_shares(left), deal_shares(right)

    async def program(party: Computing) -> np.ndarray | None:
        a, b = (party.read_dealt(one[party.index]) for one in dealt)
        (found,) = await party.compute_products([Product(a, b)])
        assert isinstance(found, Share)
        return await party.open("x", found, [0])

    found = run_three(program, openings={"x": 1}).results[0]
    with np.errstate(over="ignore"):
        assert found is not None
        assert found.shape == (1, 1)
        assert found[0, 0] == (left[0] * right[:, 0]).sum(dtype=np.uint64)
