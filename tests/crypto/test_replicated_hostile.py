"""Openings that were not declared, shares that differ, malformed messages: refused before anything is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from securevfl_crypto.errors import CryptoError, DisagreementError, MalformedError, UndeclaredOpening
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
from securevfl_crypto.replicated.keys import Streams, fixed_streams

X = np.arange(6, dtype=np.uint64).reshape(2, 3)
Change = Callable[[list[np.ndarray]], list[np.ndarray]]


class Changing:
    """A wire whose holder changes one of the messages that it sends."""

    def __init__(self, wire: MemoryWire, label: str, change: Change, rename: str = "") -> None:
        self.wire, self.label, self.change, self.rename = wire, label, change, rename
        self.sent: list[str] = []

    async def send(self, to: int, label: str, arrays: Sequence[np.ndarray]) -> None:
        self.sent.append(label)
        if label == self.label:
            await self.wire.send(to, self.rename or label, self.change(list(arrays)))
        else:
            await self.wire.send(to, label, arrays)

    async def receive(self, source: int, label: str, expect: Expected) -> list[np.ndarray]:
        return await self.wire.receive(source, label, expect)


def attacked(liar: int, label: str, change: Change, rename: str = "") -> list[str]:
    """One layer and an opening, where one party changes a message; the labels that the parties sent."""
    dealt = deal_shares(X << np.uint64(16))
    wires = memory_wires()
    ends = [Changing(wire, label if i == liar else "", change, rename) for i, wire in enumerate(wires)]
    streams = fixed_streams(b"hostile")

    async def program(index: int) -> None:
        party = Computing(index, ends[index], streams[index], openings={"sum": 1})
        x = party.read_dealt(dealt[index])
        await party.confirm("input", x)
        ((relu, _),) = await party.compute_products([Product(x, x.T, shift=16, then="relu")])
        (fresh,) = await party.refresh(relu)
        await party.open("sum", fresh.sum(), (0,))

    try:
        take_turns([program(index) for index in range(3)], wires[0].links)
    finally:
        sent = [text for end in ends for text in end.sent]
    return sent


def test_nothing_is_wrong_without_a_change() -> None:
    assert "open sum" in attacked(0, "", list)


MESSAGES = [
    (0, "opening"), (1, "opening"), (2, "opening"), (0, "rows"), (1, "rows"), (2, "answers"), (0, "result"),
    (1, "reshare"), (0, "confirm input"), (1, "open sum"), (2, "open sum"),
]  # fmt: skip
CHANGES: dict[str, Change] = {
    "another type": lambda a: [*a[:-1], a[-1].astype(np.int16)],
    "another ring": lambda a: [*a[:-1], a[-1].astype(np.uint32)],
    "another shape": lambda a: [*a[:-1], a[-1].reshape(1, *a[-1].shape)],
    "one value less": lambda a: [*a[:-1], a[-1].reshape(-1)[:-1]],
    "one array less": lambda a: a[:-1],
    "one array more": lambda a: [*a, a[-1]],
    "no array": lambda a: [*a[:-1], a[-1].tolist()],  # type: ignore[list-item]
    "a short header": lambda a: [a[0][:1], *a[1:]],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("liar", "label"), MESSAGES)
def test_malformed_messages_are_refused(liar: int, label: str, change: str) -> None:
    with pytest.raises(MalformedError, match=f"party {liar} sent"):
        attacked(liar, label, CHANGES[change])


@pytest.mark.parametrize(("liar", "label"), MESSAGES)
def test_other_labels_are_refused(liar: int, label: str) -> None:
    with pytest.raises(MalformedError, match="the parties run different steps"):
        attacked(liar, label, list, "another")


@pytest.mark.parametrize(("liar", "label"), MESSAGES)
@pytest.mark.parametrize("place", [1, 2])
def test_other_counters_are_refused(liar: int, label: str, place: int) -> None:
    def change(arrays: list[np.ndarray]) -> list[np.ndarray]:
        header = arrays[0].copy()
        header[place] += np.uint64(1)
        return [header, *arrays[1:]]

    with pytest.raises(DisagreementError, match="skipped or repeated a step"):
        attacked(liar, label, change)


def test_numbers_beyond_the_modulus_are_refused() -> None:
    with pytest.raises(MalformedError, match="expected numbers below 67"):
        attacked(0, "rows", lambda a: [a[0], a[1] | np.uint8(128)])


@pytest.mark.parametrize("wrong", [67, 255])
def test_shares_of_bits_beyond_the_modulus_are_refused(wrong: int) -> None:
    """Else the rows that party 1 masks with them would not be uniform: they would show party 2 something of them."""

    def change(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [np.full_like(one, wrong) if one.dtype == np.uint8 else one for one in arrays]

    with pytest.raises(MalformedError, match=f"shares of bits contain {wrong}; expected numbers below 67"):
        attacked(2, "opening", change)


def test_a_digest_that_differs_is_told_with_the_pair() -> None:
    def change(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [arrays[0], arrays[1] ^ np.uint8(1)]

    with pytest.raises(DisagreementError, match=r"parties 0 and [12] hold different"):
        attacked(0, "confirm input", change)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("part", ["mine", "next"])
def test_dealt_shares_that_are_no_sharing_are_refused(index: int, part: str) -> None:
    """A data party gives two holders different summands."""
    dealt = deal_shares(X)
    opened: list[int] = []

    async def program(party: Computing) -> None:
        share = party.read_dealt(dealt[party.index])
        if party.index == index:
            wrong = getattr(share, part) + np.uint64(1)
            share = Share(wrong, share.next) if part == "mine" else Share(share.mine, wrong)
        await party.confirm("input of shop", share)
        opened.append(party.index)

    other = (index + (1 if part == "next" else -1)) % 3
    low, high = sorted((index, other))
    with pytest.raises(DisagreementError, match=f"parties {low} and {high} hold different summands at 'input of shop'"):
        run_three(program)
    assert len(opened) < 3


@pytest.mark.parametrize("liar", [1, 2])
def test_an_opening_of_different_summands_is_refused(liar: int) -> None:
    def change(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return [arrays[0], np.asarray(arrays[1] + arrays[1].dtype.type(1))]

    with pytest.raises(DisagreementError, match="parties 1 and 2 hold different shares of 'sum'; nothing was opened"):
        attacked(liar, "open sum", change)


async def opens(party: Computing | Clear, name: str, times: int, to: Sequence[int] = (0,), size: int = 1) -> None:
    for _ in range(times):
        await party.open(name, party.constant(np.zeros(size, np.uint64)), to)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_every_party_refuses_what_was_not_declared_and_sends_nothing(index: int) -> None:
    """Each is alone honest: the call ends before a message goes out."""
    declared = {"auc": Opening(2, to=(0,), values=3), "loss": 1}
    for arguments, message in (
        (("weights", 1), "'weights' is not among the declared openings .auc, loss."),
        (("auc", 1, (1,)), "was declared for"),
        (("auc", 1, (0, 2)), "was declared for"),
        (("auc", 1, (0,), 4), "3 values at most, this one has 4"),
    ):
        links = memory_wires()
        party = Computing(index, links[index], fixed_streams(b"x")[index], openings=declared)
        with pytest.raises(UndeclaredOpening, match=message):
            opens(party, *arguments).send(None)
        assert links[0].links.moved == party.sent == 0
        with pytest.raises(UndeclaredOpening, match=message):
            opens(Clear(openings=declared), *arguments).send(None)


def test_an_opening_more_often_than_declared_is_refused_also_after_a_restart() -> None:
    async def program(party: Computing) -> dict[str, int | Opening]:
        await opens(party, "auc", 2)
        return party.openings_left

    left = run_three(program, openings={"auc": 3}).results
    assert [found["auc"] for found in left] == [Opening(1)] * 3
    with pytest.raises(UndeclaredOpening, match="declared to be opened 1 times"):
        run_three(program, openings=left[0])
    with pytest.raises(UndeclaredOpening):
        run_three(program, openings={"auc": 1})
    with pytest.raises(UndeclaredOpening, match="none"):
        run_three(program)


def test_openings_of_stages_are_not_saved_up() -> None:
    """Three in all, one in each stage that names it: none before the first, none twice, none in a stage without it."""
    for engine in (run_three(_itself, openings=_STAGES).results[0], Clear(openings=_STAGES)):
        refused = pytest.raises(UndeclaredOpening, match="1 times in each stage that allows it, and this one")
        for names, passes in (((), 0), (("auc",), 1), ((), 0), (("auc",), 1)):
            engine.begin_stage(*names)
            for _ in range(passes):
                engine._openings.count_opening("auc", engine.constant(X[0]), (0,))
            with refused:
                engine._openings.count_opening("auc", engine.constant(X[0]), (0,))
        with pytest.raises(MalformedError, match="'loss', which is not declared as an opening by stages"):
            engine.begin_stage("loss")


async def _itself(party: Computing) -> Computing:
    return party


_STAGES = {"auc": Opening(3, each=1), "loss": Opening(1)}


def test_an_opening_has_so_many_values_in_all() -> None:
    async def program(party: Computing) -> dict[str, int | Opening]:
        for rows in (2, 1):
            await party.open("scores", party.constant(X[:rows]), to=(0,))
        return party.openings_left

    left = run_three(program, openings={"scores": Opening(3, values=6, total=10)}).results
    assert left[0]["scores"] == Opening(1, values=6, total=1)
    with pytest.raises(UndeclaredOpening, match=r"8 values in all, 6 were opened and this one has 3; nothing was sent"):
        run_three(program, openings={"scores": Opening(3, values=6, total=8)})
    with pytest.raises(MalformedError, match="a count must not be negative"):
        Opening(1, total=-1)


def test_receivers_are_named() -> None:
    for to in ((), (3,), (-1,)):
        with pytest.raises(MalformedError, match="expected one or more of 0, 1 and 2"):
            opens(Clear(openings={"auc": 1}), "auc", 1, to).send(None)
    with pytest.raises(MalformedError, match="must not be negative"):
        Opening(-1)


def test_parties_at_other_calls_are_told() -> None:
    dealt = deal_shares(X)

    async def program(party: Computing) -> None:
        x = party.read_dealt(dealt[party.index])
        if party.index == 1:
            await party.refresh(x)
        await party.multiply(x, x, shift=3)

    with pytest.raises(CryptoError):
        run_three(program)

    async def skips(party: Computing) -> None:
        if party.index:
            await party.multiply(party.read_dealt(dealt[party.index]), party.read_dealt(dealt[party.index]))

    with pytest.raises(CryptoError, match="none has sent"):
        run_three(skips)


def test_streams_of_another_party_are_refused() -> None:
    with pytest.raises(MalformedError, match="streams of party 1 at party 0"):
        Computing(0, memory_wires()[0], fixed_streams(b"x")[1])
    stream = fixed_streams(b"x")[0]._streams[0]
    with pytest.raises(MalformedError, match="expected 0, 1 or 2"):
        Streams(3, stream, stream, stream)
