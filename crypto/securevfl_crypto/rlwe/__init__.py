"""Schemes on lattices: BFV (exact) and CKKS (approximate), with SEAL as the engine for ring elements.

`bfv` and `ckks` say how each scheme encodes integers (`encoding` states what an encoding is); `base` is the scheme
without its encoding, `owner` and `holder` its two halves, `plan` what the halves agree on without a message. `tiling`
lays matrices out in polynomials, `envelopes` are the messages, `keys` the keys. `parameters`, `noise`, `residues` and
`sampling` are the mathematics; `seal` is the only module that talks to SEAL, which it imports at first use.

This folder imports the shared modules beside it and nothing of `paillier`, `modular` or `engine`. `aggregation` may
import it; users take `BFV` and `CKKS` from `securevfl_crypto`.
"""

from securevfl_crypto.rlwe.bfv import BFV
from securevfl_crypto.rlwe.ckks import CKKS
from securevfl_crypto.rlwe.keys import RlwePublicKey, RlweSecretKey

__all__ = ["BFV", "CKKS", "RlwePublicKey", "RlweSecretKey"]
