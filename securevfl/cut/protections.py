"""The protections that a job can ask for. Each makes both sides of its cut, declares every message of it, and sets the
policy that enforces it. Nothing outside this file knows a protection by its name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import securevfl_crypto as crypto
from msgspec import Meta

from securevfl.config import Config
from securevfl.cut.auto import AutoActive, AutoPassive, Speed
from securevfl.cut.base import ActiveCut, CutSpec, CutUse, PassiveCut
from securevfl.cut.costs import choose
from securevfl.cut.declared import Ciphers, measuring_exchanges, plain_exchanges, sealed_exchanges
from securevfl.cut.exact import FixedActive, FixedPassive
from securevfl.cut.plain import FloatActive, FloatPassive
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.cut.share_exchanges import share_exchanges
from securevfl.cut.unused import NoActiveCut, NoPassiveCut
from securevfl.errors import InputError, ProtectionInactive
from securevfl.fields import nearest
from securevfl.privacy import DP, Policy
from securevfl.site import Site
from securevfl.transport import Exchange, Kind

__all__ = [
    "BFV",
    "CKKS",
    "PROTECTIONS",
    "Auto",
    "KeyBits",
    "Paillier",
    "Plain",
    "Protection",
    "Sealed",
    "Shares",
    "Unnamed",
]


KeyBits = Annotated[
    int, Meta(ge=2048, le=8192, description="2048 bits give 112-bit security, 3072 bits give 128-bit security")
]
"""Size of a Paillier modulus."""


class Protection(Config):
    """What a job asks for to protect what crosses the cut. Subclass it, or one of the protections below, to add one;
    `securevfl.testing.check_protection` checks the result.

    Attributes:
        name: as in job files.
        on_shares: whether three computing parties train the whole network on shares, and there is no cut.
        dp: differential privacy on top, or None.
    """

    name: ClassVar[str]
    on_shares: ClassVar[bool] = False
    dp: DP | None = None

    @classmethod
    def known(cls) -> Mapping[str, type[Config]]:
        """All protections of job files, or a class itself where it has a name."""
        return super().known() or PROTECTIONS

    @property
    @abstractmethod
    def title(self) -> str:
        """For tables and reports."""

    @property
    def ciphers(self) -> frozenset[str]:
        """Names of the schemes under which content may cross; empty where it is not encrypted."""
        return frozenset()

    @property
    def sealed(self) -> bool:
        """Whether row-level content crosses encrypted only."""
        return bool(self.ciphers)

    @property
    def integers(self) -> bool:
        """Whether the cut computes in fixed-point integers, on the CPU."""
        return self.sealed

    @property
    def key_bits(self) -> int:
        """Size of a Paillier modulus; 0 without."""
        return 0

    @property
    def hands_out(self) -> bool:
        """Whether a model that was trained on shares is opened at the end, to each party its own part."""
        return False

    def computing_parties(self, active: str, passive: Sequence[str], coordinator: str = "") -> tuple[str, ...]:
        """Names of the parties that train on shares; empty where each trains its own half, at a cut.

        Args:
            active: the party with the labels.
            passive: the parties with features alone.
            coordinator: the party without data; empty where there is none, or where it is not known yet.

        Raises:
            InputError: parties that cannot be these; says what to do.
        """
        return ()

    def coordinator_among(self, parties: Collection[str]) -> str:
        """The name of the party without data that this protection asks for beside `parties`; empty for none."""
        return ""

    def policy(self) -> Policy:
        """The floor that this protection sets for every party: what it forbids cannot be sent."""
        return Policy(sealed=self.sealed, noised=_noised_kinds(self.dp))

    def assumes(self, active: Sequence[str], passive: Sequence[str]) -> str:
        """What has to hold besides, so that nobody learns more than is declared; empty where nothing does. It follows
        "if", and stands above the table of who could read what.

        Args:
            active: names of the label owners.
            passive: names of the passive parties.
        """
        return ""

    @abstractmethod
    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        """Every message of the cut, with what its receiver learns. Links refuse all others.

        Args:
            use: what the algorithm asks of the cut.
            passive: number of passive parties; there are no messages without any.
        """

    @abstractmethod
    def active_cut(self, site: Site, spec: CutSpec) -> ActiveCut:
        """The active party's side of the cut."""

    @abstractmethod
    def passive_cut(self, site: Site, spec: CutSpec) -> PassiveCut:
        """A passive party's side of the cut."""


def _with_dp(text: str, dp: DP | None) -> str:
    return f"{text} + {dp.title}" if dp else text


def _noised_kinds(dp: DP | None) -> frozenset[Kind]:
    """Kinds of which every message in the clear has to carry noise."""
    if dp is None:
        return frozenset()
    features = frozenset({Kind.ACTIVATION, Kind.REPRESENTATION}) if dp.features else frozenset()
    return features | (frozenset({Kind.GRADIENT}) if dp.gradients else frozenset())


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
            return _with_dp("plain, fixed point", self.dp)
        return self.dp.title if self.dp else "plain"

    @property
    def integers(self) -> bool:
        return self.fixed_point

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        return plain_exchanges(self.dp, use, passive)

    def active_cut(self, site: Site, spec: CutSpec) -> ActiveCut:
        return (FixedActive if self.fixed_point else FloatActive)(site, spec)

    def passive_cut(self, site: Site, spec: CutSpec) -> PassiveCut:
        return (FixedPassive if self.fixed_point else FloatPassive)(site, spec)


class Unnamed(Plain):
    """No protection was named. What holds by default depends on the parties, and is settled once they are known: see
    `securevfl.party.settling`. Until then everything is declared as in the clear, which is the worst, and nothing can
    train with anybody.
    """

    name: ClassVar[str] = "unnamed"

    @property
    def title(self) -> str:
        return "no protection named"


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
        return _with_dp(self.label, self.dp)

    @property
    def ciphers(self) -> frozenset[str]:
        return frozenset(self.schemes())

    def reshares(self, use: CutUse) -> bool | None:
        """Whether shares of the weights are drawn anew in each step; None where that depends on sizes or choices."""
        if use.rounds or use.integer_shares:
            return True
        return None if use.trainable else False

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        ciphers = Ciphers(names=self.ciphers, key_bits=self.key_bits, reshares=self.reshares(use))
        return sealed_exchanges(self.dp, ciphers, use, passive)

    def active_cut(self, site: Site, spec: CutSpec) -> ActiveCut:
        self.refuse_alone(site)
        (scheme,) = self.schemes().values()
        return SealedActive(site, spec, scheme)

    def passive_cut(self, site: Site, spec: CutSpec) -> PassiveCut:
        (scheme,) = self.schemes().values()
        return SealedPassive(site, spec, scheme)

    def refuse_alone(self, site: Site) -> None:
        """Do nothing, unless a party is alone.

        Raises:
            ProtectionInactive: it is: there is nothing to seal.
        """
        if not site.passive:
            raise ProtectionInactive(
                f"protection {self.name!r} was asked for, but {site.name!r} is alone: there is nothing to seal"
            )


def _key_problems(bits: int) -> list[str]:
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
        return super().problems() + _key_problems(self.bits)

    @property
    def label(self) -> str:
        return f"Paillier {self.bits}"

    @property
    def key_bits(self) -> int:
        return self.bits

    def schemes(self) -> Mapping[str, crypto.Scheme]:
        return {self.name: crypto.Paillier(bits=self.bits, classical=self.classical)}

    def reshares(self, use: CutUse) -> bool | None:
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
        found = [f"auto offers {name!r}{nearest(name, known)}" for name in self.offers if name not in known]
        if _SHARES in self.offers and self.mbit is None:
            found.append("auto offers 'shares', which is settled before there are links to measure: give mbit=…")
        if set(self.offers) == {_SHARES}:
            found.append("auto offers 'shares' alone: name the protection 'shares' itself, or offer a scheme besides")
        return super().problems() + found + _key_problems(self.bits)

    def _offered(self) -> list[Sealed]:
        """The protections to choose from, in their order."""
        names = [name for name in self.offers if name != _SHARES]
        return [Paillier(bits=self.bits) if name == Paillier.name else _OFFERED[name]() for name in names]

    @property
    def label(self) -> str:
        return "sealed, scheme by measurement"

    @property
    def key_bits(self) -> int:
        return max(kind.key_bits for kind in self._offered())

    def schemes(self) -> Mapping[str, crypto.Scheme]:
        return {name: scheme for kind in self._offered() for name, scheme in kind.schemes().items()}

    def reshares(self, use: CutUse) -> bool | None:
        answers = {kind.reshares(use) for kind in self._offered()}
        return answers.pop() if len(answers) == 1 else None

    def policy(self) -> Policy:
        return super().policy().replace(min_key_bits=self.bits, protections=self.ciphers)

    def chosen(self, rows: int, *, on_shares: bool) -> tuple[Protection, str]:
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
        took, why = choose(self.offers, rows, mbit=self.mbit, latency_ms=self.latency_ms, cores=self.cores)
        return (Shares(dp=self.dp) if took == _SHARES else rest), why

    @property
    def link(self) -> Speed | None:
        """The links as stated, or None."""
        return None if self.mbit is None else Speed(self.mbit * 1e6 / 8, self.latency_ms / 1e3)

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        return measuring_exchanges(passive, probes=self.link is None) + super().exchanges(use, passive)

    def active_cut(self, site: Site, spec: CutSpec) -> ActiveCut:
        self.refuse_alone(site)
        return AutoActive(site, spec, self.schemes(), link=self.link)

    def passive_cut(self, site: Site, spec: CutSpec) -> PassiveCut:
        return AutoPassive(site, spec, self.schemes(), link=self.link)


_COMPUTING = 3
"""Parties among which everything is shared: any two could read it, none alone."""


class Shares(Protection):
    """Training on secret shares: nobody learns z, activations, gradients or weights, if no two of the three computing
    parties put together what they hold, and all follow the protocol. Replicated sharing modulo 2^64 (Araki et al.
    2016).

    Any number of parties deal their rows to the three, who train the whole network on shares. The network's optimiser
    is SGD with momentum and weight decay: it is linear, where Adam takes square roots. Its rates stand here, for those
    of an algorithm are Adam's.

    Attributes:
        computing: names of the three, the active party among them; a name that no party with a table has is that of a
            coordinator without data. Empty: the active party and the first two others.
        lr: η, the learning rate of all weights.
        momentum: μ.
        weight_decay: λ.
        model: what becomes of the trained model. ``"shares"``: it stays in shares. ``"parts"``: it is opened at the end
            of training, to each data party the weights of its own columns, to the active one those above, too;
            predictions take the parts in as shares again.
        dp: labels drawn by randomised response; noise on the steps of the model, where it has one layer: each computing
            party adds its own inside the shares, and that of any two reaches ε; or None.
    """

    name: ClassVar[str] = "shares"
    on_shares: ClassVar[bool] = True
    computing: tuple[str, ...] = ()
    lr: Annotated[float, Meta(gt=0, le=10)] = 0.2
    momentum: Annotated[float, Meta(ge=0, le=0.99)] = 0.9
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    model: Literal["shares", "parts"] = "shares"

    def problems(self) -> list[str]:
        found = super().problems()
        names = self.computing
        if names and (len(names) != _COMPUTING or len(set(names)) != _COMPUTING or not all(names)):
            told = ", ".join(name or "a party without a name" for name in names)
            found.append(
                f"computing names {told}; three different parties are needed: the active one and two "
                "others, of which one may be a coordinator without data"
            )
        return found

    @property
    def title(self) -> str:
        title = "secret shares" + (", model handed out" if self.hands_out else "")
        return title + (f" + {self.dp.titled('the model')}" if self.dp else "")

    @property
    def hands_out(self) -> bool:
        return self.model == "parts"

    @property
    def sealed(self) -> bool:
        return True

    def computing_parties(self, active: str, passive: Sequence[str], coordinator: str = "") -> tuple[str, ...]:
        known = [active, *passive, *([coordinator] if coordinator else [])]
        if not self.computing:
            if len(known) < _COMPUTING:
                cure = ", ".join(f'"{name}"' for name in (*known, "coordinator"))
                raise InputError(
                    f"protection 'shares' needs three computing parties and there are {len(known)} "
                    f"({', '.join(known)}): add a coordinator without data, computing=({cure})"
                )
            return tuple(known[:_COMPUTING])
        if active not in self.computing:
            raise InputError(
                f"computing names {', '.join(self.computing)}; the active party, {active!r}, has to be one of them"
            )
        strangers = [name for name in self.computing if name not in (active, *passive)]
        if len(strangers) > 1 or (coordinator and strangers not in ([], [coordinator])):
            raise InputError(
                f"computing names {', '.join(strangers)}, who take no part: the parties are {', '.join(known)}, and "
                "one coordinator without data may be added"
            )
        others = sorted(name for name in self.computing if name not in (active, *strangers))
        return (active, *others, *strangers)

    def assumes(self, active: Sequence[str], passive: Sequence[str]) -> str:
        one, other, last = self.computing or ("the active party", "a second", "a third one")
        if not self.computing and active and passive:
            known = [active[0], *sorted(passive), "the coordinator"]
            one, other, last = known[:_COMPUTING]
        return f"no two of {one}, {other} and {last} put together what they hold, and all three follow the protocol"

    def coordinator_among(self, parties: Collection[str]) -> str:
        return next((name for name in self.computing if name not in parties), "")

    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        noise = None if self.dp is None else self.dp.model
        return share_exchanges(passive, parts=self.hands_out, noise=noise)

    def active_cut(self, site: Site, spec: CutSpec) -> ActiveCut:
        return NoActiveCut()

    def passive_cut(self, site: Site, spec: CutSpec) -> PassiveCut:
        return NoPassiveCut()


PROTECTIONS: Mapping[str, type[Protection]] = {kind.name: kind for kind in (Auto, BFV, CKKS, Paillier, Plain, Shares)}
"""Name in job files → protection."""
