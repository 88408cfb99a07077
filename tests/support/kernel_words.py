"""What all kernels of a group compute, on fixed input: words to compare between paths and with libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
from gmpy2 import mpz
from securevfl_crypto.bits import byte_tables
from securevfl_crypto.bits.base import CODE_BYTES, COLUMNS, DENSE_BYTES, ROW_BYTES, SUM_BYTES, BitLoops
from securevfl_crypto.engine import Engine
from securevfl_crypto.modular import Modulus
from securevfl_crypto.ring.base import COLUMNS as OCTETS
from securevfl_crypto.ring.base import MODULUS, RingLoops

__all__ = ["agree", "bit_words", "curve_words", "long_words", "ring_words"]


def _octets(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def _words(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 2**64, shape, dtype=np.uint64)


def curve_words(engine: Engine) -> list[np.ndarray]:
    rows = _octets(19, 77)
    return [engine.x25519(bytes(range(32)), _octets(19, 32)), engine.hash_to_u(rows, b"words"), engine.sha512(rows)]


def bit_words(loops: BitLoops) -> list[np.ndarray]:
    columns, messages, slots = _octets(COLUMNS, 2 * ROW_BYTES), _octets(37, ROW_BYTES), _octets(90, ROW_BYTES)
    codes, salts = _octets(37, CODE_BYTES), _octets(37, 16)
    positions = (_octets(37, 12).view("<u4") % 30 + np.arange(3, dtype=np.uint32) * 30).astype(np.uint32)
    encoded, decoded = messages.copy(), messages.copy()
    loops.encode(codes, byte_tables(_octets(8 * CODE_BYTES, ROW_BYTES)), encoded)
    loops.decode(positions, codes[:, :DENSE_BYTES], byte_tables(slots[: 8 * DENSE_BYTES]), slots, decoded)
    peeled = loops.peel(positions, 90)
    filled = np.ones((90, 2), dtype=np.uint64)
    peeled.substitute(_words(37, 2), filled)
    rest = np.bitwise_xor.reduce(filled[positions], axis=1)
    rest[peeled.core] = 0
    sums, hashes = loops.sum_rows(messages, codes[:, :SUM_BYTES]), loops.hash_rows(messages, ROW_BYTES, salts, 1)
    return [loops.transpose(columns), encoded, decoded, sums, hashes, peeled.core, rest]


def ring_words(loops: RingLoops) -> list[np.ndarray]:
    bits, zeros = _octets(9, OCTETS) % MODULUS, _octets(18, OCTETS) % MODULUS
    factors, out = _octets(18, OCTETS)[::-1].copy() % (MODULUS - 1), np.empty(OCTETS * 40, dtype=np.uint8)
    found = [out[: loops.residues(_octets(OCTETS * 40), modulus, out)].copy() for modulus in (MODULUS, MODULUS - 1)]
    turns = _octets(18)
    masked = [loops.mask_comparison(_words(18), bits, factors, zeros, turns, first=first) for first in (True, False)]
    products = [loops.product(_words(*a), _words(*b)) for a, b in (((40, 20), (20, 9)), ((75, 300), (300, 75)))]
    small = [loops.sum_words(_words(7, 64).view(np.uint32), _words(5, 64).view(np.uint32))]
    small.append(loops.combine_octets(_octets(6, 30), _octets(2, 30, OCTETS)))
    starts = np.array([0, 30, 60], dtype=np.uint64)
    values = _words(70, 4)
    small += [loops.sum_by_bin(_octets(3, 70) % 30, starts, each, 90) for each in (values, values.view(np.uint32))]
    return [
        *found,
        *masked,
        *products,
        *small,
        loops.deal_bits(_words(9), bits),
        loops.count_zeros(zeros, zeros[::-1].copy()),
    ]


def long_words(modulus: Modulus) -> list[mpz]:
    batch = modulus.from_ints([int(one) ** 40 % int(modulus.m) for one in _words(13)] + [0, 1, modulus.m - 1])
    exponents = _words(9, 16).view(np.int64) >> 46
    few = modulus.take(batch, np.arange(12))
    out = [
        modulus.mul(batch, batch),
        modulus.invert(few),
        modulus.power(batch, 3**90),
        modulus.power_products(few, exponents[:, :12]),
        *(modulus.fixed_base(mpz(7), 64, scan=scan).raise_to(_octets(17, 8)) for scan in (False, True)),
        modulus.group_products(few, _octets(12, 3).astype(np.int64) % 5 - 1, 4),
        modulus.horner(few, 4, 27),
        modulus.load_bytes(modulus.store_bytes(batch)),
    ]
    return [number for part in out for number in modulus.to_ints(part)]


def agree(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))
