"""No encryption; and no protection named.

A protection is plain data; the methods that make a side of its cut import what computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from securevfl.cut.declared_exchanges import plain_exchanges
from securevfl.cut.protections.base import Protection, with_dp
from securevfl.cut.spec import CutSpec, CutUse
from securevfl.party_context import PartyContext
from securevfl.transport import Exchange

if TYPE_CHECKING:
    from securevfl.cut.base import ActiveCut, PassiveCut

__all__ = ["Plain", "Unnamed"]


class Plain(Protection):
    """No encryption: activations and gradients are readable by their receiver.

    Attributes:
        fixed_point: compute in the integers of the sealed cut, to compare with it bit by bit (CPU, slower).
        dp: differential privacy on what is sent.
    """

    name: ClassVar[str] = "plain"
    fixed_point: bool = False

    @property
    def title(self) -> str:
        if self.fixed_point:
            return with_dp("plain, fixed point", self.dp)
        return self.dp.title if self.dp else "plain"

    @property
    def uses_integers(self) -> bool:
        return self.fixed_point

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        return plain_exchanges(self.dp, use, passive)

    def active_cut(self, site: PartyContext, spec: CutSpec) -> ActiveCut:
        from securevfl.cut.exact import FixedActive
        from securevfl.cut.plain import FloatActive

        return (FixedActive if self.fixed_point else FloatActive)(site, spec)

    def passive_cut(self, site: PartyContext, spec: CutSpec) -> PassiveCut:
        from securevfl.cut.exact import FixedPassive
        from securevfl.cut.plain import FloatPassive

        return (FixedPassive if self.fixed_point else FloatPassive)(site, spec)


class Unnamed(Plain):
    """The job names no protection. The default depends on the parties, so it is chosen once they are known: see
    `securevfl.party.default_protection`. Until then every message counts as in the clear, the worst case, and no run
    starts.
    """

    name: ClassVar[str] = "unnamed"

    @property
    def title(self) -> str:
        return "no protection named"
