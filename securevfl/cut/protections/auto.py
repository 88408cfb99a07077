"""The protection that is chosen among others by measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import securevfl_crypto as crypto
from msgspec import Meta
from securevfl_net.fields import suggest_nearest

from securevfl.cut.costs import Speed, choose_fastest
from securevfl.cut.declared_exchanges import measuring_exchanges
from securevfl.cut.protections.base import Protection, find_protection
from securevfl.cut.protections.sealed import BFV, CKKS, KeyBits, Paillier, Sealed, key_problems
from securevfl.cut.spec import CutSpec, CutUse
from securevfl.party_context import PartyContext
from securevfl.privacy import Policy
from securevfl.transport import Exchange

if TYPE_CHECKING:
    from securevfl.cut.base import ActiveCut, PassiveCut

__all__ = ["Auto"]

_OFFERED: Mapping[str, type[Sealed]] = {kind.name: kind for kind in (Paillier, BFV, CKKS)}


_SHARES = "shares"


class Auto(Sealed):
    """The sealed cut under the scheme that is fastest on these machines over these links, measured when the cut is set
    up. The report says which and why.

    Attributes:
        offers: names of the schemes to choose from; with ``"shares"`` among them, training on secret shares too, if its
            assumption suits the parties: that is settled before they meet, by `mbit`, `latency_ms` and `cores`.
        bits: size of the Paillier modulus.
        mbit: bandwidth of the links in Mbit/s, instead of measuring; with `latency_ms`.
        latency_ms: latency of the links, one way.
        cores: of each party, where shares are offered.
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "auto"
    offers: Annotated[tuple[str, ...], Meta(min_length=1)] = tuple(_OFFERED)
    bits: KeyBits = 3072
    mbit: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    latency_ms: Annotated[float, Meta(ge=0, le=1e5)] = 10.0
    cores: Annotated[int, Meta(ge=1, le=1024)] = 1

    def problems(self) -> list[str]:
        known = {*_OFFERED, _SHARES}
        found = [f"auto offers {name!r}{suggest_nearest(name, known)}" for name in self.offers if name not in known]
        if _SHARES in self.offers and self.mbit is None:
            found.append("auto offers 'shares', which is settled before there are links to measure: give mbit=…")
        if set(self.offers) == {_SHARES}:
            found.append("auto offers 'shares' alone: name the protection 'shares' itself, or offer a scheme besides")
        return super().problems() + found + key_problems(self.bits)

    def _offered_protections(self) -> list[Sealed]:
        """The protections to choose from, in their order."""
        names = [name for name in self.offers if name != _SHARES]
        return [Paillier(bits=self.bits) if name == Paillier.name else _OFFERED[name]() for name in names]

    @property
    def label(self) -> str:
        return "sealed, scheme by measurement"

    @property
    def key_bits(self) -> int:
        return max(kind.key_bits for kind in self._offered_protections())

    def schemes(self) -> Mapping[str, crypto.Scheme]:
        return {name: scheme for kind in self._offered_protections() for name, scheme in kind.schemes().items()}

    def redraws_shares(self, use: CutUse) -> bool | None:
        answers = {kind.redraws_shares(use) for kind in self._offered_protections()}
        return answers.pop() if len(answers) == 1 else None

    def policy(self) -> Policy:
        return super().policy().replace(min_key_bits=self.bits, protections=self.ciphers)

    def choose(self, rows: int, *, on_shares: bool) -> tuple[Protection, str]:
        """What to train under, and why, in words; empty where only schemes are offered, which are measured later.

        Args:
            rows: of a batch.
            on_shares: whether the parties and the algorithm allow training on shares.
        """
        if _SHARES not in self.offers or self.mbit is None:
            return self, ""
        rest = self.replace(offers=tuple(name for name in self.offers if name != _SHARES))
        if not on_shares:
            return rest, ""
        took, why = choose_fastest(self.offers, rows, mbit=self.mbit, latency_ms=self.latency_ms, cores=self.cores)
        return (find_protection(_SHARES)(dp=self.dp) if took == _SHARES else rest), why

    @property
    def stated_links(self) -> Speed | None:
        """The links as stated, or None."""
        return None if self.mbit is None else Speed(self.mbit * 1e6 / 8, self.latency_ms / 1e3)

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        return measuring_exchanges(passive, probes=self.stated_links is None) + super().exchanges(use, passive)

    def active_cut(self, site: PartyContext, spec: CutSpec) -> ActiveCut:
        from securevfl.cut.auto import AutoActive

        self.refuse_alone(site)
        return AutoActive(site, spec, self.schemes(), link=self.stated_links)

    def passive_cut(self, site: PartyContext, spec: CutSpec) -> PassiveCut:
        from securevfl.cut.auto import AutoPassive

        return AutoPassive(site, spec, self.schemes(), link=self.stated_links)
