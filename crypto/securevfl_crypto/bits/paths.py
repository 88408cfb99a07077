"""Chooses the path of the loops: the fastest that this machine can run and that passes its self-test."""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache

import numpy as np

from securevfl_crypto.bits.base import CODE_BYTES, COLUMNS, DENSE_BYTES, ROW_BYTES, SUM_BYTES, BitLoops, byte_tables
from securevfl_crypto.bits.portable import PortableBitLoops
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath, check_cpu
from securevfl_crypto.engine.paths import load_chosen, load_named
from securevfl_crypto.errors import EngineError

__all__ = ["bit_loops", "check_bit_loops"]


def bit_loops(path: str | None = None) -> BitLoops:
    """The loops of a path.

    Args:
        path: one of `engine.PATHS`; those without kernels compute with numpy. None: the path that ``SECUREVFL_ENGINE``
            named at first use, or the fastest that works here.

    Raises:
        EngineError: the requested path is unknown, cannot run here, or fails its self-test.
    """
    return _chosen() if path is None else load_named(path, _load, PortableBitLoops)


@lru_cache(maxsize=1)
def _chosen() -> BitLoops:
    return load_chosen(_load, PortableBitLoops, stacklevel=4)


@lru_cache(maxsize=len(VECTOR_PATHS))
def _load(path: VectorPath) -> BitLoops:
    check_cpu(path)
    from securevfl_crypto.bits.compiled import CompiledBitLoops
    from securevfl_crypto.engine.compiled_bits import bit_kernels

    found = CompiledBitLoops(bit_kernels(path))
    check_bit_loops(found)
    return found


_SHORT = 23  # octets of a message, as of an identifier


def check_bit_loops(candidate: BitLoops) -> None:
    """Check every loop against numpy, and the hash against `hashlib`, on fresh random input.

    Raises:
        EngineError: the path computes a wrong result.
    """
    right, n, m = PortableBitLoops(), 37, 90
    columns, messages, slots = (
        _random_rows(COLUMNS, 2 * ROW_BYTES),
        _random_rows(n, ROW_BYTES),
        _random_rows(m, ROW_BYTES),
    )
    words, salts = _random_rows(n, CODE_BYTES), _random_rows(n, 16)
    positions = _random_positions(n, m)

    def results(path: BitLoops) -> dict[str, np.ndarray]:
        encoded, decoded = messages.copy(), messages.copy()
        path.encode(words, byte_tables(slots[: 8 * CODE_BYTES]), encoded)
        path.decode(positions, words[:, :DENSE_BYTES], byte_tables(slots[: 8 * DENSE_BYTES]), slots, decoded)
        return {
            "the transposition": path.transpose(columns),
            "the code": encoded,
            "the decoding": decoded,
            "sums": path.sum_rows(messages, words[:, :SUM_BYTES]),
            "the peeling": _peeling_residuals(path, positions, m),
        }

    found, expected = results(candidate), results(right)
    wrong = [name for name in found if not np.array_equal(found[name], expected[name])]
    for length, number in ((ROW_BYTES, 1), (_SHORT, 2)):
        padded = np.zeros_like(messages)
        padded[:, :length] = messages[:, :length]
        hashed = candidate.hash_rows(padded, length, salts, number)
        if not np.array_equal(hashed, _hash_with_hashlib(messages[:, :length], salts, number)):
            wrong.append(f"BLAKE2s of {length} octets")
    if wrong:
        raise EngineError(
            f"the path {candidate.name!r} computes {' and '.join(wrong)} wrongly on this machine; "
            "set SECUREVFL_ENGINE=cryptography and report it"
        )


def _random_rows(rows: int, width: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(rows * width), dtype=np.uint8).reshape(rows, width)


def _random_positions(keys: int, slots: int) -> np.ndarray:
    """Three different ones of each key, one in each third."""
    third = slots // 3
    return (_random_rows(keys, 12).view("<u4") % np.uint32(third) + np.arange(3, dtype=np.uint32) * third).astype(
        np.uint32
    )


def _peeling_residuals(path: BitLoops, positions: np.ndarray, size: int) -> np.ndarray:
    """The core, and whether the slots give each other key its value: zeros if they do."""
    peeled = path.peel(positions, size)
    values = np.arange(2 * len(positions), dtype=np.uint64).reshape(-1, 2)
    slots = np.ones((size, 2), dtype=np.uint64)
    peeled.substitute(values, slots)
    rest: np.ndarray = values ^ np.bitwise_xor.reduce(slots[positions], axis=1)
    rest[peeled.core] = 1
    return rest


def _hash_with_hashlib(messages: np.ndarray, salts: np.ndarray, number: int) -> np.ndarray:
    digests = [
        hashlib.blake2s(row.tobytes(), salt=salt[:8].tobytes(), person=salt[8:].tobytes(), node_offset=number).digest()
        for row, salt in zip(messages, salts, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 32)
