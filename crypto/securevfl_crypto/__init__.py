"""Cryptography of vertical federated learning: Paillier, BFV and CKKS behind one interface, and training on shares.

The folders, from the top: `aggregation` adds vectors under encryption, and `sums` adds rows by bin; `two` is two
computing parties on shares, and `replicated` three; `paillier` and `rlwe` (BFV and CKKS) are the schemes; `transfer` is
oblivious transfer; `modular` is arithmetic modulo long numbers, `ring` modulo 2^64, and `bits` loops over rows of bits;
`engine` runs kernels compiled for this machine's class of CPUs; `pools` are workers for tasks. `inspection` describes
what computes here. Shared by all of them: `scheme` (the interface of a scheme), `block` (sizes of integers), `shares`,
`masks`, `integers`, `errors`; `elligator2` is the reference of the hash to Curve25519.

A folder imports only folders below it (see the contracts in ``pyproject.toml``). A name loads its module when it is
first used, so that a program that only finds common rows loads no encryption schemes. SEAL is imported at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl_crypto.block import Block
    from securevfl_crypto.errors import CryptoError, MalformedError, OverflowRefused, ReusedError, WeakKeyError
    from securevfl_crypto.integers import bigints_from_bytes, bigints_to_bytes, exact_product, uniform_masks
    from securevfl_crypto.masks import PairwiseMasks, ZeroShares
    from securevfl_crypto.paillier import Paillier, PaillierPrivateKey, PaillierPublicKey, generate_keypair
    from securevfl_crypto.rlwe import BFV, CKKS
    from securevfl_crypto.scheme import Holder, Owner, PublicKey, Ring, Scheme, SecretKey
    from securevfl_crypto.shares import OptimiserRule, WeightShare

_NAMES = {
    "block": "Block",
    "errors": "CryptoError MalformedError OverflowRefused ReusedError WeakKeyError",
    "integers": "bigints_from_bytes bigints_to_bytes exact_product uniform_masks",
    "masks": "PairwiseMasks ZeroShares",
    "paillier": "Paillier PaillierPrivateKey PaillierPublicKey generate_keypair",
    "rlwe": "BFV CKKS",
    "scheme": "Holder Owner PublicKey Ring Scheme SecretKey",
    "shares": "OptimiserRule WeightShare",
}
_MODULES = {name: f"{__name__}.{module}" for module, listed in _NAMES.items() for name in listed.split()}

__all__ = [
    "BFV",
    "CKKS",
    "Block",
    "CryptoError",
    "Holder",
    "MalformedError",
    "OptimiserRule",
    "OverflowRefused",
    "Owner",
    "Paillier",
    "PaillierPrivateKey",
    "PaillierPublicKey",
    "PairwiseMasks",
    "PublicKey",
    "ReusedError",
    "Ring",
    "Scheme",
    "SecretKey",
    "WeakKeyError",
    "WeightShare",
    "ZeroShares",
    "bigints_from_bytes",
    "bigints_to_bytes",
    "exact_product",
    "generate_keypair",
    "uniform_masks",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
