"""The protections that a job can ask for. Each knows how to make both sides of the cut, and the policy that
enforces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from securevfl.cut.base import ActiveCut, CutSpec, PassiveCut
from securevfl.cut.exact import FixedActive, FixedPassive
from securevfl.cut.plain import FloatActive, FloatPassive
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.errors import InputError, ProtectionInactive
from securevfl.party import Site
from securevfl.privacy import DP, Policy
from securevfl.transport import Kind

__all__ = ["PROTECTIONS", "Paillier", "Plain", "Protection"]


class Protection(Protocol):
    """What a job asks for to protect what crosses the cut.

    Attributes:
        name: as in job files.
        dp: differential privacy on top, or None.
    """

    name: ClassVar[str]

    @property
    def dp(self) -> DP | None: ...

    @property
    def title(self) -> str:
        """For tables and reports."""
        ...

    def policy(self) -> Policy:
        """The floor that this protection sets for every party: what it forbids cannot be sent."""
        ...

    def active_cut(self, site: Site, spec: CutSpec, noise: float) -> ActiveCut:
        """The active party's side of the cut; `noise` is the gradients' noise multiplier (0 for none)."""
        ...

    def passive_cut(self, site: Site, spec: CutSpec, noise: float) -> PassiveCut:
        """A passive party's side of the cut; `noise` is the activations' noise multiplier (0 for none)."""
        ...


def _with_dp(text: str, dp: DP | None) -> str:
    return f"{text} + {dp.describe()}" if dp else text


def _noised(dp: DP | None) -> frozenset[Kind]:
    if dp is None:
        return frozenset()
    features = frozenset({Kind.ACTIVATION, Kind.REPRESENTATION}) if dp.activations else frozenset()
    return features | (frozenset({Kind.GRADIENT}) if dp.gradients else frozenset())


@dataclass(frozen=True, kw_only=True)
class Plain:
    """No encryption: activations and gradients are readable by their receiver.

    Attributes:
        fixed_point: compute in the integers of the sealed cut, to compare with it bit by bit (CPU, slower).
        dp: differential privacy on what is sent.
    """

    name: ClassVar[str] = "plain"
    fixed_point: bool = False
    dp: DP | None = None

    @property
    def title(self) -> str:
        if self.fixed_point:
            return _with_dp("plain, fixed point", self.dp)
        return self.dp.describe() if self.dp else "plain"

    def policy(self) -> Policy:
        return Policy(noised=_noised(self.dp))

    def active_cut(self, site: Site, spec: CutSpec, noise: float) -> ActiveCut:
        return (FixedActive if self.fixed_point else FloatActive)(site, spec, noise)

    def passive_cut(self, site: Site, spec: CutSpec, noise: float) -> PassiveCut:
        return (FixedPassive if self.fixed_point else FloatPassive)(site, spec, noise)


@dataclass(frozen=True, kw_only=True)
class Paillier:
    """The sealed cut: weights are shared between the sides, everything else crosses under Paillier encryption.

    Attributes:
        bits: size of the modulus. 3072 gives 128-bit security; 2048 (112 bits) is the least accepted.
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "paillier"
    bits: int = 3072
    dp: DP | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or not 2048 <= self.bits <= 8192 or self.bits % 64:
            raise InputError(
                f"a Paillier key of {self.bits} bits was asked for; 2048 (112-bit security) is the least, 8192 "
                "the most, "
                "in steps of 64: use 3072 for 128-bit security"
            )

    @property
    def title(self) -> str:
        return _with_dp(f"Paillier {self.bits}", self.dp)

    def policy(self) -> Policy:
        return Policy(sealed=True, min_key_bits=self.bits, noised=_noised(self.dp))

    def active_cut(self, site: Site, spec: CutSpec, noise: float) -> ActiveCut:
        if not site.passive:
            raise ProtectionInactive(
                f"protection 'paillier' was asked for, but {site.name!r} is alone: there is nothing to seal"
            )
        return SealedActive(site, spec, bits=self.bits, noise=noise)

    def passive_cut(self, site: Site, spec: CutSpec, noise: float) -> PassiveCut:
        return SealedPassive(site, spec, bits=self.bits, noise=noise)


PROTECTIONS: Mapping[str, type[Plain] | type[Paillier]] = {"paillier": Paillier, "plain": Plain}
"""Name in job files → protection."""
