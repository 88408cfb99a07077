"""SSL + VFL: self-supervised pretraining of each party's bottom, then SplitNN on the aligned rows.

Each party pretrains on all of its rows without labels, as SimCLR does (Chen et al. 2020, arXiv 2002.05709), and sends
nothing for it. Loss and views are those of `securevfl.training.self_supervised`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from torch import nn

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.training.active_role import ActiveRole
from securevfl.training.fits import Fits
from securevfl.training.passive_role import PassiveRole
from securevfl.training.role import Role
from securevfl.training.self_supervised import pretrain_bottom
from securevfl.training.setting import Setting

__all__ = ["SelfSupervised"]


class SelfSupervised(SplitNN):
    """SplitNN with pretrained bottoms. The bottoms need parameters.

    Attributes:
        pretraining: number of pretraining steps at each party.
        temperature: τ of NT-Xent.
        corruption: share of a table's columns exchanged in a view, or of an image's pixels for a perceptron.
    """

    name: ClassVar[str] = "ssl"
    label: ClassVar[str] = "SSL + VFL"
    fits: ClassVar[Fits] = Fits(counts=True)
    not_frozen: ClassVar[str] = "ssl goes on training what it pretrained; splitnn has Frozen(…, learned='own rows')"
    uses_others: ClassVar[bool] = True
    pretraining: Annotated[int, Meta(ge=0)] = 1200
    temperature: Annotated[float, Meta(gt=0, le=10)] = 0.5
    corruption: Annotated[float, Meta(ge=0, lt=1)] = 0.4

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.bottom:
            found += ["ssl.bottom is (); there is nothing to pretrain: give widths, such as [64], or 'cnn'"]
        return found

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def _pretrain_role(role: Role, config: SelfSupervised, bottom: nn.Module, width: int) -> None:
    """Pretrain a role's bottom on all of its party's training rows."""
    table = role.table
    rows = role.features(np.concatenate([table.split.train, table.rows_only_at(role.site.name)]))
    pretrain_bottom(
        bottom,
        width,
        rows,
        steps=config.pretraining,
        batch=role.nominal_batch,
        seed=role.seed("ssl"),
        temperature=config.temperature,
        corruption=config.corruption,
        shifted=isinstance(config.bottom, str),
    )


class _Active(Active):
    """SplitNN's, with a bottom that is pretrained."""

    config: SelfSupervised

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            _pretrain_role(self, self.config, self.half.bottom, self.half.own_width)
        return False


class _Passive(Passive):
    """SplitNN's, with a bottom that is pretrained."""

    config: SelfSupervised

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            _pretrain_role(self, self.config, self.half.bottom, self.half.width)
        return False
