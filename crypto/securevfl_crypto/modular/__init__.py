"""Arithmetic modulo one long odd number on batches of numbers, for Paillier.

`base` defines the interface (`Modulus`, `Batch`, `FixedBase`). `gmp` implements it with GMP's integers and runs
everywhere; `multi_exponentiation` computes its products of powers. `vector` implements it on compiled kernels, four or
eight numbers side by side: `lanes` stores numbers and runs kernels, `montgomery` computes the constants of a modulus,
`tables` and `buckets` compute products of powers, `groups` products by group. `choice` takes the fastest implementation
that works on this machine; `checks` and `inverses` serve all of them.

This folder imports `engine` and `errors`. `paillier` and `aggregation` may import it, and only through the names that
it exports.
"""

from securevfl_crypto.modular.base import Batch, FixedBase, Modulus
from securevfl_crypto.modular.choice import modular_arithmetic

__all__ = ["Batch", "FixedBase", "Modulus", "modular_arithmetic"]
