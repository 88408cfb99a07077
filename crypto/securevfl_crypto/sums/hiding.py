"""Blind an answer's randomness, and check the rows so that the blinding hides it.

The owner chose the exponent α_i of each row's ciphertext. A product of rows has the exponent ``Σ α_i``, shifted by up
to the length of a plaintext if sums are packed, so the owner, who knows the α, could confirm a guess of who is in a
bin. The holder therefore multiplies each packed answer by h_s^ρ with ρ uniform below 2^(bits of n + 64). The order of
h_s is below n, so h_s^ρ is within 2^-64 of a uniform power of h_s, and so is its product with any power of h_s: the
answer reveals only its plaintext, however long the shifts are. (A ρ that is 40 bits longer than the shifted ``Σ α_i``
would do as well, but is longer than this one if several sums share a plaintext.)

This requires ciphertexts whose randomness is a power of h_s. Powers of h_s have Jacobi symbol 1 modulo n, so a row with
symbol −1 would reveal whether a sum contains an odd number of such rows. The holder checks all rows' symbols by random
subsets: if a row has symbol −1, the product of a random subset has symbol −1 with probability 1/2.
"""

from __future__ import annotations

import secrets

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import Batch, modular_arithmetic
from securevfl_crypto.paillier.public_key import PaillierPublicKey

__all__ = ["check_symbols", "make_hiding_blindings"]

_SLACK = 64
"""Bits by which ρ is longer than the order of h_s."""
_SUBSETS = 40
"""Random subsets to test: a row of symbol −1 passes with probability 2^-40."""


def make_hiding_blindings(key: PaillierPublicKey, count: int) -> Batch:
    """Make encryptions of zero whose randomness is uniform among the powers of h_s, up to 2^-64 each."""
    return key.make_blindings(count, key.bits + _SLACK - key.randomness_bits)


def check_symbols(key: PaillierPublicKey, array: np.ndarray) -> None:
    """Check that no row has Jacobi symbol −1 modulo n; such a row passes with probability 2^-40.

    Args:
        key: the owner's key.
        array: ciphertexts that `PaillierPublicKey.load_ciphertexts` accepted, uint8 (rows, ciphertext_bytes).

    Raises:
        MalformedError: a row has symbol −1.
    """
    n, rows = key.n, len(array)
    if n.bit_length() < 1024 or rows < _SUBSETS:  # the batch engine takes no shorter moduli
        key.check_symbols(array)
        return
    arithmetic = modular_arithmetic(n)
    raw, size = array.tobytes(), array.shape[1]
    batch = arithmetic.from_ints([mpz.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)])
    # Secret subsets: an owner that could predict them could choose rows whose signs cancel in each.
    subsets = np.frombuffer(secrets.token_bytes(_SUBSETS * -(-rows // 8)), dtype=np.uint8).reshape(_SUBSETS, -1)
    chosen = np.unpackbits(subsets, axis=1)[:, :rows].astype(np.int64)
    products = arithmetic.to_ints(arithmetic.power_products(batch, chosen))
    if any(gmpy2.jacobi(product, n) != 1 for product in products):
        raise MalformedError(
            "a row's ciphertext has Jacobi symbol -1: its randomness is not a power of h_s, so powers of h_s would not "
            "hide who is in a sum"
        )
