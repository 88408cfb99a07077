"""Random numbers dealt by a helper: wrong ones are found, and the check that finds them says nothing of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from securevfl_crypto.errors import CryptoError, DisagreementError, MalformedError
from securevfl_crypto.two.correlations import Linear, LinearTask
from securevfl_crypto.two.dealing import LINEAR, TRANSFERS, WAVES, Dealer, MemoryHelper, Request
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.wire import Expected, MemoryEnd, MemoryWires

TOP = np.uint64(1 << 63)
ROWS = [np.array([[1024, 0], [0, 1024], [1024, 1024]], np.int64), np.array([[0, 1], [1024, 2], [5, 7]], np.int64)]

SUMMANDS = ("share", "share_back", "dealt", "dealt_back")

Spoil = Callable[[list[np.ndarray]], None]


class WrongDealer(Dealer):
    """Deals wrong numbers to party 0.

    Args:
        kind: of request that is spoilt.
        spoil: changes what party 0 gets.
    """

    def __init__(self, kind: int, spoil: Spoil) -> None:
        super().__init__()
        self._kind, self._spoil = kind, spoil

    def deal(self, request: Request) -> tuple[list[np.ndarray], list[np.ndarray]]:
        one, other = super().deal(request)
        if request.kind == self._kind:
            one, other = ([part.copy() for part in parts] for parts in (one, other))
            self._spoil(one or other)
        return one, other


def deal_batch(dealer: Dealer | None = None, uses: int = 3, keys: tuple[int, ...] = (4,)) -> list[list[Linear]]:
    """Uses of one batch at both parties."""
    wires, helper = MemoryWires(), MemoryHelper(dealer)

    async def take_part(wire: MemoryEnd) -> list[Linear]:
        source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        tasks = [LinearTask(key, ROWS[wire.me], 2, 1, backward=True) for key in keys]
        return [use for made in await source.make_linear(tasks, uses) for use in made]

    one, other = wires.pair()
    return list(wires.run(take_part(one), take_part(other)))


def test_what_is_dealt_is_products() -> None:
    one, other = deal_batch()
    for mine, theirs in ((one, other), (other, one)):
        rows = ROWS[0 if mine is one else 1].view(np.uint64)
        for holder, owner in zip(mine, theirs, strict=True):
            assert holder.mask_back is not None
            assert owner.share_back is not None
            assert owner.pad_back is not None
            np.testing.assert_array_equal(holder.mask + owner.share, rows @ owner.pad)
            np.testing.assert_array_equal(holder.mask_back + owner.share_back, rows.T @ owner.pad_back)


@pytest.mark.parametrize("place", [0, 1], ids=["forward", "backward"])
def test_one_wrong_product_is_found(place: int) -> None:
    def spoil(dealt: list[np.ndarray]) -> None:
        dealt[place][0, 1] += np.uint64(1)

    with pytest.raises(DisagreementError, match="dealt wrong numbers"):
        deal_batch(WrongDealer(LINEAR, spoil))


@pytest.mark.parametrize("place", [0, 1], ids=["forward", "backward"])
def test_errors_of_top_bits_do_not_cancel_in_every_combination(place: int) -> None:
    """Whatever odd numbers two errors of 2^63 are multiplied with, their sum is zero."""

    def spoil(dealt: list[np.ndarray]) -> None:
        dealt[place][0, [1, -1]] += TOP

    def is_found() -> bool:
        try:
            deal_batch(WrongDealer(LINEAR, spoil))
        except DisagreementError:
            return True
        return False

    assert sum(is_found() for _ in range(40)) >= 5  # half of them are; fewer than 5 by chance once in 10^7


@pytest.mark.parametrize(("kind", "arrays"), [(WAVES, 1), (TRANSFERS, 1)])
def test_wrong_waves_and_transfers_are_found(kind: int, arrays: int) -> None:
    def spoil(dealt: list[np.ndarray]) -> None:
        assert len(dealt) == arrays
        dealt[0] += np.uint64(1)

    wires, helper = MemoryWires(), MemoryHelper(WrongDealer(kind, spoil))

    async def take_part(wire: MemoryEnd) -> None:
        source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        if kind == WAVES:
            await source.make_waves(10, ((6, 6),) * 8)
        elif wire.me == 0:
            await source.transfers.give(10)
        else:
            await source.transfers.choose(np.ones(10, np.uint8))

    one, other = wires.pair()
    with pytest.raises(DisagreementError, match="dealt wrong numbers"):
        wires.run(take_part(one), take_part(other))


class GuessingWire:
    """Party 1's end, at which it deviates: it opens a pad that differs by a unit vector, and the digest that is right
    if its guess of party 0's rows is.

    Args:
        end: the honest end.
        change: of the opened pad, (2, 1).
        guess: of party 0's rows times that, (3, 1).
        backward: whether the change is of the gradient's pad, (3, 1), and the guess of the rows' transpose times it.
    """

    def __init__(self, end: MemoryEnd, change: np.ndarray, guess: np.ndarray, *, backward: bool) -> None:
        self.me, self._end = end.me, end
        self._change, self._guess, self._place = change, guess, 3 if backward else 1
        self.combined: list[np.ndarray] = []

    async def send(self, label: str, arrays: Sequence[np.ndarray]) -> None:
        if label == "ahead check":
            arrays = list(arrays)
            arrays[self._place] = arrays[self._place] + self._change
            digest = hashlib.sha256(np.ascontiguousarray(self.combined[self._place // 2] + self._guess).tobytes())
            arrays[self._place + 1] = np.frombuffer(digest.digest(), np.uint8)
        await self._end.send(label, arrays)

    async def receive(self, label: str, expect: Expected) -> list[np.ndarray]:
        return await self._end.receive(label, expect)


@pytest.mark.parametrize("backward", [False, True])
def test_a_party_cannot_ask_for_rows_by_what_it_lets_be_checked(
    monkeypatch: pytest.MonkeyPatch, backward: bool
) -> None:
    """A right guess must not pass where a wrong one fails: it is refused like any."""
    from securevfl_crypto.two import dealt

    rows = ROWS[0].view(np.uint64)
    change = np.zeros((3 if backward else 2, 1), np.uint64)
    change[0] = 1
    right = (rows.T if backward else rows) @ change
    refused = []
    for guess in (right, right + np.uint64(1)):
        wires, helper, digest = MemoryWires(), MemoryHelper(), dealt._digest
        one, other = wires.pair()
        guesser = GuessingWire(other, change, guess, backward=backward)

        async def honest(wire: MemoryEnd = one, helper: MemoryHelper = helper) -> None:
            source = DealtCorrelations(wire, helper.dealer.seeds[0], helper.ask_as(0))
            await source.make_linear([LinearTask(4, ROWS[0], 2, 1, backward=True)], 2)

        async def deviating(wire: GuessingWire = guesser, helper: MemoryHelper = helper) -> None:
            source = DealtCorrelations(wire, helper.dealer.seeds[1], helper.ask_as(1))
            kept = dealt._combine

            def combine(each: list[dict[str, np.ndarray]], seed: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
                found = kept(each, seed, names)
                if "pad" in names:
                    wire.combined = [found[name] for name in names if name in SUMMANDS]
                return found

            monkeypatch.setattr(dealt, "_combine", combine)
            try:
                await source.make_linear([LinearTask(4, ROWS[1], 2, 1, backward=True)], 2)
            finally:
                monkeypatch.setattr(dealt, "_combine", kept)

        monkeypatch.setattr(dealt, "_digest", digest)
        try:
            wires.run(honest(), deviating())
            refused.append(False)
        except DisagreementError:
            refused.append(True)
    assert refused == [True, True]


def test_two_lots_of_a_batch_send_its_rows_once() -> None:
    one, other = deal_batch(keys=(4, 4))
    assert len(one) == len(other) == 6


def test_a_key_never_means_other_rows() -> None:
    """The mask of a key is the same whenever it is drawn: under one key, two batches would show their difference."""
    wires, helper = MemoryWires(), MemoryHelper()

    async def take_part(wire: MemoryEnd) -> None:
        source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        for moved in (0, 1):
            await source.make_linear([LinearTask(4, ROWS[wire.me] + moved, 2, 1, backward=False)], 1)
            source.forget_rows(4)

    one, other = wires.pair()
    with pytest.raises(CryptoError, match="other rows"):
        wires.run(take_part(one), take_part(other))


@pytest.mark.parametrize("sizes", [(0, 3, 2, 2, 1, 1, 1), (1 << 63, 3, 2, 2, 1, 1, 1)])
def test_requests_of_any_key_are_packed_or_refused(sizes: tuple[int, ...]) -> None:
    request = Request(LINEAR, sizes)
    if sizes[0] < 1 << 63:
        assert Request.unpack(request.pack()) == request
    else:
        with pytest.raises((MalformedError, OverflowError)):
            request.pack()


def test_opened_angles_are_not_used() -> None:
    """Whoever received an opened angle would know the mask of a value."""
    wires, helper = MemoryWires(record=True), MemoryHelper()

    async def take_part(wire: MemoryEnd) -> np.ndarray:
        source = DealtCorrelations(wire, helper.dealer.seeds[wire.me], helper.ask_as(wire.me))
        return (await source.make_waves(640, ((6, 6),) * 8)).angles

    one, other = wires.pair()
    used = wires.run(take_part(one), take_part(other))
    opened = [message for message in wires.record if message.label == "ahead spent"]
    assert len(opened) == 2
    for message in opened:
        assert len(message.arrays[0]) == 10
        assert not np.isin(message.arrays[0], used[message.sender]).any()
