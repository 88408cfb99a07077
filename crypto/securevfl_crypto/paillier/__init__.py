"""Paillier's cryptosystem, and its use at a sealed cut.

`public_key` and `private_key` define the keys and the operations on them; `packing` puts many small integers into one
plaintext; `modulus_proof` proves that a modulus is suitable; `answer_residues` blinds answers to the owner of a key;
`sealed_cut` implements `securevfl_crypto.Scheme`.

This folder imports `modular` and the shared modules beside it. `aggregation` may import it; users take its names from
`securevfl_crypto`.
"""

from securevfl_crypto.paillier.private_key import PaillierPrivateKey, generate_keypair
from securevfl_crypto.paillier.public_key import PaillierPublicKey
from securevfl_crypto.paillier.sealed_cut import Paillier, PaillierHolder, PaillierOwner

__all__ = [
    "Paillier",
    "PaillierHolder",
    "PaillierOwner",
    "PaillierPrivateKey",
    "PaillierPublicKey",
    "generate_keypair",
]
