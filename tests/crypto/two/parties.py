"""Two computing parties in memory for tests: links, transfers that are counted, and shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import numpy as np
from securevfl_crypto.two.transfers import DealtTransfers, ExtendedTransfers, Transfers, deal_transfers, random_words
from securevfl_crypto.two.wire import MemoryEnd, MemoryWires

__all__ = ["Counted", "Pair", "bit_mean", "deviation", "share_bits", "share_words"]

T = TypeVar("T")
U64 = np.uint64


class Counted:
    """Transfers that count, and keep the pads of the last call, for tests that remove them from messages."""

    def __init__(self, source: Transfers) -> None:
        self.source = source
        self.given = self.chosen = 0
        self.last_chosen: list[tuple[np.ndarray, np.ndarray]] = []
        self.last_given: list[tuple[np.ndarray, np.ndarray]] = []

    async def give(self, count: int, words: int = 1) -> tuple[np.ndarray, np.ndarray]:
        self.given += count
        pads = await self.source.give(count, words)
        self.last_given.append((pads[0].copy(), pads[1].copy()))
        return pads

    async def reserve(self, give: int, choose: int) -> None:
        """See `Transfers.reserve`."""
        await self.source.reserve(give, choose)

    async def choose(self, choices: np.ndarray, words: int = 1) -> np.ndarray:
        self.chosen += len(choices)
        pads = await self.source.choose(choices, words)
        self.last_chosen.append((choices.copy(), pads.copy()))
        return pads


class Pair:
    """Party 0 and party 1.

    Args:
        dealt: number of transfers of each direction that a helper deals; None: the two extend base transfers.
        words: of a dealt pad.
    """

    def __init__(self, dealt: int | None = 60_000, words: int = 2) -> None:
        self.wires = MemoryWires(record=True)
        self.ends: tuple[MemoryEnd, MemoryEnd] = self.wires.pair()
        sources: list[Any] = []
        if dealt is None:
            extended = [ExtendedTransfers(end, b"tests") for end in self.ends]
            self.wires.run(extended[0].setup(), extended[1].setup())
            sources = list(extended)
        else:
            sources = [DealtTransfers(end, words) for end in self.ends]
            for giver, chooser in (sources, sources[::-1]):
                given, chosen = deal_transfers(dealt, words)
                giver.add_given(*given)
                chooser.add_chosen(*chosen)
        self.transfers = Counted(sources[0]), Counted(sources[1])
        self.clear()

    def clear(self) -> None:
        """Forget what was counted."""
        self.wires.record.clear()
        self.wires.messages.clear()
        self.wires.octets.clear()
        self.wires.depth = 0
        for end, transfers in zip(self.ends, self.transfers, strict=True):
            end._depth = 0
            transfers.given = transfers.chosen = 0
            transfers.last_chosen.clear()
            transfers.last_given.clear()

    def run(
        self, function: Callable[..., Awaitable[T]], zero: tuple[Any, ...], one: tuple[Any, ...], **more: Any
    ) -> tuple[T, T]:
        """What a function of both parties returns, each with its arguments."""

        async def program(me: int, arguments: tuple[Any, ...]) -> T:
            return await function(self.ends[me], self.transfers[me], *arguments, **more)

        return self.wires.run(program(0, zero), program(1, one))

    def messages(self, label: str, sender: int | None = None) -> list[list[np.ndarray]]:
        """The recorded messages of a label, and of a sender."""
        return [each.arrays for each in self.wires.record if each.label == label and sender in (None, each.sender)]


def share_words(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Random summands of values, int64 or uint64, modulo 2^64."""
    words = np.asarray(values)
    words = words.view(U64) if words.dtype == np.int64 else words
    first = random_words(words.shape)
    return first, np.asarray(words - first)


def share_bits(bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Random summands of zeros and ones."""
    first = np.asarray(random_words(bits.shape).astype(np.uint8) & np.uint8(1))
    return first, np.asarray(bits.astype(np.uint8) ^ first)


def deviation(values: np.ndarray, kinds: int = 256) -> float:
    """Of counts from uniform ones: χ² in standard deviations above its mean."""
    counts = np.bincount(values.ravel(), minlength=kinds)
    expected = counts.sum() / kinds
    return float((((counts - expected) ** 2).sum() / expected - (kinds - 1)) / np.sqrt(2 * (kinds - 1)))


def bit_mean(packed: np.ndarray, count: int) -> float:
    """How far the mean of packed bits is from one half, in standard deviations."""
    bits = np.unpackbits(packed, count=count, bitorder="little")
    return float(abs(bits.mean() - 0.5) * 2 * np.sqrt(count))
