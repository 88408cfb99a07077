"""Numbers modulo 2^64, the ring of secret shares: no protocol, no torch, no I/O.

- `words`: fixed-point encoding of real numbers in words of 64 bits, and decoding.
- `product`: exact matrix products modulo 2^64.
- `narrow`: products of matrices of small words, modulo 2^32 and 2^8.
- `streams`: words and residues that two parties draw from a common key, each place at most once.
- `kernels`: the inner loops of the comparison of a shared word with a constant.
- `paths` chooses how loops run: `compiled` on kernels of `engine`, or `portable` in numpy (with `limbs`); both
  implement `base`.

Arrays are numpy's, uint64, in C order. Sources: Araki et al., CCS 2016 (replicated shares); Wagh, Gupta and Chandran,
SecureNN, PETS 2019 (the comparison modulo 67). This folder imports `engine` and `errors`.
"""

from __future__ import annotations

from securevfl_crypto.ring.kernels import (
    COLUMNS,
    MODULUS,
    check_residues,
    deal_bits,
    extract_coins,
    find_zeros,
    mask_comparison,
)
from securevfl_crypto.ring.narrow import NarrowMatrix, OneHotMatrix
from securevfl_crypto.ring.paths import large_products, take_large_products
from securevfl_crypto.ring.product import matmul
from securevfl_crypto.ring.streams import Exchange, Stream
from securevfl_crypto.ring.words import FRACTION, check_words, decode_words, encode_words

__all__ = [
    "COLUMNS",
    "FRACTION",
    "MODULUS",
    "Exchange",
    "NarrowMatrix",
    "OneHotMatrix",
    "Stream",
    "check_residues",
    "check_words",
    "deal_bits",
    "decode_words",
    "encode_words",
    "extract_coins",
    "find_zeros",
    "large_products",
    "mask_comparison",
    "matmul",
    "take_large_products",
]
