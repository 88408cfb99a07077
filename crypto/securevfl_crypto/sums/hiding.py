"""Check an owner's rows: their randomness must have the Jacobi symbol that powers of h_s have.

What a holder blinds its answers with hides any randomness (`paillier.answer_residues`), so this is no condition of
secrecy. It finds an owner that does not encrypt as agreed, before anything is computed with its rows. All rows' symbols
are checked by random subsets: if a row has symbol −1, the product of a random subset has it with probability 1/2.
"""

from __future__ import annotations

import secrets

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import modular_arithmetic
from securevfl_crypto.paillier.public_key import PaillierPublicKey

__all__ = ["check_symbols"]

_SUBSETS = 40
"""Random subsets to test: a row of symbol −1 passes with probability 2^-40."""


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
    products = arithmetic.to_ints(arithmetic.power_products(batch, _draw_subsets(rows)))
    if any(gmpy2.jacobi(product, n) != 1 for product in products):
        raise MalformedError(
            "a row's ciphertext has Jacobi symbol -1: its randomness is not a power of h_s; the owner does not encrypt "
            "as agreed"
        )


def _draw_subsets(rows: int) -> np.ndarray:
    """Draw random subsets of rows from the operating system: 0 or 1, int64 (subsets, rows).

    They are secret until the rows are here: an owner that could predict them could choose rows whose signs cancel in
    each.

    Args:
        rows: number of rows, one or more.
    """
    subsets = np.frombuffer(secrets.token_bytes(_SUBSETS * -(-rows // 8)), dtype=np.uint8).reshape(_SUBSETS, -1)
    return np.unpackbits(subsets, axis=1)[:, :rows].astype(np.int64)
