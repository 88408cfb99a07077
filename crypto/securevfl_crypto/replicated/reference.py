"""The exact reference in the clear, and the three parties in one process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from securevfl_crypto.replicated.computing import Computing
from securevfl_crypto.replicated.functions import Functions
from securevfl_crypto.replicated.keys import fixed_streams
from securevfl_crypto.replicated.opening import Opening, Openings
from securevfl_crypto.replicated.product import Product, Result, product_summand
from securevfl_crypto.replicated.share import U64, Dealt, Share
from securevfl_crypto.replicated.task import OFFSET, Task, truncate_opened
from securevfl_crypto.replicated.wire import MemoryWire, memory_wires, take_turns
from securevfl_crypto.ring import FRACTION, Stream

__all__ = ["Clear", "Run", "run_three"]

T = TypeVar("T")


class Clear(Functions):
    """The calls of `Computing` on plain numbers, `Share(x, 0)`. It draws the masks r that party 2 would draw.

    With the seed of a `run_three`, each result equals, to the last bit, the sum of the three parties' shares.

    Args:
        seed: of the run to compare with.
        fraction: bits behind the binary point.
        openings: as for `Computing`.
    """

    def __init__(
        self,
        seed: bytes | None = None,
        *,
        fraction: int = FRACTION,
        openings: Mapping[str, int | Opening] | None = None,
    ) -> None:
        super().__init__(fraction)
        self.index = 0
        self.rounds = 0
        self.sent = 0
        self._masks = Stream.with_fresh_key() if seed is None else Stream(hashlib.sha256(seed + b"own 2").digest())
        self._drawn = 0
        self._openings = Openings(openings or {})

    def constant(self, words: np.ndarray) -> Share:
        """The words themselves."""
        return Share(words, np.zeros_like(words))

    def read_dealt(self, dealt: tuple[Dealt, Dealt, Dealt]) -> Share:
        """Add up the values of all three dealt parts."""
        zero, one, _ = (part.share() for part in dealt)
        return self.constant(zero.mine + zero.next + one.next)

    def additive_summand(self, x: Share) -> U64:
        """x itself."""
        return x.mine

    async def compute_products(self, jobs: Sequence[Product]) -> list[Result]:
        """As `Computing.compute_products`."""
        tasks = [job.following_task(product_summand(job, self.index), self.fraction) for job in jobs if job.needs_mask]
        masked = iter(await self.run_masked(tasks))
        return [
            job.arrange_result(next(masked) if job.needs_mask else [self.constant(product_summand(job, self.index))])
            for job in jobs
        ]

    async def run_masked(self, tasks: Sequence[Task]) -> list[list[Share]]:
        """As `Computing.run_masked`."""
        total = sum(task.size for task in tasks)
        masks = np.zeros(0, np.uint64)
        if total:
            masks = self._masks.draw_words(self._drawn, (total,))
            self._drawn += 1
        found, start = [], 0
        for task in tasks:
            found.append(self._evaluate_task(task, masks[start : start + task.size].reshape(task.summand.shape)))
            start += task.size
        return found

    def _evaluate_task(self, task: Task, r: U64) -> list[Share]:
        z = task.summand
        y = truncate_opened(z + OFFSET + r, r, task.shift)
        if task.curve is None:
            return [self.constant(y if task.gate is None else y * task.gate.mine)]
        curve, total = task.curve, np.full_like(z, task.curve.start % (1 << 64))
        gate, bits = np.zeros_like(z), []
        for k, threshold in enumerate(curve.thresholds):
            bit = (z.view(np.int64) >= threshold << task.shift).astype(np.uint64)
            bits.append(bit)
            if curve.slopes:
                total += bit * (y - np.uint64(threshold % (1 << 64))) * np.uint64(curve.slopes[k] % (1 << 64))
            if curve.gates:
                gate += bit * np.uint64(curve.gates[k] % (1 << 64))
        found = [total] * bool(curve.slopes) + [gate] * bool(curve.gates)
        return [self.constant(words) for words in (found or [np.stack(bits)])]

    def begin_stage(self, *names: str) -> None:
        """As `Computing.begin_stage`."""
        self._openings.begin_stage(names)

    async def open(self, name: str, x: Share, to: Sequence[int]) -> U64 | None:
        """Return x if the opening was declared."""
        self._openings.count_opening(name, x, to)
        return x.mine

    async def open_each(self, every: Sequence[tuple[str, Share, int]]) -> dict[str, U64]:
        """Return all of them, if they were declared."""
        for name, x, to in every:
            self._openings.count_opening(name, x, (to,))
        return {name: x.mine for name, x, _ in every}

    async def is_zero(self, name: str, x: Share) -> bool:
        """Return whether x is zero, if that was declared."""
        self._openings.count_check(name)
        return not x.mine.any()

    async def toss_coins(self, count: int) -> U64:
        """Fresh random words: those of the three differ."""
        return np.frombuffer(os.urandom(8 * count), np.uint64)

    async def confirm(self, label: str, *shares: Share) -> None:
        """Do nothing: there is only one party."""

    async def refresh(self, *shares: Share) -> list[Share]:
        """Return the shares unchanged."""
        return list(shares)


@dataclass(frozen=True)
class Run(Generic[T]):
    """The result of `run_three`.

    Attributes:
        results: what the program returned at each party.
        parties: the three, with their counts of rounds and bytes.
        wires: the parties' wires; their `received` is filled if `record` was set.
    """

    results: tuple[T, T, T]
    parties: tuple[Computing, Computing, Computing]
    wires: tuple[MemoryWire, MemoryWire, MemoryWire] = field(repr=False)

    @property
    def rounds(self) -> int:
        """The longest chain of messages."""
        return max(party.rounds for party in self.parties)

    @property
    def bytes_sent(self) -> int:
        """Bytes that all three sent."""
        return sum(party.sent for party in self.parties)


def run_three(
    program: Callable[[Computing], Awaitable[T]],
    *,
    seed: bytes | None = None,
    fraction: int = FRACTION,
    openings: Mapping[str, int | Opening] | None = None,
    record: bool = False,
) -> Run[T]:
    """Run a program at three parties in this process, over memory wires, without an event loop.

    Args:
        program: a coroutine function of a `Computing`; `party.index` identifies the party.
        seed: fixes all randomness, for a comparison with `Clear`; fresh if None.
        fraction: bits behind the binary point.
        openings: as for `Computing`.
        record: keep what each party receives, in the wires' `received`.
    """
    wires = memory_wires(record=record)
    streams = fixed_streams(seed or os.urandom(32))
    parties = tuple(Computing(i, wires[i], streams[i], fraction=fraction, openings=openings) for i in range(len(wires)))

    async def one(party: Computing) -> T:
        return await program(party)

    zero, one_, two = take_turns([one(party) for party in parties], wires[0].links)
    return Run((zero, one_, two), (parties[0], parties[1], parties[2]), wires)
