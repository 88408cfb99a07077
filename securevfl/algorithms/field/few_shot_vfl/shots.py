"""The base of both roles of few-shot VFL: the uploads and the rows in them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import nn

from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.bottoms import Bottom
from securevfl.training.halves import Networks
from securevfl.training.role import Role
from securevfl.training.setting import Configuration

__all__ = ["FewShotRole", "FewShotSettings"]


class FewShotSettings(Configuration, Protocol):
    """The part of `FewShotVFL` that the roles use."""

    few_shot: bool
    bottom: Bottom
    top: tuple[int, ...]
    lr: float
    weight_decay: float
    local_steps: int
    confidence: float
    unlabelled: float
    masked: float
    noise: float
    agreement: float
    temperature: float

    @property
    def upload_count(self) -> int:
        """How often a passive party sends representations to train with."""
        ...


class ShotBooks(Bookkeeping):
    """Rows are released in uploads, not in epochs."""

    role: FewShotRole

    def activation_times(self, epochs: int) -> int:
        return self.role.config.upload_count


class FewShotRole(Role):
    """Base of both roles: the rows of each upload.

    Attributes:
        met: whether the uploads are over. The last one includes the validation rows.
        chosen: training rows of the classifier, once the second round has chosen them.
    """

    bookkeeping = ShotBooks
    config: FewShotSettings
    met = False
    chosen: np.ndarray | None = None

    def new_networks(self, model: nn.Module) -> Networks:
        """A part of this party's that learns."""
        return Networks(model, self.config.lr, self.config.weight_decay, self.plan.device)

    def training_rows(self, epoch: int) -> np.ndarray:
        if self.chosen is not None:
            return self.chosen
        train, own = self.table.split.train, self.table.rows_only_at(self.site.active)
        return np.concatenate([train, own]) if self.config.few_shot else train

    def upload_rows(self, party: str, shot: int, labelled: np.ndarray) -> np.ndarray:
        """Numbers of the rows in upload number `shot` (from 1) of a passive party.

        Every upload has the aligned training rows. The second of three adds all of the party's other rows, the last one
        those that were labelled. All but the first include the validation rows.
        """
        split = self.table.split
        if shot == 1:
            return split.train
        others = labelled if shot == self.config.upload_count else self.table.rows_only_at(party)
        return np.concatenate([split.train, others, split.valid])

    def has_all(self, rows: np.ndarray) -> bool:
        """Whether the active party has all parties' representations of these rows already."""
        return self.met and bool(np.isin(rows, self.table.split.valid).all())
