"""Entity Augmentation (Amalanshu et al. 2024, arXiv 2406.17899): mixes rows that are not aligned.

In each step every party feeds different rows, and the active party trains on the average of their labels,
``y = Σ_i w_i y_{j_i} / Σ_i w_i``, where w_i is the width of party i's activations (Algorithm 1, line 11). So it needs
the label of every row that any party feeds: a label book.

In the paper each message carries the sender's ids. Here alignment fixes an order of the rows between each passive party
and the active one, and all parties draw places in this order from the job's seed, so no ids are sent. The sealed cut
works unchanged, because it adds the parties' parts by their place in the batch. The paper's queue for parties that miss
a step is left out: a link delivers in order or fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.party_context import derive_seed
from securevfl.training.active_role import ActiveRole
from securevfl.training.algorithm import ReleaseCounts
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.fits import Fits
from securevfl.training.passive_role import PassiveRole
from securevfl.training.plan import Plan
from securevfl.training.role import Role
from securevfl.training.rows import NumberedRows
from securevfl.training.setting import Setting

__all__ = ["EntityAugmentation", "draw_places", "mixed_labels"]


class EntityAugmentation(SplitNN):
    """Split learning on mixtures of rows that are not aligned.

    Attributes:
        keep_aligned: whether aligned rows stay together, so that only the others are mixed. False mixes all rows, as in
            the paper's experiment with deliberately misaligned rows.
    """

    name: ClassVar[str] = "entity_augmentation"
    label: ClassVar[str] = "Entity Augmentation"
    uses_others: ClassVar[bool] = True
    uses_book: ClassVar[bool] = True
    fits: ClassVar[Fits] = Fits(shares=True, counts=True, mixes=True, goes_on=True)
    keep_aligned: bool = True

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)

    def max_releases(self, protection: Protection, plan: Plan, passive: int) -> ReleaseCounts:
        return ReleaseCounts(features=None if self.trainable else 1)  # `max_reuse` depends on the rows

    def max_reuse(self, table: NumberedRows, active: str) -> int:
        """How often one row, or its label, is used at most in one pass over all places."""
        sizes = [len(table.rows_only_at(active)), *table.labelled.values()]
        mixed, train = max(sizes), len(table.split.train)
        instead = (
            sizes.count(0) * -(-mixed // train) if train else 0
        )  # parties without other rows feed aligned ones again
        together = 1 if self.keep_aligned else len(sizes)
        return max(1, together + instead, *(-(-mixed // size) for size in sizes if size))


def draw_places(
    table: NumberedRows, active: str, seed: int, epoch: int, *, keep_aligned: bool
) -> dict[str, np.ndarray]:
    """Party → the rows that it feeds at each place of an epoch, (places,), the same at all parties.

    The aligned training rows come first, together (or in a separate order for each party). Each party's other rows with
    known labels follow, in random order; a party with fewer of them starts over.
    """
    train = table.split.train
    pools = {active: table.rows_only_at(active)}
    pools |= {name: table.rows_only_at(name)[:count] for name, count in table.labelled.items()}
    mixed = max(len(pool) for pool in pools.values())
    found = {}
    for name, pool in pools.items():
        generator = np.random.default_rng(derive_seed(seed, "entity augmentation", name, epoch))
        together = train if keep_aligned else generator.permutation(train)
        source = pool if len(pool) else train
        rounds = [generator.permutation(source) for _ in range(-(-mixed // len(source)))]
        found[name] = np.concatenate([together, *rounds])[: len(train) + mixed]
    return found


def mixed_labels(parts: Mapping[str, torch.Tensor], widths: Mapping[str, int]) -> torch.Tensor:
    """``Σ_i w_i y_i / Σ_i w_i``, (n, classes).

    Args:
        parts: party → one-hot labels of its rows, (n, classes).
        widths: party → width of its activations.
    """
    total = sum(widths[name] for name in parts)
    return torch.stack([part * (widths[name] / total) for name, part in parts.items()]).sum(dim=0)


class _Books(Bookkeeping):
    """A row is fed at several places of an epoch, and a place has the labels of several rows."""

    repeats_begin_epoch = True  # the same places follow from the same seed
    role: _MixingRole

    def times(self, epochs: int) -> int:
        role = self.role
        return super().times(epochs) * role.config.max_reuse(role.table, role.site.active)

    def labelled_by(self, rows: np.ndarray) -> list[np.ndarray]:
        same = (rows < len(self.role.table.split.train)) & self.role.config.keep_aligned
        first, *others = [at[rows] for at in self.role.places.values()]
        return [first, *(other[~same] for other in others)]


class _MixingRole(Role):
    """Base of both roles: trains on all places, and feeds for each place the row that this epoch's draw puts there."""

    bookkeeping = _Books
    config: EntityAugmentation
    places: dict[str, np.ndarray]

    def training_rows(self, epoch: int) -> np.ndarray:
        most = max([len(self.table.rows_only_at(self.site.active)), *self.table.labelled.values()])
        return np.arange(len(self.table.split.train) + most)

    async def begin_epoch(self, epoch: int) -> bool:
        keep = self.config.keep_aligned
        every = draw_places(self.table, self.site.active, self.site.seed, epoch, keep_aligned=keep)
        self.places = {name: at for name, at in every.items() if name not in self.site.gone}
        return False

    def feed(self, rows: np.ndarray) -> np.ndarray:
        fed: np.ndarray = self.places[self.site.name][rows]
        return fed


class _Active(_MixingRole, Active):
    """Averages the labels of the rows at a place, with the weights of their parts in z."""

    config: EntityAugmentation

    def targets(self, rows: np.ndarray) -> torch.Tensor:
        widths = {self.site.active: self.half.own_width, **self.half.cut.widths}
        parts = {name: self.task.one_hot(self.labels(at[rows])) for name, at in self.places.items()}
        return mixed_labels(parts, {name: max(width, 1) for name, width in widths.items()})


class _Passive(_MixingRole, Passive):
    """Feeds this party's row at each place."""

    config: EntityAugmentation
