"""Training of a network on shares, batch by batch: the part that is the same at all parties.

One message deals the rows of several batches, so that steps rarely wait for rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from securevfl_crypto.replicated import Share

from securevfl.errors import ProtocolError
from securevfl.shares.course import DEALT, SharedCourse, Words
from securevfl.shares.network import Network

__all__ = ["SharedTraining", "Words", "check_sizes"]

_KEPT = 1 << 24
"""Words of the validation rows that a computing party keeps in memory, twice: 256 MB."""

_NOTHING = Share(np.empty(0, np.uint64), np.empty(0, np.uint64))


@dataclass
class SharedTraining(SharedCourse):
    """One party's training of a network on shares, from batch to batch."""

    network: Network | None

    async def deal_rows(self, rows: int, words: Words | None) -> None:
        """See `SharedCourse`; each batch is dealt when it trains."""

    def keeps_valid(self, rows: int) -> bool:
        """See `SharedCourse`."""
        return rows * sum(self.widths) <= _KEPT

    async def train(
        self,
        sizes: Sequence[int],
        words: Words | None,
        places: Sequence[np.ndarray] = (),
        *,
        told: Callable[[int], None] = lambda done: None,
    ) -> None:
        """See `SharedCourse`."""
        done = 0
        kept = None if self.kept is None or self.mixes else self.kept.train
        async for inputs, targets in self.share_rows(sizes, words, kept=kept, places=places, mixes=self.mixes):
            if self.network is not None:
                engine = self.network.engine
                before = engine.rounds, engine.sent
                await self.network.train_batch(inputs, targets)
                self.rounds += engine.rounds - before[0]
                self.sent += engine.sent - before[1]
            self.steps += 1
            done += 1
            told(done)

    async def share_rows(
        self,
        sizes: Sequence[int],
        words: Words | None,
        *,
        kept: Share | None = None,
        places: Sequence[np.ndarray] = (),
        mixes: bool = False,
    ) -> AsyncIterator[tuple[list[Share], Share]]:
        """See `SharedCourse`.

        Args:
            sizes: rows of each batch.
            words: what this party deals.
            kept: targets that were dealt before; None for none.
            places: of each batch's rows among them.
            mixes: whether the active party deals targets with its inputs.
        """
        member, active = self.member, self.member.site.active
        for first, last in self._group_batches(sizes):
            rows = sum(sizes[first:last])
            shapes = {
                name: [(rows, width), *([(rows, self.outputs)] if mixes and name == active else [])]
                for name, width in zip(member.sources, self.widths, strict=True)
            }
            mine = None
            if words is not None:
                mine = [np.concatenate(parts) for parts in zip(*map(words, range(first, last)), strict=True)]
            targets = _NOTHING if kept is None else kept[np.concatenate(places[first:last])]
            dealt = await member.share_arrays(mine, shapes, beside=None if kept is None else targets)
            if mixes and dealt:
                targets = dealt[active][1]
            start = 0
            for size in sizes[first:last]:
                here, start = slice(start, start + size), start + size
                if dealt:
                    yield [dealt[name][0][here] for name in member.sources], targets[here]
                else:
                    yield [], _NOTHING

    def _group_batches(self, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
        """First and last of the batches that are dealt in one message."""
        most = max(DEALT // (sum(self.widths) + self.outputs), 1)
        first, rows = 0, 0
        for number, size in enumerate(sizes):
            if rows and rows + size > most:
                yield first, number
                first, rows = number, 0
            rows += size
        if rows:
            yield first, len(sizes)


def check_sizes(sizes: Sequence[int], most: int) -> None:
    """Refuse batch sizes outside the possible range.

    Raises:
        ProtocolError: a size below 1 or above `most`.
    """
    if any(not 1 <= size <= most for size in sizes):
        raise ProtocolError(f"batches of {min(sizes)} to {max(sizes)} rows were announced; 1 to {most} are possible")
