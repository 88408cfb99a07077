"""Split networks that train on subsets of the parties: the base of LASER-VFL, party dropout and PlugVFL.

The active party's other rows also train. `securevfl.training.subsets` draws which passive parties take part in a row.
For validation rows, test rows and predictions, all available parties take part.
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
from securevfl.training.bottoms import Architecture
from securevfl.training.cut_noise import active_side
from securevfl.training.fits import Fits
from securevfl.training.halves import PassiveHalf
from securevfl.training.role import Role
from securevfl.training.subsets import Draw, SubsetHalf, Subsets, scatter_rows

__all__ = ["Masks", "OnSubsets", "SubsetActive", "SubsetPassive"]

C = TypeVar("C", bound="OnSubsets")


Masks = Literal["fixed", "redrawn", "together"]
"""How to draw subsets of several passive parties; see `OnSubsets`."""


class OnSubsets(SplitNN):
    """Base of configurations that train each row with a subset of the parties.

    Attributes:
        masks: which subsets to draw with two or more passive parties. ``"together"``: all of them or none. Only the sum
            over all parties is ever opened; the model can score rows of all parties and of the active party alone.
            ``"fixed"``: each row keeps one subset for the whole run, and the model can score any subset. Training opens
            one sum for each row, so no difference of two sums reveals one party's part. But a row with one passive
            party opens that party's part, and a later prediction with another subset opens a second sum.
            ``"redrawn"``: a row gets a new subset in each batch, and the differences reveal each party's part.
    """

    fits: ClassVar[Fits] = Fits(counts=True)

    uses_others: ClassVar[bool] = True
    masks: Masks = "together"

    @property
    def subsets(self) -> Literal["all", "alone", "any"]:  # type: ignore[override]
        """Which subsets the model can score, by the masks; see `Algorithm.subsets`."""
        return "alone" if self.masks == "together" else "any"

    def subset_draw(self) -> Draw:
        """The function that draws subsets: of single parties, or of one unit that represents all of them."""
        raise NotImplementedError

    def redraws_subsets(self, units: int) -> bool:
        """Whether a row gets a new subset in each batch.

        Args:
            units: number of units drawn: the passive parties, or 1 if they take part together.
        """
        return self.masks == "redrawn"

    @property
    def cut(self) -> CutUse:
        """For a row with a single passive party, that party's part of z is opened separately."""
        return replace(super().cut, alone=self.masks != "together", differing=self.masks == "redrawn")

    def notes(self, protection: Protection) -> list[str]:
        told = "validation rows, test rows and predictions use all available passive parties"
        if self.masks != "together":
            told += (
                "; with several passive parties, a sealed prediction of a row with another subset than it trained with "
                "opens a second sum of it, and their difference is what parties put in: leave rows that trained out, "
                "or train with masks = 'together'"
            )
        return [*super().notes(protection), told]


class _Books(Bookkeeping):
    repeats_begin_epoch = True  # the subsets depend only on the seed, the epoch and the batch


class _SubsetRole(Role, Generic[C]):
    """Base of both roles: trains on the aligned rows and the active party's others, and draws the parties of each
    row."""

    bookkeeping = _Books
    config: C
    epoch = 1

    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    async def begin_epoch(self, epoch: int) -> bool:
        self.epoch = epoch
        return False

    def draw_subsets(self) -> Subsets:
        """Which passive parties take part in each row of the batch, in the site's order, (n, parties)."""
        config, passive = self.config, len(self.site.passive)
        together = config.masks == "together" and passive > 0
        units = 1 if together else passive
        return Subsets(
            self.table.aligned_count,
            passive,
            config.subset_draw(),
            seed=self.site.seed,
            redraw=config.redraws_subsets(units),
            together=together,
        )


class SubsetActive(_SubsetRole[C], Active):
    """Exchanges the rows in which a passive party takes part, and trains on all rows of the batch."""

    config: C
    half: SubsetHalf

    def build(self) -> None:
        super().build()
        self.subsets = self.draw_subsets()

    def build_half(self, architecture: Architecture) -> SubsetHalf:
        spec = self.config.cut_spec(self, architecture.hidden)
        cut, passive = active_side(self, spec), self.site.passive
        return SubsetHalf(architecture, cut, spec, passive, self.features.row_shape, self.task.outputs)

    def set_present(self, present: np.ndarray) -> None:
        """Called with the passive parties that take part in each row of the batch, (n, parties)."""

    def extra_loss(self, z: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """An additional loss for the batch, as a sum over its rows; zero unless an algorithm overrides this.

        Args:
            z: sum of the passive parties' parts for the rows that were exchanged, (k, h), k ≥ 1.
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
            loss = loss + self.extra_loss(self.half.remote_sum, exchanged)
        noised = self.label_noise.noised_gradient(logits, targets, rows)
        if noised is None:
            await self.half.backward(loss / self.plan.batch_size)
        else:
            await self.half.backward(logits, noised)
        return loss.detach()

    def correct_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """See `LabelNoise.correct_logits`."""
        return self.label_noise.correct_logits(logits)

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits (n, outputs) from the active party's own columns, without any message."""
        with torch.no_grad():
            return self.half.forward_alone(self.activations(rows, train=False))


class SubsetPassive(_SubsetRole[C], Passive):
    """Feeds zeros for rows without this party, and skips rows without any passive party."""

    config: C
    half: PassiveHalf

    def build(self) -> None:
        super().build()
        self.subsets = self.draw_subsets()
        self.place = self.site.passive.index(self.site.name)

    def put_in(self, rows: np.ndarray, present: np.ndarray) -> torch.Tensor | Noised[torch.Tensor]:
        """Activations (n, d), noised if the job asks for noise; zeros for rows without this party.

        The zeros get no noise and count as no release: they do not depend on the party's data.
        """
        mine = np.flatnonzero(present)
        a = map_noised(self.activations(rows[mine], train=True), lambda part: scatter_rows(part, mine, len(rows)))
        if self.site.observer.listening:
            self.site.observer.activations_fed(
                self.site.name, self.site.active, rows, a.value if isinstance(a, Noised) else a
            )
        return a

    async def train_batch(self, rows: np.ndarray) -> None:
        present = self.subsets.draw_for(rows, self.epoch)
        exchanged = present.any(axis=1)
        if not exchanged.any():
            return
        rows, present = rows[exchanged], present[exchanged, self.place]
        a = self.put_in(rows, present)
        await self.half.forward(a, train=True, noise=self.noise.noise_share(rows, self.half.cut_width))
        await self.half.backward(a)
