"""Split networks that train on subsets of the parties: what LASER-VFL, party dropout and PlugVFL share.

The active party's other rows train too. Which passive parties take part for a row comes from
`securevfl.training.subsets`. Validation rows, test rows and predictions are whole: all parties that are there take
part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import CutUse, Protection
from securevfl.privacy import Noised, map_noised
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.halves import Architecture, PassiveHalf
from securevfl.training.role import Role
from securevfl.training.subsets import Draw, SubsetHalf, Subsets, scatter_rows

__all__ = ["Masks", "OnSubsets", "SubsetActive", "SubsetPassive"]

C = TypeVar("C", bound="OnSubsets")


Masks = Literal["fixed", "redrawn", "together"]
"""How subsets are drawn where there are several passive parties; see `OnSubsets`."""


class OnSubsets(SplitNN):
    """What configurations have in common whose training rows have subsets of the parties.

    Attributes:
        masks: with two or more passive parties, ``"together"``: all of them take part or none, so that only the sum
            over all is ever opened; the model then scores rows of all parties, and of the active party alone.
            ``"fixed"``: each row keeps one subset for the whole run, and the model scores any. No two sums of a row are
            opened in training whose difference is one party's part; but rows with one passive party open its part, and
            a later prediction with another subset opens a second sum. ``"redrawn"``: a row has another subset in each
            batch, and differences tell each party's part.
    """

    fits: ClassVar[Fits] = Fits(counts=True)

    uses_others: ClassVar[bool] = True
    masks: Masks = "together"

    @property
    def subsets(self) -> Literal["all", "alone", "any"]:  # type: ignore[override]
        """See `Algorithm.subsets`; it depends on the masks."""
        return "alone" if self.masks == "together" else "any"

    def draw(self) -> Draw:
        """How subsets are drawn, of parties that take part each by itself, or of one that stands for all."""
        raise NotImplementedError

    def redraws_subsets(self, units: int) -> bool:
        """Whether a row has another subset in each batch.

        Args:
            units: how many take part or not by themselves: passive parties, or 1 where they do so together.
        """
        return self.masks == "redrawn"

    @property
    def cut(self) -> CutUse:
        """Of rows in which one passive party takes part, its part of z is opened by itself."""
        return replace(super().cut, alone=self.masks != "together", differing=self.masks == "redrawn")

    def notes(self, protection: Protection) -> list[str]:
        told = "validation rows, test rows and predictions are whole: all passive parties that are there take part"
        if self.masks != "together":
            told += (
                "; with several passive parties, a sealed prediction of a row with another subset than it trained with "
                "opens a second sum of it, and their difference is what parties put in: leave rows that trained out, "
                "or train with masks = 'together'"
            )
        return [*super().notes(protection), told]


class _Books(Bookkeeping):
    repeats_begin_epoch = True  # who takes part follows from the seed, the epoch and the batch


class _Present(Role, Generic[C]):
    """What both roles do: train on the aligned rows and the active party's others, and draw who takes part."""

    bookkeeping = _Books
    config: C
    epoch = 1

    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    async def begin_epoch(self, epoch: int) -> bool:
        self.epoch = epoch
        return False

    def draw_subsets(self) -> Subsets:
        """Who takes part, in the order of the site's passive parties."""
        config, passive = self.config, len(self.site.passive)
        together = config.masks == "together" and passive > 0
        units = 1 if together else passive
        return Subsets(
            self.table.aligned_count,
            passive,
            config.draw(),
            seed=self.site.seed,
            redraw=config.redraws_subsets(units),
            together=together,
        )


class SubsetActive(_Present[C], Active):
    """Exchanges the rows in which a passive party takes part, and trains on all."""

    config: C
    half: SubsetHalf

    def build(self) -> None:
        super().build()
        self.subsets = self.draw_subsets()

    def build_half(self, architecture: Architecture) -> SubsetHalf:
        spec = self.config.cut_spec(self, architecture.hidden)
        cut, passive = active_side(self, spec), self.site.passive
        return SubsetHalf(architecture, cut, spec, passive, self.features.shape, self.task.outputs)

    def set_present(self, present: np.ndarray) -> None:
        """Hear which passive parties take part for the rows of the batch, (n, parties)."""

    def extra_loss(self, z: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """What is minimised beside the loss of each row, as a sum.

        Args:
            z: the passive parties' sum of the rows that were exchanged, (k, h), k ≥ 1.
            rows: their numbers, (k,).
        """
        return z.new_zeros(())

    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        present = self.subsets.draw_for(rows, self.epoch)
        self.set_present(present)
        logits = await self.half.forward_present(self.activations(rows, train=True), present)
        targets = self.targets(rows)
        loss = self.loss(self.correct_logits(logits), targets).sum()
        exchanged = rows[present.any(axis=1)]
        if len(exchanged):
            loss = loss + self.extra_loss(self.half.remote, exchanged)
        noised = self.label_noise.gradient(logits, targets, rows)
        if noised is None:
            await self.half.backward(loss / self.plan.batch_size)
        else:
            await self.half.backward(logits, noised)
        return loss.detach()

    def correct_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """See `LabelNoise.correct_logits`."""
        return self.label_noise.correct_logits(logits)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits (n, outputs) of rows from the active party's own columns; no message."""
        with torch.no_grad():
            return self.half.alone(self.activations(rows, train=False))


class SubsetPassive(_Present[C], Passive):
    """Feeds zeros for rows in which it does not take part, and nothing for those in which nobody does."""

    config: C
    half: PassiveHalf

    def build(self) -> None:
        super().build()
        self.subsets = self.draw_subsets()
        self.place = self.site.passive.index(self.site.name)

    def put_in(self, rows: np.ndarray, present: np.ndarray) -> torch.Tensor | Noised[torch.Tensor]:
        """Activations (n, d) of the rows in which this party takes part, released with noise where the job says so,
        and exact zeros for the others, which are no release."""
        mine = np.flatnonzero(present)
        a = map_noised(self.activations(rows[mine], train=True), lambda part: scatter_rows(part, mine, len(rows)))
        if self.site.observer.listening:
            self.site.observer.fed(self.site.name, self.site.active, rows, a.value if isinstance(a, Noised) else a)
        return a

    async def train_batch(self, rows: np.ndarray) -> None:
        present = self.subsets.draw_for(rows, self.epoch)
        exchanged = present.any(axis=1)
        if not exchanged.any():
            return
        rows, present = rows[exchanged], present[exchanged, self.place]
        a = self.put_in(rows, present)
        await self.half.forward(a, train=True, noise=self.noise.share(rows, self.half.cut_width))
        await self.half.backward(a)
