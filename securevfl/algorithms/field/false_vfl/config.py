"""The configuration of FALSE-VFL."""

from __future__ import annotations

from typing import ClassVar

from securevfl.algorithms.field.false_vfl.roles import FalseActive, FalsePassive
from securevfl.algorithms.field.false_vfl.settings import FalseSettings
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.setting import Setting

__all__ = ["FalseVFL"]


class FalseVFL(FalseSettings):
    """A generative model of all parties' columns, and a classifier of its latent variable.

    Attributes:
        bottom: widths of each party's encoder, and of the one from h to z; decoders have them in reverse.
        latent: width of h, the same at all parties.
        deep: width of z.
        top: widths of the classifier's hidden layers.
        samples: κ, importance samples of a row.
        pretraining: steps in which the generative model learns from all rows.
        lr: Adam's learning rate, at all parties.
    """

    name: ClassVar[str] = "false_vfl"
    label: ClassVar[str] = "FALSE-VFL"

    def active(self, setting: Setting) -> ActiveRole:
        return FalseActive(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return FalsePassive(self, setting)
