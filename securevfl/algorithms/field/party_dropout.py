"""Party dropout: masks passive parties' parts of z at random in training, so that the model can score without them.

``z = a_A W_A + b + Σ_p m_p a_p W_p``. For each aligned row, ``m_p = 0`` with probability r; for the active party's
other rows, all ``m_p`` are 0. The remaining parts are not scaled up. PlugVFL (Sun et al., arXiv 2303.18178) calls this
party-wise dropout; see `securevfl.algorithms.field.plugvfl`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from securevfl.algorithms.subset_roles import OnSubsets, SubsetActive, SubsetPassive
from securevfl.training.active_role import ActiveRole
from securevfl.training.fits import Fits
from securevfl.training.passive_role import PassiveRole
from securevfl.training.setting import Setting
from securevfl.training.subsets import Draw, drop_independently

__all__ = ["PartyDropout"]


class PartyDropout(OnSubsets):
    """Split learning with randomly missing passive parties.

    Attributes:
        drop: the probability r with which a passive party is left out of an aligned row.
        masks: see `OnSubsets`. With one passive party, and with ``"together"``, each batch draws its subsets again.
    """

    name: ClassVar[str] = "party_dropout"
    label: ClassVar[str] = "party dropout"
    fits: ClassVar[Fits] = Fits(dp={"joint", "stop"}, counts=True, goes_on=True)
    not_on_shares: ClassVar[str] = (
        "Which parties' parts a row's sum has differs by row and batch, and the network on shares sums all parties' "
        "inputs of common rows. "
    )
    drop: Annotated[float, Meta(ge=0, lt=1)] = 0.5

    def subset_draw(self) -> Draw:
        return drop_independently(self.drop)

    def redraws_subsets(self, units: int) -> bool:
        """True for a single unit: only one sum of a row can then be opened, so redrawing reveals no difference."""
        return self.masks == "redrawn" or units == 1

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


class _Active(SubsetActive[PartyDropout]):
    config: PartyDropout


class _Passive(SubsetPassive[PartyDropout]):
    config: PartyDropout
