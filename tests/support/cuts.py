"""Both sides of every kind of cut, for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import securevfl_crypto as crypto

from securevfl.cut.base import ActiveCut, PassiveCut
from securevfl.cut.exact import FixedActive, FixedPassive
from securevfl.cut.plain import FloatActive, FloatPassive
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.cut.spec import CutSpec
from securevfl.party_context import PartyContext
from securevfl.testing import link_in_memory
from support.clear_scheme import Clear

__all__ = ["KITS", "SEALED", "Kit", "link_in_memory", "sealed"]


@dataclass(frozen=True)
class Kit:
    """How to make both sides of one kind of cut, and how exactly it agrees with floats."""

    active: Callable[[PartyContext, CutSpec], ActiveCut]
    passive: Callable[[PartyContext, CutSpec], PassiveCut]
    tolerance: float
    error: float = 0.0
    name: str = "plain"


def sealed(scheme: crypto.Scheme, error: float = 0.0) -> Kit:
    return Kit(
        lambda s, c: SealedActive(s, c, scheme), lambda s, c: SealedPassive(s, c, scheme), 5e-3, error, scheme.name
    )


SEALED = {
    "integers, no cipher": sealed(Clear()),
    "modulo 2^59, no cipher": sealed(Clear(1 << 59)),
    "paillier": sealed(crypto.Paillier(bits=2048)),
    "bfv": sealed(crypto.BFV()),
    "ckks": sealed(crypto.CKKS(), error=1e-5),
}
KITS = {
    "plain": Kit(FloatActive, FloatPassive, 1e-5),
    "fixed point": Kit(FixedActive, FixedPassive, 5e-3),
    **SEALED,
    "bfv, two processes": Kit(
        lambda s, c: SealedActive(replace(s, pool="process:2"), c, crypto.BFV()),
        lambda s, c: SealedPassive(replace(s, pool="process:2"), c, crypto.BFV()),
        5e-3,
        name="bfv",
    ),
}
