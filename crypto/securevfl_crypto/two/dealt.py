"""What two parties make of the random numbers that a helper deals (`dealing`), and how they check them.

A helper may deal wrong numbers, by mistake or on purpose. So every batch gets one use more than it needs, of which a
random combination with the others is opened and compared, and one in 64 of the angles and transfers is opened. The
parties stop before anything computed from wrong numbers is opened.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from securevfl_crypto.errors import DisagreementError, MalformedError, ReusedError
from securevfl_crypto.ring import Stream
from securevfl_crypto.two.correlations import Correlations, Linear, LinearTask, Wave, WaveBits, wave_places
from securevfl_crypto.two.curves import ANGLES, find_multiples
from securevfl_crypto.two.dealing import (
    LINEAR,
    SEED_BYTES,
    TRANSFERS,
    WAVES,
    Ask,
    Drawer,
    Request,
    multiply_matrices,
    transpose_words,
)
from securevfl_crypto.two.transfers import DealtTransfers, Transfers
from securevfl_crypto.two.wire import TwoWire, swap

__all__ = ["AskedTransfers", "DealtCorrelations", "MakeTransfers"]

MakeTransfers = Callable[[int, int, int], Awaitable[tuple[np.ndarray, np.ndarray]]]
"""Makes random transfers of a giver: so many, of so many words."""

_CHECKED = 64
"""One in so many angles and transfers is opened and compared."""

_TRANSFER_WORDS = 2
_TOGETHER = 8
"""Batches whose messages cross together."""
_AT_ONCE = 1 << 14


class DealtCorrelations(Correlations):
    """One party's side of randomness that a helper deals.

    Args:
        wire: to the other party.
        seed: from the helper, 32 bytes; known to nobody else.
        ask: gets corrections.
        checked: whether what was dealt is checked.
    """

    def __init__(self, wire: TwoWire, seed: bytes, ask: Ask, *, checked: bool = True) -> None:
        self._wire, self._ask, self._checked = wire, ask, checked
        self._drawer = Drawer(seed)
        self._hidden: dict[int, np.ndarray] = {}
        self._named: dict[int, bytes] = {}
        self._forgotten = _Keys()
        self.transfers = AskedTransfers(wire, self._make_transfers)

    async def setup(self) -> None:
        """Nothing: the seed is all that is needed."""

    async def make_linear(self, tasks: Sequence[LinearTask], uses: int) -> list[deque[Linear]]:
        found: list[deque[Linear]] = []
        for start in range(0, len(tasks), _TOGETHER):
            found += await self._make_tasks(tasks[start : start + _TOGETHER], uses)
        return found

    async def _make_tasks(self, tasks: Sequence[LinearTask], uses: int) -> list[deque[Linear]]:
        """Uses of some batches, whose messages cross together."""
        count = uses + self._checked
        dealt = [await self._ask_for(self._request(task, count)) for task in tasks]
        await self._swap_rows(tasks)
        made = [self._draw_uses(task, one, count) for task, one in zip(tasks, dealt, strict=True)]
        if self._checked:
            await self._check_linear(tasks, made)
        for one in (one for each in made for one in each):  # only what is compared takes these
            one.pop("dealt")
            one.pop("dealt_back", None)
        nothing = {"mask_back": None, "pad_back": None, "share_back": None}
        return [deque(Linear(**(nothing | one)) for one in each[:uses]) for each in made]  # type: ignore[arg-type]

    def _request(self, task: LinearTask, count: int) -> Request:
        columns = task.columns(self._wire.me)
        return Request(LINEAR, (task.key, len(task.rows), *columns, task.outputs, count, int(task.backward)))

    def _draw_uses(self, task: LinearTask, dealt: list[np.ndarray], count: int) -> list[dict[str, np.ndarray]]:
        """This party's part of each use, in the order in which the helper draws."""
        me, rows, width = self._wire.me, len(task.rows), task.outputs * count
        hidden, parts = self._hidden[task.key], {}
        for holder in (0, 1):
            here = task.columns(me)[holder]
            if holder == me:
                parts["mask"] = self._drawer.draw_words(rows, width)
                if task.backward:
                    parts["mask_back"] = self._drawer.draw_words(here, width)
            else:
                parts["pad"] = self._drawer.draw_words(here, width)
                parts["dealt"] = dealt[0]
                parts["share"] = dealt[0] + multiply_matrices(hidden, parts["pad"])
                if task.backward:
                    parts["pad_back"] = self._drawer.draw_words(rows, width)
                    parts["dealt_back"] = dealt[1]
                    parts["share_back"] = dealt[1] + multiply_matrices(transpose_words(hidden), parts["pad_back"])
        k = task.outputs
        return [
            {name: np.ascontiguousarray(part[:, i * k : (i + 1) * k]) for name, part in parts.items()}
            for i in range(count)
        ]

    async def _swap_rows(self, tasks: Sequence[LinearTask]) -> None:
        """The other party's rows, masked: sent once for each key."""
        for task in tasks:
            digest = _digest(task.rows.astype(np.int64)).tobytes()
            if self._forgotten.holds(task.key) or self._named.setdefault(task.key, digest) != digest:
                raise ReusedError(
                    f"rows number {task.key} were other rows before: under one mask, both would show their difference; "
                    "nothing was sent"
                )
        fresh = {task.key: task for task in tasks if task.key not in self._hidden}
        for task in fresh.values():
            own = task.rows.astype(np.int64).view(np.uint64)
            await self._wire.send("ahead rows", [own - self._drawer.mask_rows(task.key, *own.shape)])
        for task in fresh.values():
            expect = [(np.uint64, (len(task.rows), task.other))]
            (self._hidden[task.key],) = await self._wire.receive("ahead rows", expect)

    def forget_rows(self, key: int) -> None:
        """See `Correlations.forget_rows`."""
        if self._hidden.pop(key, None) is not None:
            self._named.pop(key)
            self._forgotten.add(key)

    async def _check_linear(self, tasks: Sequence[LinearTask], made: Sequence[list[dict[str, np.ndarray]]]) -> None:
        """Compare a random combination of all uses of a batch; the last use is spent on it.

        The owner of the pads opens their combination, which the spent pad hides, and a digest of what it was dealt for
        them; the holder of the rows computes that from its mask and its summands. Not from its rows: an owner that
        opened another pad could guess what they make of the change, and see by the outcome whether it was right.

        Raises:
            DisagreementError: the helper dealt wrong numbers.
        """
        for task, each in zip(tasks, made, strict=True):
            seed = np.frombuffer(secrets.token_bytes(SEED_BYTES), np.uint8)
            own = _combine(each, seed, ["pad", "dealt", *(["pad_back", "dealt_back"] if task.backward else [])])
            sent = [seed, own["pad"], _digest(own["dealt"])]
            if task.backward:
                sent += [own["pad_back"], _digest(own["dealt_back"])]
            await self._wire.send("ahead check", sent)
        for task, each in zip(tasks, made, strict=True):
            expect: list[tuple[type[np.generic], tuple[int, ...]]] = [
                (np.uint8, (SEED_BYTES,)),
                (np.uint64, (task.rows.shape[1], task.outputs)),
                (np.uint8, (SEED_BYTES,)),
            ]
            if task.backward:
                expect += [(np.uint64, (len(task.rows), task.outputs)), (np.uint8, (SEED_BYTES,))]
            self._compare_products(task, each, await self._wire.receive("ahead check", expect))

    def _compare_products(self, task: LinearTask, each: list[dict[str, np.ndarray]], got: list[np.ndarray]) -> None:
        mine = _combine(each, got[0], ["mask", *(["mask_back"] if task.backward else [])])
        hider = self._drawer.mask_rows(task.key, *task.rows.shape)
        right = [
            hmac.compare_digest(_digest(multiply_matrices(hider, got[1]) - mine["mask"]).tobytes(), got[2].tobytes())
        ]
        if task.backward:
            found = _digest(multiply_matrices(transpose_words(hider), got[3]) - mine["mask_back"])
            right.append(hmac.compare_digest(found.tobytes(), got[4].tobytes()))
        if not all(right):
            raise _wrong(f"of the products of party {1 - self._wire.me}")

    async def make_waves(self, count: int, bits: WaveBits) -> Wave:
        spare = -(-count // _CHECKED) if self._checked else 0
        total = count + spare
        request = Request(WAVES, (total, *(value for pair in bits for value in pair)))
        dealt = await self._ask_for(request)
        angles = self._drawer.draw_angles(total)
        shares = self._drawer.draw_words(2, len(bits), total) if self._wire.me == 0 else dealt[0]
        if spare:
            spent, kept = await self._choose_spent(total, spare)
            await self._check_waves(angles[spent], np.ascontiguousarray(shares[:, :, spent]), bits)
            angles, shares = angles[kept], shares[:, :, kept]
        return Wave(angles, shares[0], shares[1])

    async def _choose_spent(self, total: int, spare: int) -> tuple[np.ndarray, np.ndarray]:
        """Places that are opened, and those that are kept: party 0 draws them, once all is dealt."""
        if self._wire.me == 0:
            spent = np.sort(np.array(secrets.SystemRandom().sample(range(total), spare), dtype=np.int64))
            await self._wire.send("ahead places", [spent])
        else:
            (spent,) = await self._wire.receive("ahead places", [(np.int64, (spare,))])
            if len(np.unique(spent)) != spare or spent.min() < 0 or spent.max() >= total:
                raise MalformedError("the other party chose places to check that do not exist")
        kept = np.ones(total, bool)
        kept[spent] = False
        return spent, np.flatnonzero(kept)

    async def _check_waves(self, angles: np.ndarray, shares: np.ndarray, bits: WaveBits) -> None:
        theirs, other = await swap(self._wire, "ahead spent", [angles, shares])
        whole = (angles + theirs) % ANGLES
        if not np.array_equal(shares + other, find_multiples(whole, wave_places(bits)).view(np.uint64)):
            raise _wrong("of sines")

    async def _make_transfers(self, giver: int, count: int, words: int) -> tuple[np.ndarray, np.ndarray]:
        """Random transfers: both pads at the giver, (2, count, words); choices and chosen pads at the other party."""
        spare = -(-count // _CHECKED) if self._checked else 0
        total = count + spare
        dealt = await self._ask_for(Request(TRANSFERS, (giver, total, words)))
        gives = self._wire.me == giver
        if gives:
            pads = self._drawer.draw_words(2, total, words)
            first, second = pads[0], pads[1]
        else:
            choices = self._drawer.draw_choices(total)
            first, second = choices, dealt[0]
        if not spare:
            return first, second
        spent, kept = await self._choose_spent(total, spare)
        if gives:
            await self._wire.send("ahead spent", [first[spent], second[spent]])
        else:
            zero, one = await self._wire.receive("ahead spent", [(np.uint64, (spare, words))] * 2)
            wanted = np.where(first[spent, None] == 1, one, zero)
            if not np.array_equal(wanted, second[spent]):
                raise _wrong("of transfers")
        return np.ascontiguousarray(first[kept]), np.ascontiguousarray(second[kept])

    async def _ask_for(self, request: Request) -> list[np.ndarray]:
        request.check()
        dealt = await self._ask(request)
        shapes = request.shapes(self._wire.me)
        if [(one.dtype, one.shape) for one in dealt] != [(np.dtype(np.uint64), shape) for shape in shapes]:
            raise MalformedError(f"the helper dealt arrays of other shapes than {shapes}")
        return dealt


class _Keys:
    """A set of whole numbers that are mostly added in order: ranges, so that a server's questions take no memory."""

    def __init__(self) -> None:
        self._ranges: list[range] = []

    def add(self, key: int) -> None:
        if self._ranges and self._ranges[-1].stop == key:
            self._ranges[-1] = range(self._ranges[-1].start, key + 1)
        else:
            self._ranges.append(range(key, key + 1))

    def holds(self, key: int) -> bool:
        return any(key in one for one in self._ranges)


class AskedTransfers(Transfers):
    """Transfers that the helper deals when they run out, some thousands at a time.

    Args:
        wire: to the other party.
        make: makes random transfers of a giver: so many, of so many words.
    """

    def __init__(self, wire: TwoWire, make: MakeTransfers) -> None:
        self._me, self._make = wire.me, make
        self._dealt = DealtTransfers(wire, _TRANSFER_WORDS)

    async def reserve(self, give: int, choose: int) -> None:
        """See `Transfers.reserve`: asks the helper for one direction after the other, the same first at both."""
        missing = {self._me: give - self._dealt.left[0], 1 - self._me: choose - self._dealt.left[1]}
        for giver in (0, 1):
            if missing[giver] > 0:
                made = await self._make(giver, max(missing[giver], _AT_ONCE), _TRANSFER_WORDS)
                (self._dealt.add_given if giver == self._me else self._dealt.add_chosen)(*made)

    async def give(self, count: int, words: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """See `Transfers.give`."""
        await self.reserve(count, 0)
        return await self._dealt.give(count, words)

    async def choose(self, choices: np.ndarray, words: int = 1) -> np.ndarray:
        """See `Transfers.choose`."""
        await self.reserve(0, len(choices))
        return await self._dealt.choose(choices, words)


def _combine(each: list[dict[str, np.ndarray]], seed: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The last use, plus random multiples of all others: even ones, too, or two errors of 2^63 would always cancel."""
    factors = Stream(seed.tobytes()).draw_words(0, (len(each),))
    factors[-1] = 1
    return {name: sum((one[name] * factor for one, factor in zip(each, factors, strict=True))) for name in names}


def _digest(words: np.ndarray) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(words).tobytes()).digest(), np.uint8)


def _wrong(what: str) -> DisagreementError:
    return DisagreementError(
        f"the helper dealt wrong numbers ({what}); nothing that depends on them was opened: take another helper, or "
        "none"
    )
