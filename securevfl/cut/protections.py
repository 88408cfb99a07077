"""The protections that a job can ask for. Each knows how to make both sides of the cut, and the policy that
enforces it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import securevfl_crypto as crypto

from securevfl.cut.auto import AutoActive, AutoPassive, Speed
from securevfl.cut.base import ActiveCut, CutSpec, PassiveCut
from securevfl.cut.exact import FixedActive, FixedPassive
from securevfl.cut.plain import FloatActive, FloatPassive
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.errors import InputError, ProtectionInactive
from securevfl.privacy import DP, Policy
from securevfl.site import Site
from securevfl.transport import Kind

__all__ = ["BFV", "CKKS", "PROTECTIONS", "Auto", "Paillier", "Plain", "Protection", "Sealed"]


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
class Sealed(ABC):
    """The sealed cut: weights are shared between the sides, everything else crosses under encryption."""

    name: ClassVar[str]
    dp: DP | None = None

    @property
    @abstractmethod
    def label(self) -> str:
        """The scheme with its size, for tables."""

    @abstractmethod
    def scheme(self) -> crypto.Scheme:
        """The scheme that seals."""

    @property
    def title(self) -> str:
        return _with_dp(self.label, self.dp)

    def policy(self) -> Policy:
        return Policy(sealed=True, noised=_noised(self.dp))

    def active_cut(self, site: Site, spec: CutSpec, noise: float) -> ActiveCut:
        if not site.passive:
            raise ProtectionInactive(
                f"protection {self.name!r} was asked for, but {site.name!r} is alone: there is nothing to seal"
            )
        return SealedActive(site, spec, self.scheme(), noise=noise)

    def passive_cut(self, site: Site, spec: CutSpec, noise: float) -> PassiveCut:
        return SealedPassive(site, spec, self.scheme(), noise=noise)


@dataclass(frozen=True, kw_only=True)
class Paillier(Sealed):
    """The sealed cut under Paillier: exact, with the least traffic.

    Attributes:
        bits: size of the modulus. 3072 gives 128-bit security; 2048 (112 bits) is the least accepted.
        classical: exponents as long as the modulus for the randomness, instead of short ones; all parties choose
            alike.
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "paillier"
    bits: int = 3072
    classical: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or not 2048 <= self.bits <= 8192 or self.bits % 64:
            raise InputError(
                f"a Paillier key of {self.bits} bits was asked for; 2048 (112-bit security) is the least, 8192 the "
                "most, in steps of 64: use 3072 for 128-bit security"
            )

    @property
    def label(self) -> str:
        return f"Paillier {self.bits}"

    def scheme(self) -> crypto.Scheme:
        return crypto.Paillier(bits=self.bits, classical=self.classical)

    def policy(self) -> Policy:
        return replace(super().policy(), min_key_bits=self.bits)


@dataclass(frozen=True, kw_only=True)
class BFV(Sealed):
    """The sealed cut under BFV: exact, fast, 128-bit security, more traffic than Paillier.

    Attributes:
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "bfv"

    @property
    def label(self) -> str:
        return "BFV"

    def scheme(self) -> crypto.Scheme:
        return crypto.BFV()


@dataclass(frozen=True, kw_only=True)
class CKKS(Sealed):
    """The sealed cut under CKKS: the fastest, 128-bit security; products carry an error far below the fixed point of
    activations.

    Attributes:
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "ckks"

    @property
    def label(self) -> str:
        return "CKKS"

    def scheme(self) -> crypto.Scheme:
        return crypto.CKKS()


@dataclass(frozen=True, kw_only=True)
class Auto(Sealed):
    """The sealed cut under the scheme that is fastest on these machines over these links, measured when the cut is set
    up. The report says which and why.

    Attributes:
        offers: names of the schemes to choose from.
        bits: size of the Paillier modulus.
        mbit: bandwidth of the links in Mbit/s, instead of measuring; with `latency_ms`.
        latency_ms: latency of the links, one way.
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "auto"
    offers: tuple[str, ...] = ("paillier", "bfv", "ckks")
    bits: int = 3072
    mbit: float | None = None
    latency_ms: float = 10.0

    def __post_init__(self) -> None:
        offers = tuple(self.offers)
        object.__setattr__(self, "offers", offers)
        known = ("paillier", "bfv", "ckks")
        if not offers or not set(offers) <= set(known):
            raise InputError(f"protection 'auto' offers {offers}; some of {', '.join(known)} are possible")
        if self.mbit is not None and not 0 < self.mbit <= 1e6:
            raise InputError(f"mbit is {self.mbit}; a bandwidth above 0 and up to 1e6 Mbit/s is possible")
        if not 0 <= self.latency_ms <= 1e5:
            raise InputError(f"latency_ms is {self.latency_ms}; 0 to 1e5 ms are possible")
        Paillier(bits=self.bits)

    @property
    def label(self) -> str:
        return "sealed, scheme by measurement"

    def scheme(self) -> crypto.Scheme:
        raise ProtectionInactive("protection 'auto' has no scheme before the cut is set up")

    def policy(self) -> Policy:
        return replace(super().policy(), min_key_bits=self.bits, protections=frozenset(self.offers))

    def schemes(self) -> dict[str, crypto.Scheme]:
        """What it offers, by name."""
        every: dict[str, Sealed] = {"paillier": Paillier(bits=self.bits), "bfv": BFV(), "ckks": CKKS()}
        return {name: every[name].scheme() for name in self.offers}

    @property
    def link(self) -> Speed | None:
        """The links as stated, or None."""
        return None if self.mbit is None else Speed(self.mbit * 1e6 / 8, self.latency_ms / 1e3)

    def active_cut(self, site: Site, spec: CutSpec, noise: float) -> ActiveCut:
        if not site.passive:
            raise ProtectionInactive(
                f"protection 'auto' was asked for, but {site.name!r} is alone: there is nothing to seal"
            )
        return AutoActive(site, spec, self.schemes(), link=self.link, noise=noise)

    def passive_cut(self, site: Site, spec: CutSpec, noise: float) -> PassiveCut:
        return AutoPassive(site, spec, self.schemes(), link=self.link, noise=noise)


PROTECTIONS: Mapping[str, type[Plain] | type[Sealed]] = {
    "auto": Auto,
    "bfv": BFV,
    "ckks": CKKS,
    "paillier": Paillier,
    "plain": Plain,
}
"""Name in job files → protection."""
