"""The compiled paths: arrays are cut into pieces for threads, pieces into groups of blocks that stay in the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from securevfl_crypto.engine.base import Engine, check_secret, check_tag, contiguous_rows
from securevfl_crypto.engine.compiled import Kernels
from securevfl_crypto.engine.cpu import thread_count
from securevfl_crypto.engine.ladder import BLOCKS
from securevfl_crypto.engine.sha512 import CONSTANTS, INITIAL
from securevfl_crypto.errors import MalformedError

__all__ = ["VectorEngine"]

_K = np.array(CONSTANTS, dtype=np.uint64)
_Task = Callable[[int, int], None]


@lru_cache(maxsize=4)
def _thread_pool(
    workers: int, process: int
) -> ThreadPoolExecutor:  # a forked child has its parent's pool, not its threads
    return ThreadPoolExecutor(workers, thread_name_prefix="securevfl-engine")


def _ladder_swaps(scalar: bytes) -> np.ndarray:
    """Where the ladder swaps: bits 254 to 0 of the scalar, each XORed with the one before.

    Computed by shifts, because `np.unpackbits` reads a table at addresses that depend on the secret.
    """
    octets = np.frombuffer(scalar, dtype=np.uint8)
    bits = (octets[:, None] >> np.arange(8, dtype=np.uint8) & np.uint8(1)).reshape(-1)[254::-1]
    return np.concatenate([bits[:1], bits[1:] ^ bits[:-1]])


class VectorEngine(Engine):
    """An engine that runs the kernels of `compiled` on arrays.

    Args:
        kernels: compiled for one path.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._lanes = kernels.path.lanes
        self.name = kernels.path.name

    def x25519(self, secret: bytes, points: np.ndarray) -> np.ndarray:
        """See `Engine.x25519`."""
        scalar = check_secret(secret)
        rows = contiguous_rows(points, 32, "points")
        swaps = _ladder_swaps(scalar)
        source = self._to_planes(rows.view("<u8"))
        target = np.empty_like(source)
        stride = source.shape[1]

        def task(first: int, count: int) -> None:
            num, den, scratch = self._scratch_arrays()
            self._kernels["ladder"](
                _item_address(source, first), stride, swaps.ctypes.data, num.ctypes.data, den.ctypes.data, count
            )
            self._divide_fractions(_item_address(target, first), stride, num, den, scratch, count)

        self._each_group(stride // self._lanes, task)
        return self._to_rows(target, len(rows))

    def expand(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        """See `Engine.expand`."""
        words = self._expand_planes(messages, dst)
        return np.ascontiguousarray(words[:, : len(messages)].T.astype(">u8")).view(np.uint8)

    def hash_to_u(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        """See `Engine.hash_to_u`."""
        words = self._expand_planes(messages, dst)
        source = words[[5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6]]  # two numbers, each the least significant word first
        stride = source.shape[1]
        target = np.empty((4, stride), dtype=np.uint64)

        def task(first: int, count: int) -> None:
            num, den, scratch = self._scratch_arrays()
            self._kernels["map_and_add"](_item_address(source, first), stride, num.ctypes.data, den.ctypes.data, count)
            self._divide_fractions(_item_address(target, first), stride, num, den, scratch, count)

        self._each_group(stride // self._lanes, task)
        return self._to_rows(target, len(messages))

    def sha512(self, rows: np.ndarray, prefix: bytes = b"") -> np.ndarray:
        """See `Engine.sha512`."""
        data = contiguous_rows(rows, None, "messages")
        if len(prefix) % 128:
            raise MalformedError(f"a prefix of {len(prefix)} bytes; a multiple of 128 is needed")
        state = self._hash_planes(data, b"", prefix)
        return np.ascontiguousarray(state[:, : len(data)].T.astype(">u8")).view(np.uint8)

    def _expand_planes(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        """RFC 9380, section 5.3.1, for 96 bytes: planes (12, m) of big-endian words."""
        tag = check_tag(dst)
        first = self._hash_planes(
            contiguous_rows(messages, None, "messages"), (96).to_bytes(2, "big") + b"\0" + tag, bytes(128)
        )
        second = self._hash_digests(first, b"\x01" + tag)
        third = self._hash_digests(first ^ second, b"\x02" + tag)
        return np.concatenate([second, third[:4]])

    def _hash_planes(self, rows: np.ndarray, suffix: bytes, prefix: bytes) -> np.ndarray:
        """SHA-512 of prefix, row and suffix: planes (8, m)."""
        count, length = rows.shape
        tail = _padded_suffix(suffix, len(prefix) + length, -(length + len(suffix)) % 128)
        blocks = np.empty((count, length + len(tail)), dtype=np.uint8)
        blocks[:, :length] = rows
        blocks[:, length:] = np.frombuffer(tail, dtype=np.uint8)
        planes = self._to_planes(blocks.view("<u8"))
        planes.byteswap(inplace=True)
        state = np.empty((8, planes.shape[1]), dtype=np.uint64)
        state[:] = np.array(self._state_after(prefix), dtype=np.uint64)[:, None]
        self._compress(state, planes)
        return state

    def _hash_digests(self, digests: np.ndarray, suffix: bytes) -> np.ndarray:
        """SHA-512 of a digest and a suffix: planes to planes (8, m)."""
        tail = np.frombuffer(_padded_suffix(suffix, 64, -(64 + len(suffix)) % 128), dtype=">u8").astype(np.uint64)
        planes = np.empty((8 + len(tail), digests.shape[1]), dtype=np.uint64)
        planes[:8] = digests
        planes[8:] = tail[:, None]
        state = np.empty_like(digests)
        state[:] = np.array(INITIAL, dtype=np.uint64)[:, None]
        self._compress(state, planes)
        return state

    def _state_after(self, prefix: bytes) -> list[int]:
        """The state after the whole blocks of a prefix, which no hash library shows."""
        if not prefix:
            return INITIAL
        block = np.frombuffer(prefix, dtype=">u8").astype(np.uint64)[:, None]
        planes = np.ascontiguousarray(np.broadcast_to(block, (len(block), 2 * self._lanes)))
        state = np.empty((8, 2 * self._lanes), dtype=np.uint64)
        state[:] = np.array(INITIAL, dtype=np.uint64)[:, None]
        self._compress(state, planes)
        return [int(x) for x in state[:, 0]]

    def _compress(self, state: np.ndarray, words: np.ndarray) -> None:
        stride = state.shape[1]

        def task(first: int, count: int) -> None:
            for block in range(0, len(words), 16):
                self._kernels["compression"](
                    _item_address(state, first), _item_address(words[block:], first), _K.ctypes.data, stride, count
                )

        self._each_group(stride // self._lanes, task)

    def _to_planes(self, rows: np.ndarray) -> np.ndarray:
        """(n, w) words to planes (w, m); m a multiple of two vectors."""
        step = 2 * self._lanes
        planes = np.zeros((rows.shape[1], -(-max(len(rows), 1) // step) * step), dtype=np.uint64)
        planes[:, : len(rows)] = rows.T
        return planes

    @staticmethod
    def _to_rows(planes: np.ndarray, count: int) -> np.ndarray:
        return np.ascontiguousarray(planes[:, :count].T.astype("<u8")).view(np.uint8)

    def _scratch_arrays(self) -> list[np.ndarray]:
        return [np.empty((BLOCKS, self._kernels.limbs, self._lanes), dtype=np.uint64) for _ in range(3)]

    def _divide_fractions(
        self, out: int, stride: int, num: np.ndarray, den: np.ndarray, scratch: np.ndarray, count: int
    ) -> None:
        self._kernels["division"](out, stride, num.ctypes.data, den.ctypes.data, scratch.ctypes.data, count)

    def _each_group(self, blocks: int, task: _Task) -> None:
        """Runs `task(first item, number of blocks)` over all blocks, at least two at a time."""
        groups = [(start * self._lanes, min(BLOCKS, blocks - start)) for start in range(0, blocks, BLOCKS)]
        workers = min(thread_count(), len(groups))
        if workers <= 1:
            for group in groups:
                task(*group)
            return
        for _ in _thread_pool(workers, os.getpid()).map(lambda group: task(*group), groups):
            pass


def _item_address(planes: np.ndarray, item: int) -> int:
    """Address of an item's first word."""
    return int(planes.ctypes.data) + 8 * item


def _padded_suffix(suffix: bytes, before: int, gap: int) -> bytes:
    """The suffix with FIPS 180-4's padding (section 5.1.2), where `gap` bytes are left in the suffix's block."""
    zeros = gap - 17 if gap >= 17 else gap + 111
    return suffix + b"\x80" + bytes(zeros) + (8 * (before + len(suffix))).to_bytes(16, "big")
