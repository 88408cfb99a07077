"""Training a scorecard on shares: cells of the training rows are dealt once and counted, and become the inputs of the
regression; cells of other rows become inputs as they are dealt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.replicated import Share, concatenate

from securevfl.errors import PolicyError
from securevfl.shares.course import DEALT, Words
from securevfl.shares.epochs import SharedTraining
from securevfl.shares.scorecard.card_network import CardNetwork
from securevfl.shares.scorecard.evidence import compute_evidence, count_positives
from securevfl.shares.scorecard.layout import CardLayout
from securevfl.shares.scorecard.merging import merge_bins

__all__ = ["BINS_CHECK", "CardTraining"]

BINS_CHECK = "bins"
"""The check that no bin has fewer training rows than the job says."""


@dataclass
class CardTraining(SharedTraining):
    """One party's training of a scorecard on shares.

    Attributes:
        layout: the columns' bins.
        least: the fewest training rows of a bin.
        monotone: whether bins are merged until the share of the second class only rises or only falls.
        learned: how many rows train.
        counting: rounds and bytes that this party sent, of counting the rows.
    """

    network: CardNetwork | None
    layout: CardLayout = field(default_factory=lambda: CardLayout(()))
    least: int = 1
    monotone: bool = False
    learned: int = 0
    counting: tuple[int, int] = (0, 0)
    _columns: Share | None = field(default=None, repr=False)

    async def train(
        self,
        sizes: Sequence[int],
        words: Words | None,
        places: Sequence[np.ndarray] = (),
        *,
        told: Callable[[int], None] = lambda done: None,
    ) -> None:
        """See `SharedTraining.train`: the rows were dealt before."""
        await self._confirm_places(places)
        for number, here in enumerate(places):
            if words is not None:
                words(number)  # nothing is dealt here; the observer hears of the batch
            network, kept = self.network, self.kept
            if network is not None and self._columns is not None and kept is not None:
                engine = network.engine
                before = engine.rounds, engine.sent
                await network.train_batch(network.split_columns(self._columns[here]), kept.train[here])
                self.rounds += engine.rounds - before[0]
                self.sent += engine.sent - before[1]
            self.steps += 1
            told(number + 1)

    async def confirm_layout(self) -> None:
        """Compare the columns' bins among the computing parties, before anything is dealt.

        Raises:
            ProtocolError: the active party told them different ones.
        """
        if self.network is not None:
            await self.network.engine.confirm(f"bins {self.layout.digest}")

    async def _confirm_places(self, places: Sequence[np.ndarray]) -> None:
        """Compare what the parties use in an epoch: one that was told other places would use other rows.

        Raises:
            DisagreementError: they use different ones.
        """
        if self.network is not None and self._columns is not None and self.kept is not None and places:
            used = np.concatenate(places)
            await self.network.engine.confirm("input", self._columns[used], self.kept.train[used])

    async def deal_rows(self, rows: int, words: Words | None) -> None:
        """Deal the cells of the training rows, count them unless a checkpoint has their evidence, and look it up.

        Raises:
            PolicyError: a bin has too few rows.
        """
        if not rows:
            return
        self.layout.check_rows(rows)
        self.learned = rows
        most = max(DEALT // max(sum(self.layout.cells), 1), 1)
        sizes = [min(most, rows - start) for start in range(0, rows, most)]
        own = None if words is None else words(0)[0]
        parts = None if own is None else (lambda number: [own[number * most : (number + 1) * most]])
        dealt = []
        async for cells, _ in super().share_rows(sizes, parts):
            dealt += [concatenate(cells, axis=1)] if cells else []
        network, kept = self.network, self.kept
        if network is None or kept is None:
            return
        engine = network.engine
        before = engine.rounds, engine.sent
        if network.evidence is None:
            network.evidence = await self._weigh_cells(network, dealt, kept.train)
        self._columns = concatenate(await network.look_up(dealt))
        self.counting = engine.rounds - before[0], engine.sent - before[1]

    async def _weigh_cells(self, network: CardNetwork, dealt: list[Share], targets: Share) -> Share:
        """The weights of evidence of all cells, if each has enough rows."""
        engine = network.engine
        ends = np.cumsum([len(part) for part in dealt]).tolist()
        parts = [targets[end - len(part) : end] for part, end in zip(dealt, ends, strict=True)]
        positives = await count_positives(engine, dealt, parts)
        rows = dealt[0].sum(axis=0)
        for part in dealt[1:]:
            rows = rows + part.sum(axis=0)
        total = targets.sum().reshape(1)
        merged = rows
        if self.monotone:
            merged, positives = await merge_bins(engine, rows, positives, total, self.learned, self.layout)
        evidence, short = await compute_evidence(engine, merged, positives, total, self.learned, self.least, dealt=rows)
        if not await engine.is_zero(BINS_CHECK, short):
            raise PolicyError(
                f"{self.member.site.name!r} refuses to train: a bin has fewer than {self.least} training rows, as the "
                "job's least says; its points would tell single rows' labels. Nothing was opened but that"
            )
        return evidence

    async def share_rows(
        self,
        sizes: Sequence[int],
        words: Words | None,
        *,
        kept: Share | None = None,
        places: Sequence[np.ndarray] = (),
        mixes: bool = False,
    ) -> AsyncIterator[tuple[list[Share], Share]]:
        """See `SharedTraining.share_rows`: cells are dealt, and inputs of the regression are given."""
        network = self.network
        async for cells, targets in super().share_rows(sizes, words, kept=kept, places=places, mixes=mixes):
            if network is None:
                yield cells, targets
                continue
            (columns,) = await network.look_up([concatenate(cells, axis=1)])
            yield network.split_columns(columns), targets
