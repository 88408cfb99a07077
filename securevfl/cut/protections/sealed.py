"""The sealed cut under each scheme."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

import securevfl_crypto as crypto
from msgspec import Meta

from securevfl.cut.declared_exchanges import Ciphers, sealed_exchanges
from securevfl.cut.protections.base import Protection, find_protection, protections
from securevfl.cut.spec import CutSpec, CutUse
from securevfl.errors import ProtectionInactive
from securevfl.party_context import PartyContext
from securevfl.privacy import Policy
from securevfl.transport import Exchange

if TYPE_CHECKING:
    from securevfl.cut.base import ActiveCut, PassiveCut

__all__ = ["BFV", "CKKS", "KeyBits", "Paillier", "Sealed", "key_problems", "sealing_protections"]

KeyBits = Annotated[
    int, Meta(ge=2048, le=8192, description="2048 bits give 112-bit security, 3072 bits give 128-bit security")
]
"""Size of a Paillier modulus."""


class Sealed(Protection):
    """The sealed cut: weights are shared between the sides, everything else crosses under encryption."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The scheme with its size, for tables."""

    @abstractmethod
    def schemes(self) -> Mapping[str, crypto.Scheme]:
        """The schemes that may seal, by name."""

    @property
    def title(self) -> str:
        # A party's own model is trained without a cut: under a seal, noise on a model is noise on the common one.
        return self.label + (f" + {self.dp.title_for('the model')}" if self.dp else "")

    @property
    def ciphers(self) -> frozenset[str]:
        return frozenset(self.schemes())

    def redraws_shares(self, use: CutUse) -> bool | None:
        """Whether shares of the weights are drawn anew in each step; None where that depends on sizes or choices."""
        if use.rounds or use.integer_shares:
            return True
        return None if use.trainable else False

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        ciphers = Ciphers(names=self.ciphers, key_bits=self.key_bits, reshares=self.redraws_shares(use))
        return sealed_exchanges(self.dp, ciphers, use, passive)

    def active_cut(self, site: PartyContext, spec: CutSpec) -> ActiveCut:
        from securevfl.cut.sealed import SealedActive

        self.refuse_alone(site)
        (scheme,) = self.schemes().values()
        return SealedActive(site, spec, scheme)

    def passive_cut(self, site: PartyContext, spec: CutSpec) -> PassiveCut:
        from securevfl.cut.sealed import SealedPassive

        (scheme,) = self.schemes().values()
        return SealedPassive(site, spec, scheme)

    def refuse_alone(self, site: PartyContext) -> None:
        """Do nothing, unless a party is alone.

        Raises:
            ProtectionInactive: it is: there is nothing to seal.
        """
        if not site.passive:
            raise ProtectionInactive(
                f"protection {self.name!r} was asked for, but {site.name!r} is alone: there is nothing to seal"
            )


def key_problems(bits: int) -> list[str]:
    """What is wrong with a size of a Paillier key."""
    return [f"a Paillier key of {bits} bits was asked for; it has a multiple of 64: use 3072"] if bits % 64 else []


class Paillier(Sealed):
    """The sealed cut under Paillier: exact, with the least traffic.

    Attributes:
        bits: size of the modulus. 3072 gives 128-bit security; 2048 (112 bits) is the least accepted.
        classical: exponents as long as the modulus for the randomness, instead of short ones; all parties choose
            alike.
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "paillier"
    bits: KeyBits = 3072
    classical: bool = False

    def problems(self) -> list[str]:
        return super().problems() + key_problems(self.bits)

    @property
    def label(self) -> str:
        return f"Paillier {self.bits}"

    @property
    def key_bits(self) -> int:
        return self.bits

    def schemes(self) -> Mapping[str, crypto.Scheme]:
        return {self.name: crypto.Paillier(bits=self.bits, classical=self.classical)}

    def redraws_shares(self, use: CutUse) -> bool | None:
        return True

    def policy(self) -> Policy:
        return super().policy().replace(min_key_bits=self.bits)


class BFV(Sealed):
    """The sealed cut under BFV: exact, fast, 128-bit security, more traffic than Paillier.

    Attributes:
        dp: differential privacy on top.
    """

    name: ClassVar[str] = "bfv"

    @property
    def label(self) -> str:
        return "BFV"

    def schemes(self) -> Mapping[str, crypto.Scheme]:
        return {self.name: crypto.BFV()}


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

    def schemes(self) -> Mapping[str, crypto.Scheme]:
        return {self.name: crypto.CKKS()}


def sealing_protections() -> list[str]:
    """Names in job files of the installed protections that encrypt at the cut: messages list them from here."""
    return [name for name in protections() if issubclass(find_protection(name), Sealed)]
