"""Homomorphic encryption for vertical federated learning: Paillier, BFV and CKKS behind one interface, shares, masks,
secure aggregation, and the batch engine under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl_crypto.block import Block
from securevfl_crypto.errors import CryptoError, MalformedError, OverflowRefused, WeakKeyError
from securevfl_crypto.integers import bigints_from_bytes, bigints_to_bytes, exact_product, uniform_masks
from securevfl_crypto.masks import PairwiseMasks, ZeroShares
from securevfl_crypto.paillier import PaillierPrivateKey, PaillierPublicKey, generate_keypair
from securevfl_crypto.paillier_scheme import Paillier
from securevfl_crypto.scheme import Holder, Owner, PublicKey, Ring, Scheme, SecretKey
from securevfl_crypto.shares import Rule, Share

if TYPE_CHECKING:
    from securevfl_crypto.rlwe import BFV, CKKS

__all__ = [
    "BFV",
    "CKKS",
    "Block",
    "CryptoError",
    "Holder",
    "MalformedError",
    "OverflowRefused",
    "Owner",
    "Paillier",
    "PaillierPrivateKey",
    "PaillierPublicKey",
    "PairwiseMasks",
    "PublicKey",
    "Ring",
    "Rule",
    "Scheme",
    "SecretKey",
    "Share",
    "WeakKeyError",
    "ZeroShares",
    "bigints_from_bytes",
    "bigints_to_bytes",
    "exact_product",
    "generate_keypair",
    "uniform_masks",
]


def __getattr__(name: str) -> object:
    """`BFV` and `CKKS` at first use: they load SEAL, which private set intersection does not need."""
    if name in ("BFV", "CKKS"):
        from securevfl_crypto import rlwe

        return getattr(rlwe, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
