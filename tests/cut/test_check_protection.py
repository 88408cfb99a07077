"""`check_protection` passes what keeps the contract of a cut, and names what does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import securevfl_crypto as crypto
import torch
from support.clear_scheme import Clear

import securevfl as sv
from securevfl.cut import ActiveCut, CutSpec, CutUse, PassiveCut, Plain, Protection, Sealed
from securevfl.cut.plain import FloatActive, FloatPassive
from securevfl.party_context import PartyContext
from securevfl.privacy import Noised, NoiseShare, Policy, strip_noise_mark
from securevfl.testing import CheckFailed, check_protection
from securevfl.transport import Exchange, Kind


class ClearSeal(Sealed):
    """The sealed cut under a scheme that hides nothing."""

    name: ClassVar[str] = "clear"
    modulus: int | None = None

    @property
    def label(self) -> str:
        return "no cipher"

    def schemes(self) -> Mapping[str, crypto.Scheme]:
        return {Clear.name: Clear(self.modulus)}

    def redraws_shares(self, use: CutUse) -> bool | None:
        return True if self.modulus is None else super().redraws_shares(use)


@pytest.mark.parametrize(
    "protection",
    [
        sv.Plain(),
        sv.Plain(fixed_point=True),
        ClearSeal(),
        ClearSeal(modulus=1 << 59),
        sv.Paillier(bits=2048),
        sv.BFV(),
        sv.CKKS(),
        sv.Auto(offers=("ckks",)),
    ],
    ids=repr,
)
def test_every_protection_keeps_the_contract(protection: Protection) -> None:
    check_protection(protection)


def test_a_class_is_tried_as_it_is_made_without_arguments() -> None:
    check_protection(Plain)

    class Needs(Plain):
        name: ClassVar[str] = "needs"
        must: int

    with pytest.raises(CheckFailed, match="cannot be made without arguments"):
        check_protection(Needs)
    with pytest.raises(CheckFailed, match="is not a Protection"):
        check_protection(3)  # type: ignore[arg-type]


class Broken(Plain):
    """Plain, with one thing wrong."""

    name: ClassVar[str] = "broken"
    active: ClassVar[Callable[[PartyContext, CutSpec], ActiveCut]] = FloatActive
    passive: ClassVar[Callable[[PartyContext, CutSpec], PassiveCut]] = FloatPassive

    def active_cut(self, site: PartyContext, spec: CutSpec) -> ActiveCut:
        return type(self).active(site, spec)

    def passive_cut(self, site: PartyContext, spec: CutSpec) -> PassiveCut:
        return type(self).passive(site, spec)


class Scaled(FloatActive):
    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        z = await super().forward(rows, train=train)
        return 1.001 * z if train else z


class Wide(FloatActive):
    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        return (await super().forward(rows, train=train)).double()


class Chatty(FloatActive):
    async def setup(self) -> None:
        await super().setup()
        await self._links[0].send(Kind.STATISTIC, "cut/norms", norm=torch.zeros(1))


class Unmarked(FloatActive):
    """Drops the mark that its gradients are noised."""

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        await super().backward(strip_noise_mark(gradient))


class Forgetful(FloatPassive):
    """Takes no velocity along."""

    def snapshot(self) -> object:
        return self._weights, None


class Stuck(FloatPassive):
    def restore(self, state: object) -> None:
        pass


class Deaf(FloatPassive):
    """Takes noise on z and leaves it out."""

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        await super().forward(activations, train=train)


class Mute(FloatPassive):
    async def backward(self) -> torch.Tensor | None:
        await super().backward()
        return None


class Careless(FloatPassive):
    """Goes on with an old batch."""

    async def backward(self) -> torch.Tensor | None:
        self._fed = torch.zeros(5, 4) if self._fed is None else self._fed
        return await super().backward()


class Untold(Broken):
    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        return tuple(replace(e, reveals="") for e in super().exchanges(use, passive))


class Talks(Broken):
    def exchanges(self, use: CutUse, passive: int) -> tuple[Exchange, ...]:
        extra = Exchange("cut/norms", Kind.STATISTIC, "passive", "active", "norms of rows")
        return (*super().exchanges(use, passive), *((extra,) if passive else ()))


class Sealing(Broken):
    @property
    def is_sealed(self) -> bool:
        return True


class Lax(Broken):
    def policy(self) -> Policy:
        return Policy(noised=frozenset())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"active": Scaled}, r"z of step 0 is .* away from float64; the tolerance is 1e-05"),
        ({"active": Wide}, "float64; float32 was expected"),
        ({"active": Chatty}, "which nothing in the job declares"),
        ({"active": Unmarked}, "'cut/backward' carried noise 0 times; it was fed with noise 6 times"),
        ({"passive": Forgetful}, "after that step was repeated"),
        ({"passive": Stuck}, "after the snapshot was restored"),
        ({"passive": Deaf}, "z of step 0 is"),
        ({"passive": Mute}, "'p1' got no gradient in step 0, and its bottom has parameters"),
        ({"passive": Careless}, "continues after a backward step after a forward one without training"),
    ],
    ids=lambda change: next(iter(change.values())).__name__ if isinstance(change, dict) else "",
)
def test_a_side_that_breaks_the_contract_is_named(
    change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, kind in change.items():
        monkeypatch.setattr(Broken, name, kind)
    with pytest.raises(CheckFailed, match=words):
        check_protection(Broken())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Untold, "declared without what its receiver learns"),
        (Talks, "'cut/norms' is declared from passive to active and not sent"),
        (Sealing, "declared as activation, and the protection says sealed"),
        (Lax, "is declared noised, and the policy does not demand it"),
    ],
)
def test_a_declaration_that_breaks_the_contract_is_named(kind: type[Broken], words: str) -> None:
    with pytest.raises(CheckFailed, match=words):
        check_protection(kind())


def test_sides_that_wait_for_each_other_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FloatPassive):
        async def setup(self, width: int, *, trainable: bool) -> None:
            await self._link.receive(Kind.CONTROL, "cut/never")

    monkeypatch.setattr(Broken, "passive", Silent)
    monkeypatch.setattr("securevfl.testing.cut_run._LONGEST", 0.2)
    with pytest.raises(CheckFailed, match=r"did not end within 0\.2 s"):
        check_protection(Broken())
