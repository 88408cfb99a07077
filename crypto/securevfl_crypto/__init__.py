"""Homomorphic encryption for vertical federated learning: Paillier, packing, masks, and the sealed linear map."""

from securevfl_crypto.errors import CryptoError, MalformedError, OverflowRefused, WeakKeyError
from securevfl_crypto.integers import bigints_from_bytes, bigints_to_bytes, pack, uniform_masks, unpack
from securevfl_crypto.masks import PairwiseMasks, ZeroShares
from securevfl_crypto.multiexp import many_bases, shared_tables
from securevfl_crypto.paillier import PaillierPrivateKey, PaillierPublicKey, generate_keypair
from securevfl_crypto.ranges import Layout, SealedRange
from securevfl_crypto.sealed import SealedHolder, SealedOwner, from_wire, to_wire

__all__ = [
    "CryptoError",
    "Layout",
    "MalformedError",
    "OverflowRefused",
    "PaillierPrivateKey",
    "PaillierPublicKey",
    "PairwiseMasks",
    "SealedHolder",
    "SealedOwner",
    "SealedRange",
    "WeakKeyError",
    "ZeroShares",
    "bigints_from_bytes",
    "bigints_to_bytes",
    "from_wire",
    "generate_keypair",
    "many_bases",
    "pack",
    "shared_tables",
    "to_wire",
    "uniform_masks",
    "unpack",
]
