"""Random oblivious transfers between two parties, in both directions, from two sources.

A transfer has two pads, uniform numbers that its *giver* has; its *chooser* has a choice and the pad of that choice.
Pads serve as one-time pads of whatever a protocol transfers. `choose` only sends and `give` only receives, one message,
so that parties that both choose and then give need one exchange (`choose_and_give`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from securevfl_crypto.errors import CryptoError, MalformedError, ReusedError
from securevfl_crypto.transfer.base import POINT_BYTES
from securevfl_crypto.transfer.extension import (
    COLUMNS,
    MOST,
    SUMS,
    TransferChooser,
    TransferGiver,
    check_choices,
    column_bytes,
)
from securevfl_crypto.transfer.row_hash import PART, RowHash
from securevfl_crypto.transfer.unique import Unique
from securevfl_crypto.two.wire import TwoWire, swap

__all__ = [
    "DealtTransfers",
    "ExtendedTransfers",
    "Transfers",
    "choose_and_give",
    "deal_transfers",
    "random_bits",
    "random_words",
]

_COLUMNS, _CHOICES, _SETUP = "transfers: columns", "transfers: choices", "transfers: set-up"
_EXPANSION = hashlib.sha256(b"securevfl dealt transfers 1").digest()[:16]


class Transfers(Protocol):
    """A source of transfers. Both parties call matching functions in the same order: one gives, the other chooses."""

    async def reserve(self, give: int, choose: int) -> None:
        """Have at hand what is about to be given and chosen. Called before a party both gives and chooses: the two
        reach these calls in different orders, and could not get more from a helper in between.

        Args:
            give: transfers that this party is about to give; the other one says the same as `choose`.
            choose: transfers that it is about to choose.
        """

    async def give(self, count: int, words: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Both pads of the next `count` transfers that this party gives, uint64 (count, words) each.

        Raises:
            MalformedError: the chooser's message differs from what the protocol allows.
        """

    async def choose(self, choices: np.ndarray, words: int = 1) -> np.ndarray:
        """The pads of the choices, 0 or 1, uint8 (n,), of the next n transfers: uint64 (n, words).

        Raises:
            MalformedError: choices of another type, shape or value.
        """


async def choose_and_give(
    transfers: Transfers, choices: np.ndarray, count: int, words: int = 1
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Choose, and give `count` transfers: one exchange. Returns the chosen pads, and both pads of those given.

    The peer calls it, too, with `count` choices, and as many to give as this party chooses.
    """
    await transfers.reserve(count, len(choices))
    chosen = await transfers.choose(choices, words)
    return chosen, await transfers.give(count, words)


class ExtendedTransfers(Unique):
    """Transfers that the two make between themselves. See `securevfl_crypto.transfer` for what is claimed.

    Args:
        wire: the link.
        tag: the session's tag, the same at both parties.
        path: code path of the loops, one of `engine.PATHS`; by default the fastest.
    """

    def __init__(self, wire: TwoWire, tag: bytes = b"", *, path: str | None = None) -> None:
        super().__init__()
        self._wire, self._tag, self._path = wire, tag, path
        self._chooser: TransferChooser | None = None
        self._giver: TransferGiver | None = None

    async def setup(self) -> None:
        """Make the base transfers of both directions: two exchanges, 4,128 bytes each way. Call it once.

        Raises:
            MalformedError: the peer's messages encode no points of the group.
            ReusedError: called a second time.
        """
        if self._chooser is not None:
            raise ReusedError("these transfers are set up; make new ExtendedTransfers")
        me = self._wire.me
        self._chooser = TransferChooser(self._direction(me), path=self._path)
        message = np.frombuffer(self._chooser.first_message, dtype=np.uint8)
        (theirs,) = await swap(self._wire, _SETUP, [message])
        self._giver = TransferGiver(self._direction(1 - me), theirs.tobytes(), path=self._path)
        answer = np.frombuffer(self._giver.answer, dtype=np.uint8)
        (theirs,) = await swap(self._wire, _SETUP, [answer], [(np.uint8, (COLUMNS * POINT_BYTES,))])
        self._chooser.take_answer(theirs.tobytes())

    def _direction(self, chooser: int) -> bytes:
        # Each direction has a tag, so that a message of one, sent back, gives no keys of the other.
        return bytes([chooser]) + self._tag

    async def reserve(self, give: int, choose: int) -> None:
        """See `Transfers.reserve`: they never run out."""

    async def give(self, count: int, words: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """See `Transfers.give`. One message, 16 bytes a transfer and 4.1 KB a batch of 65,536.

        Raises:
            MalformedError: the message has another shape, or its check failed: the peer deviates.
            ReusedError: not set up, in a fork, or after a check that failed.
        """
        if self._giver is None:
            raise ReusedError("transfers are not set up: await setup() first")
        _check_count(count)
        if count == 0:
            return np.empty((0, words), dtype=np.uint64), np.empty((0, words), dtype=np.uint64)
        expect = []
        for size in _iter_batches(count):
            expect += [(np.uint8, (COLUMNS, column_bytes(size))), (np.uint8, (SUMS, 16))]
        arrays = await self._wire.receive(_COLUMNS, expect)
        pads = [
            self._giver.give(arrays[2 * number : 2 * number + 2], size, words)
            for number, size in enumerate(_iter_batches(count))
        ]
        if len(pads) == 1:
            return pads[0]
        return np.concatenate([zeros for zeros, _ in pads]), np.concatenate([ones for _, ones in pads])

    async def choose(self, choices: np.ndarray, words: int = 1) -> np.ndarray:
        """See `Transfers.choose`.

        Raises:
            MalformedError: choices of another type, shape or value.
            ReusedError: not set up, or in a fork.
        """
        if self._chooser is None:
            raise ReusedError("transfers are not set up: await setup() first")
        if len(check_choices(choices)) == 0:
            return np.empty((0, words), dtype=np.uint64)
        arrays, pads, start = [], [], 0
        for size in _iter_batches(len(choices)):
            message, chosen = self._chooser.choose(choices[start : start + size], words)
            arrays += message
            pads.append(chosen)
            start += size
        await self._wire.send(_COLUMNS, arrays)
        return pads[0] if len(pads) == 1 else np.concatenate(pads)


def _iter_batches(count: int) -> Iterator[int]:
    for start in range(0, count, MOST):
        yield min(MOST, count - start)


class DealtTransfers(Unique):
    """Transfers of random choices that a helper dealt, see `deal_transfers`. A choice costs one bit on the wire.

    The chooser sends its choice, added to the random one; where the sum is 1, the giver exchanges its two pads. Whoever
    dealt, together with one of the two, learns everything of the other; alone it sees none of these messages.

    Args:
        wire: the link.
        words: of a dealt pad. A call may ask for fewer; for more, if pads have 2 words or more, which then are keys
            that `RowHash` expands.
    """

    def __init__(self, wire: TwoWire, words: int = 2) -> None:
        super().__init__()
        self._wire, self._words = wire, words
        self._numbers = [0, 0]  # of the next transfer given, and chosen; the peer counts the same
        self._given = _Store(words, 2)
        self._chosen = _Store(words, 1)
        self._random = _Store(0, 1)

    @property
    def left(self) -> tuple[int, int]:
        """Numbers of transfers that are left to give and to choose."""
        return self._given.left, self._chosen.left

    def add_given(self, zeros: np.ndarray, ones: np.ndarray) -> None:
        """Take the pads of transfers that this party gives, uint64 (n, words) each; they are wiped once used.

        Raises:
            MalformedError: arrays of another type or shape.
        """
        self._given.add(zeros, ones)

    def add_chosen(self, choices: np.ndarray, pads: np.ndarray) -> None:
        """Take random choices, uint8 (n,), and the pads of these choices, uint64 (n, words).

        Raises:
            MalformedError: arrays of another type, shape or value.
        """
        if len(check_choices(choices)) != len(pads):
            raise MalformedError(f"{len(choices)} choices and {len(pads)} pads were dealt; their numbers must be equal")
        self._chosen.add(pads)
        self._random.add(choices)

    async def reserve(self, give: int, choose: int) -> None:
        """See `Transfers.reserve`: whoever deals adds them before."""

    async def give(self, count: int, words: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """See `Transfers.give`. One message, a bit a transfer.

        Raises:
            CryptoError: fewer transfers are left.
            MalformedError: the message has another shape, or the pads fewer words.
            ReusedError: in a fork.
        """
        self._require_process()
        self._check(count, words)
        zeros, ones = self._given.take(count, "give")
        if count:
            (packed,) = await self._wire.receive(_CHOICES, [(np.uint8, (-(-count // 8),))])
            swapped = np.unpackbits(packed, count=count, bitorder="little")
            difference = (zeros ^ ones) & (np.uint64(0) - swapped.astype(np.uint64))[:, None]
            zeros ^= difference
            ones ^= difference
        first = self._count(0, count)
        return self._fit(zeros, words, first), self._fit(ones, words, first)

    async def choose(self, choices: np.ndarray, words: int = 1) -> np.ndarray:
        """See `Transfers.choose`.

        Raises:
            CryptoError: fewer transfers are left.
            MalformedError: choices of another type, shape or value, or the pads have fewer words.
            ReusedError: in a fork.
        """
        self._require_process()
        count = len(check_choices(choices))
        self._check(count, words)
        (pads,) = self._chosen.take(count, "choose")
        (random,) = self._random.take(count, "choose")
        if count:
            await self._wire.send(_CHOICES, [np.packbits(choices ^ random, bitorder="little")])
        return self._fit(pads, words, self._count(1, count))

    def _count(self, direction: int, count: int) -> int:
        first = self._numbers[direction]
        self._numbers[direction] += count
        return first

    def _check(self, count: int, words: int) -> None:
        _check_count(count)
        if words < 1 or words > self._words == 1:
            raise MalformedError(f"pads of {words} words; those dealt have {self._words}: have at least 2 words dealt")

    def _fit(self, pads: np.ndarray, words: int, first: int) -> np.ndarray:
        if words <= self._words:
            return np.ascontiguousarray(pads[:, :words])
        keys, hashed = np.ascontiguousarray(pads[:, :2]), RowHash(_EXPANSION)
        out = np.empty((len(pads), words), dtype=np.uint64)
        for start in range(0, len(pads), PART):
            hashed.hash_rows(keys[start : start + PART], out[start : start + PART], first + start)
        return out


class _Store:
    """Arrays of equal lengths, of which rows are taken once and wiped. `words` 0: octets, uint8 (n,)."""

    def __init__(self, words: int, arrays: int) -> None:
        self._words = words
        self._arrays = [self._empty(0) for _ in range(arrays)]
        self._used = 0

    def _empty(self, count: int) -> np.ndarray:
        return np.empty((count, self._words) if self._words else count, dtype=np.uint64 if self._words else np.uint8)

    @property
    def left(self) -> int:
        return len(self._arrays[0]) - self._used

    def add(self, *arrays: np.ndarray) -> None:
        like = self._empty(len(arrays[0]) if isinstance(arrays[0], np.ndarray) and arrays[0].ndim else 0)
        for array in arrays:
            if not isinstance(array, np.ndarray) or array.dtype != like.dtype or array.shape != like.shape:
                raise MalformedError(
                    f"dealt pads are {getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}; "
                    f"expected {like.dtype} {like.shape}"
                )
        self._arrays = [np.concatenate([old[self._used :], new]) for old, new in zip(self._arrays, arrays, strict=True)]
        self._used = 0

    def take(self, count: int, what: str) -> list[np.ndarray]:
        if count > self.left:
            raise CryptoError(f"{count} transfers to {what}; {self.left} dealt ones are left: have more dealt")
        rows = slice(self._used, self._used + count)
        self._used += count
        taken = [array[rows].copy() for array in self._arrays]
        for array in self._arrays:
            array[rows] = 0
        return taken


def deal_transfers(count: int, words: int = 2) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Deal transfers of one direction, as a helper does.

    Returns:
        Both pads, uint64 (count, words) each, for the giver's `add_given`; random choices, uint8 (count,), and their
        pads, uint64 (count, words), for the chooser's `add_chosen`.
    """
    _check_count(count)
    zeros, ones = random_words((2, count, words))
    choices = random_bits(count)
    chosen = zeros ^ ((zeros ^ ones) & (np.uint64(0) - choices.astype(np.uint64))[:, None])
    return (zeros, ones), (choices, chosen)


def random_words(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform words of the operating system, uint64 of this shape, writable."""
    size = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(bytearray(secrets.token_bytes(8 * size)), dtype=np.uint64).reshape(shape)


def random_bits(count: int) -> np.ndarray:
    """Zeros and ones of the operating system, uint8 (count,)."""
    octets = np.frombuffer(secrets.token_bytes(-(-count // 8)), dtype=np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little")


def _check_count(count: int) -> None:
    if count < 0:
        raise MalformedError(f"{count} transfers; numbers are not negative")
