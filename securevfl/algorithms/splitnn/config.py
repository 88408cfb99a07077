"""The configuration of SplitNN. It imports its roles where it makes them: to propose a job takes no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from securevfl.algorithms.splitnn.settings import SplitNNSettings
from securevfl.training.fits import Fits

if TYPE_CHECKING:
    from securevfl.export import ExportedModel, PartSource
    from securevfl.training.active_role import ActiveRole
    from securevfl.training.passive_role import PassiveRole
    from securevfl.training.setting import Setting

__all__ = ["SplitNN"]


class SplitNN(SplitNNSettings):
    """Split learning on the aligned rows.

    Attributes:
        hidden: width h of the cut, the first hidden layer that all parties share.
        top: widths of the top model's hidden layers.
        bottom: widths of each party's bottom model, the last one that of its activations; ``()`` for the identity; or
            the name of a convolutional network: ``"cnn"``, ``"cnn-fedcvt"``, ``"cnn-multivfl"``, ``"resnet18"``,
            ``"resnet56"``; or `Frozen`: features that passive parties draw and never train.
        lr: Adam's learning rate, for bottoms, top and the active party's own block of the cut.
        cut_lr: SGD's learning rate η, for the passive parties' blocks of the cut.
        cut_momentum: that SGD's momentum μ.
        cut_weight_decay: that SGD's L2 penalty λ.
        weight_decay: L2 penalty of the parameters that Adam trains.
    """

    name: ClassVar[str] = "splitnn"
    label: ClassVar[str] = "SplitNN"
    fits: ClassVar[Fits] = Fits(
        dp={"joint", "stop"},
        learns={"labels", "numbers", "weights"},
        shares=True,
        counts=True,
        exports=True,
        starts=True,
    )

    def export_model(self, source: PartSource) -> ExportedModel:
        from securevfl.algorithms.splitnn.exporting import export_half

        return export_half(source, self.build_architecture(source.outputs))

    def active(self, setting: Setting) -> ActiveRole:
        from securevfl.algorithms.splitnn.roles import Active

        return Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        from securevfl.algorithms.splitnn.roles import Passive

        return Passive(self, setting)
