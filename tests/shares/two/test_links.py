"""The messages of two computing parties and of a helper over links: declared, checked, the helper's free of data."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from securevfl_crypto.two.dealing import LINEAR, TRANSFERS, WAVES, Request
from securevfl_crypto.two.dealt import DealtCorrelations

from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.shares.two.dealt_lots import HelperLink, LotDealer
from securevfl.shares.two.exchanges import DEALT, LOT, STEP, two_exchanges
from securevfl.shares.two.wire import LinkTwoWire
from securevfl.testing import link_in_memory
from securevfl.transport import Kind

WORDS = np.arange(6, dtype=np.uint64).reshape(2, 3)


def _linked(*, helper: bool = False, window: int = 1 << 25) -> dict[str, PartyContext]:
    declared = two_exchanges(1, helper=helper)
    return link_in_memory(passive=("p",), coordinator="h" if helper else "", declared=declared, window=window)


async def _sent(label: str, arrays: list[np.ndarray], taken: str, expect: list[tuple[object, tuple[int, ...]]]) -> None:
    world = _linked()
    one, other = LinkTwoWire(world["a"], "p"), LinkTwoWire(world["p"], "a")
    assert (one.me, other.me) == (0, 1)
    await one.send(label, arrays)
    found = await other.receive(taken, expect)  # type: ignore[arg-type]
    for got, was in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(got, was)


def test_arrays_arrive_and_are_counted_and_written_down() -> None:
    async def run() -> None:
        world = _linked()
        one, other = LinkTwoWire(world["a"], "p"), LinkTwoWire(world["p"], "a")
        await one.send("step angles", [WORDS, WORDS[0]])
        first, second = await other.receive("step angles", [(np.uint64, (2, 3)), (np.uint64, (3,))])
        np.testing.assert_array_equal(first, WORDS)
        np.testing.assert_array_equal(second, WORDS[0])
        assert (one.messages, one.sent) == (1, 72)
        (entry,) = [e for e in world["p"].ledger.iter_entries() if e.way == "received"]
        assert (entry.what, entry.kind, entry.cipher) == (STEP, Kind.SHARE, "masked")

    asyncio.run(run())


def test_both_may_send_more_than_a_channel_holds() -> None:
    async def take_part(wire: LinkTwoWire) -> list[int]:
        for number in range(5):
            await wire.send("ahead columns", [np.full(4, number, np.uint64)])
        found = [(await wire.receive("ahead columns", [(np.uint64, (4,))]))[0][0] for _ in range(5)]
        await wire.flush()
        return [int(one) for one in found]

    async def run() -> list[list[int]]:
        world = _linked(window=1)
        ends = LinkTwoWire(world["a"], "p"), LinkTwoWire(world["p"], "a")
        return await asyncio.gather(*map(take_part, ends))

    assert asyncio.run(asyncio.wait_for(run(), 10)) == [[0, 1, 2, 3, 4]] * 2


def test_what_cannot_be_sent_ends_the_wait_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that waits for room, and then is refused, is never answered."""

    async def run() -> None:
        world = _linked(window=1)
        wire = LinkTwoWire(world["a"], "p")
        await wire.send("ahead columns", [WORDS])
        await wire.send("ahead columns", [WORDS])  # waits until the first is received

        async def refuse(*given: object, **named: object) -> None:
            raise OSError("the ledger's disk is full")

        monkeypatch.setattr(Link, "send", refuse)
        with pytest.raises(OSError, match="disk is full"):
            await wire.receive("ahead columns", [(np.uint64, (2, 3))])

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize(
    ("label", "taken", "expect", "words"),
    [
        ("step angles", "step errors", [(np.uint64, (2, 3))], "do not count alike"),
        ("step angles", "step angles", [(np.uint64, (3, 2))], r"\(3, 2\) was expected"),
        ("step angles", "step angles", [(np.uint8, (2, 3))], "uint8"),
        ("step angles", "step angles", [(np.uint64, (2, 3))] * 2, "with arrays"),
        ("ahead rows", "step angles", [(np.uint64, (2, 3))], "expected secret share"),
        ("open metrics", "open metrics", [(np.uint64, (2, 3))], r"declares|undeclared|not declared"),
    ],
)
def test_other_messages_are_refused(
    label: str, taken: str, expect: list[tuple[object, tuple[int, ...]]], words: str
) -> None:
    with pytest.raises(ProtocolError, match=words):  # metrics are opened to the active party alone
        asyncio.run(_sent(label, [WORDS], taken, expect))


@pytest.mark.parametrize("label", ["open weights", "weights", "opened range"])
def test_openings_that_nobody_declared_are_not_sent(label: str) -> None:
    with pytest.raises(ProtocolError, match="nothing was sent"):
        asyncio.run(_sent(label, [WORDS], label, []))


async def _deal(requests: list[Request], *, other: list[Request] | None = None) -> dict[str, PartyContext]:
    world = _linked(helper=True)

    async def ask(name: str, wanted: list[Request]) -> list[list[np.ndarray]]:
        link = HelperLink(world[name])
        await link.receive_seed()
        found = [await link.ask(request) for request in wanted]
        await link.pause()
        return found

    async def deal() -> None:
        dealer = LotDealer(world["h"])
        await dealer.send_seeds()
        await dealer.deal_until_pause()

    async with asyncio.TaskGroup() as group:
        group.create_task(deal())
        group.create_task(ask("a", requests))
        group.create_task(ask("p", other or requests))
    return world


def test_a_helper_receives_sizes_and_nothing_else() -> None:
    requests = [
        Request(LINEAR, (0, 8, 3, 2, 1, 4, 1)),
        Request(TRANSFERS, (0, 16, 1)),
        Request(TRANSFERS, (1, 16, 2)),
    ]
    world = asyncio.run(_deal(requests))
    received = [e for e in world["h"].ledger.iter_entries() if e.way == "received"]
    assert {(e.what, e.kind) for e in received} == {(LOT, Kind.CONTROL)}
    assert {e.peer for e in received} == {"a"}
    sent = [e for e in world["h"].ledger.iter_entries() if e.way == "sent"]
    assert {(e.what, e.kind) for e in sent} == {(DEALT, Kind.SHARE)}
    assert len(sent) == 2 * (1 + len(requests))


def _causes(caught: pytest.ExceptionInfo[BaseException]) -> str:
    error = caught.value
    return " ".join(map(str, error.exceptions)) if isinstance(error, BaseExceptionGroup) else str(error)


@pytest.mark.parametrize(
    ("do", "sizes"),
    [
        ("request", [9, 1, 2]),
        ("request", [LINEAR, 0, 8, 3]),
        ("request", [LINEAR, 0, 1 << 20, 1 << 20, 3, 1, 8, 1]),
        ("request", [WAVES, -1]),
        ("request", [TRANSFERS, 2, 16, 1]),
        ("request", []),
        ("read", [TRANSFERS, 0, 16, 1]),
    ],
)
def test_a_helper_refuses_what_no_honest_party_asks_for(do: str, sizes: list[int]) -> None:
    async def run() -> None:
        world = _linked(helper=True)
        asked = np.array(sizes, np.int64)
        await world["a"].links["h"].send(Kind.CONTROL, LOT, meta={"do": do}, sizes=asked)
        await LotDealer(world["h"]).deal_until_pause()

    with pytest.raises(ProtocolError, match=r"asks for no possible lot|unknown request"):
        asyncio.run(run())


def test_a_passive_party_refuses_a_lot_that_it_did_not_need() -> None:
    one, other = Request(TRANSFERS, (0, 16, 1)), Request(TRANSFERS, (0, 32, 1))
    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(_deal([one], other=[other]))
    assert "the active party asked for another" in _causes(caught)


def test_correlations_are_dealt_over_links() -> None:
    async def run() -> tuple[np.ndarray, np.ndarray]:
        world = _linked(helper=True)

        async def take(name: str) -> np.ndarray:
            link, wire = HelperLink(world[name]), LinkTwoWire(world[name], "p" if name == "a" else "a")
            source = DealtCorrelations(wire, await link.receive_seed(), link.ask)
            wave = await source.make_waves(5, ((6, 6),) * 8)
            await link.pause()
            return wave.sines

        async def deal() -> None:
            dealer = LotDealer(world["h"])
            await dealer.send_seeds()
            await dealer.deal_until_pause()

        async with asyncio.TaskGroup() as group:
            group.create_task(deal())
            one, other = group.create_task(take("a")), group.create_task(take("p"))
        return one.result(), other.result()

    one, other = asyncio.run(run())
    assert one.shape == other.shape == (8, 5)
    assert (np.abs((one + other).view(np.int64)) <= 1 << 12).all()
