"""Secret random polynomials and masks from the operating system's randomness."""

from __future__ import annotations

import secrets

import numpy as np

from securevfl_crypto.rlwe.parameters import DEGREE
from securevfl_crypto.rlwe.residues import Basis

__all__ = ["sample_binomial", "sample_flooding", "sample_ternary", "sample_uniform"]


def sample_uniform(shape: tuple[int, ...], modulus: int) -> np.ndarray:
    """Uniform numbers from 0 to modulus − 1, an object array of this shape."""
    count = int(np.prod(shape))
    if modulus == 1 << 64:
        return _random_words(count).astype(object).reshape(shape)
    found = np.empty(count, dtype=object)
    found[:] = [secrets.randbelow(modulus) for _ in range(count)]
    return found.reshape(shape)


def sample_ternary() -> np.ndarray:
    """Coefficients uniform over −1, 0 and 1, int64 (N,)."""
    found = np.empty(0, dtype=np.uint8)
    while len(found) < DEGREE:
        drawn = np.frombuffer(secrets.token_bytes(DEGREE + 512), dtype=np.uint8)
        # 255 = 3 · 85: dropping the byte 255 makes the remainder modulo 3 exactly uniform.
        found = np.concatenate([found, drawn[drawn < 255]])
    return np.asarray(found[:DEGREE].astype(np.int64) % 3 - 1)


def sample_binomial() -> np.ndarray:
    """Coefficients of SEAL's noise, centred binomial of 42 bits (σ ≈ 3.24), int64 (N,)."""
    # SEAL's distribution: two halves of 21 bits, so the bound is the 21 that `noise` uses.
    words, half = _random_words(DEGREE), np.uint64((1 << 21) - 1)
    ones = np.bitwise_count(words & half), np.bitwise_count((words >> np.uint64(21)) & half)
    return np.asarray(ones[0].astype(np.int64) - ones[1].astype(np.int64))


def sample_flooding(basis: Basis, count: int, bits: int) -> np.ndarray:
    """Residues (primes, count) of integers uniform from −2^bits to below 2^bits."""
    limbs, top = divmod(bits + 1, 64)
    # Exactly bits + 1 random bits, then a shift by 2^bits: uniform on the whole interval, without rejection.
    wide = basis.to_residues(_random_words(count) & np.uint64((1 << top) - 1))
    for _ in range(limbs):
        wide = basis.add(basis.scale(wide, 1 << 64), basis.to_residues(_random_words(count)))
    shift = np.array([[-(1 << bits) % prime] for prime in basis.primes], dtype=np.uint64)
    return basis.add(wide, np.broadcast_to(shift, wide.shape))


def _random_words(count: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
