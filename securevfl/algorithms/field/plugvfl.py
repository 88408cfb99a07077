"""PlugVFL, for passive parties that leave: party-wise dropout and DIMIP (Sun et al., arXiv 2303.18178).

A party that leaves keeps its bottom, which training made a good extractor for the active party's task. DIMIP keeps
labels out of that bottom: it adds ``λ I(z; y)`` to the task's loss, the mutual information of the passive parties' sum
and the label. The estimate is the upper bound CLUB (Cheng et al. 2020, arXiv 2006.12013) with a reader q of labels
from z: ``Î = mean_i [ log q(y_i | z_i) − Σ_c π_c log q(c | z_i) ]``, where π are the shares of the classes in the
batch. In turn, the reader maximises ``Σ log q(y_i | z_i)`` on fixed z.

The active party computes everything and sends back the gradient of both terms, so there is no further message. The
weight of the second term and the reader's shape are our choice.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch.nn import functional

from securevfl.algorithms.field.party_dropout import PartyDropout
from securevfl.algorithms.subset_roles import SubsetActive, SubsetPassive
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.training.active_role import ActiveRole
from securevfl.training.fits import Fits
from securevfl.training.halves import Networks
from securevfl.training.networks import build_mlp
from securevfl.training.passive_role import PassiveRole
from securevfl.training.seeding import seed_torch
from securevfl.training.setting import Setting

__all__ = ["PlugVFL", "estimate_information"]


class PlugVFL(PartyDropout):
    """Party dropout with a penalty on the labels in the passive parties' sum.

    Attributes:
        disguise: λ, the weight of the information on labels in the loss; 0 is party dropout.
        reader: widths of the hidden layers of q.
        reader_lr: q's learning rate.
    """

    name: ClassVar[str] = "plugvfl"
    label: ClassVar[str] = "PlugVFL"
    fits: ClassVar[Fits] = Fits(dp={"joint", "stop"}, counts=True)
    disguise: Annotated[float, Meta(ge=0, le=100)] = 0.1
    reader: tuple[Annotated[int, Meta(ge=1, le=1 << 16)], ...] = (64,)
    reader_lr: Annotated[float, Meta(gt=0, le=100)] = 0.003

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for noise on gradients, each of which depends on the labels of a whole batch.
        """
        super().check_protection(protection)
        if self.disguise and protection.dp is not None and protection.dp.gradient_noise is not None:
            raise InputError(
                "plugvfl has no differential privacy on gradients, for its estimate of the information on labels mixes "
                "those of a batch: use labels=sv.RandomisedResponse(…), or disguise = 0"
            )

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


def estimate_information(log_q: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """CLUB's estimate for each row, (n,): ``log q(y_i | z_i) − Σ_c π_c log q(c | z_i)``.

    Args:
        log_q: (n, classes).
        y: classes, (n,).
    """
    classes = torch.arange(log_q.shape[1], device=y.device)
    shares = (y[:, None] == classes).sum(dim=0).to(log_q.dtype) / len(y)  # not bincount, for which a GPU would wait
    return log_q.gather(1, y.unsqueeze(1)).squeeze(1) - log_q @ shares


class _Active(SubsetActive[PlugVFL]):
    """Trains a reader of labels from z, and the passive parties against it."""

    config: PlugVFL

    def build(self) -> None:
        super().build()
        config = self.config
        with seed_torch(self.seed("reader")):
            network = build_mlp([self.half.width, *config.reader, self.task.classes])
        self.reader = Networks(network, config.reader_lr, 0.0, self.plan.device)
        if config.disguise and self.site.passive:
            self.parts["reader"] = self.reader

    def extra_loss(self, z: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        y, read = self.labels(rows), self.reader.model
        if not self.config.disguise:
            return super().extra_loss(z, rows)
        self.reader.step(functional.cross_entropy(read(z.detach()), y))
        return self.config.disguise * estimate_information(read(z).log_softmax(dim=1), y).sum()


class _Passive(SubsetPassive[PlugVFL]):
    config: PlugVFL
