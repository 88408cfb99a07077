"""Turn three additive summands into a replicated sharing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl_crypto.replicated.party import Party
from securevfl_crypto.replicated.share import U64, Share
from securevfl_crypto.replicated.task import parts_of

__all__ = ["Reshare"]


class Reshare:
    """Turns three summands of each value into a replicated sharing, in one round (Araki et al., section 2.2).

    Each party masks its summand with a share of zero and sends it to the previous party.
    """

    def __init__(self, party: Party, summands: Sequence[U64]) -> None:
        self._party = party
        self._shapes = [summand.shape for summand in summands]
        flat = np.concatenate([summand.ravel() for summand in summands]) if summands else np.zeros(0, np.uint64)
        if flat.size:
            # Keys i and i + 1: over the three parties every stream is added once and subtracted once.
            flat += party.streams.draw_words(party.index, flat.shape)
            flat -= party.streams.draw_words(party.next_party, flat.shape)
        self._flat = flat

    async def send(self) -> None:
        """Send this party's summands."""
        if self._flat.size:
            await self._party.send(self._party.previous_party, "reshare", [self._flat])

    async def receive(self) -> list[Share]:
        """Receive the next party's summands and return the shares, in order."""
        after = self._flat
        if self._flat.size:
            (after,) = await self._party.receive(self._party.next_party, "reshare", [(np.uint64, self._flat.shape)])
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        parts = zip(self._shapes, parts_of(self._flat, sizes), parts_of(after, sizes), strict=True)
        return [Share(mine.reshape(shape), other.reshape(shape)) for shape, mine, other in parts]
