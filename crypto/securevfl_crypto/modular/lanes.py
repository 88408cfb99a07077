"""Long numbers in lanes, four or eight side by side: their storage, their products, and threads that run kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from math import prod
from threading import local

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.engine.compiled_long import LongKernels
from securevfl_crypto.engine.conversions import SLACK
from securevfl_crypto.engine.cpu import thread_count
from securevfl_crypto.engine.rows import GROUP
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular.base import Batch, Modulus
from securevfl_crypto.modular.checks import check_pairing, checked_modulus, checked_places, checked_rows
from securevfl_crypto.modular.montgomery import montgomery_form

__all__ = ["LaneBatch", "Lanes", "allocate_aligned", "word_address"]

_WORTH = 1e5
"""Products of limbs, in all lanes, that keep a thread busy for about 0.1 ms; less work does not repay its start."""
_LINE = 64


def allocate_aligned(*shape: int) -> np.ndarray:
    """An uninitialised uint64 array of this shape that begins at a cache line."""
    count = 8 * prod(shape)
    raw = np.empty(count + _LINE, dtype=np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + count].view(np.uint64).reshape(shape)


def _word_array(words: Sequence[int]) -> np.ndarray:
    out = allocate_aligned(len(words))
    out[:] = words
    return out


def word_address(array: np.ndarray, word: int = 0) -> int:
    """The memory address of a word of an array."""
    return int(array.ctypes.data) + 8 * word


class LaneBatch(Batch):
    """Numbers below 2m in Montgomery form, or pairs (`engine.pairs`).

    Attributes:
        data: uint64 [block, limb, lane].
        count: the number of numbers; the lanes beyond have no meaning.
        m: the modulus.
        root: the square root of m if the numbers are pairs, else None.
    """

    def __init__(self, data: np.ndarray, count: int, m: mpz, root: mpz | None = None) -> None:
        self.data, self.count, self.m, self.root = data, count, m, root

    def __len__(self) -> int:
        return self.count


@lru_cache(maxsize=4)
def _thread_pool(
    workers: int, process: int
) -> ThreadPoolExecutor:  # a forked child has its parent's pool, not its threads
    return ThreadPoolExecutor(workers, thread_name_prefix="securevfl-modular")


class Lanes(Modulus):
    """The operations of `Modulus` that take a single kernel; `vector.VectorModulus` adds the others.

    Attributes:
        kernels: compiled for this length of numbers.
        root: n if numbers are pairs modulo m = n², else None.
        limbs: L, the limbs of a number or pair.
        step: the limbs that are stored, L rounded up.
        lanes: the numbers in a block.
        one: a block of ones.
    """

    def __init__(self, m: int | mpz, kernels: LongKernels, root: mpz | None = None) -> None:
        self.m, self.root = checked_modulus(m), root
        self.width = -(-self.m.bit_length() // 8)
        self.kernels, self.lanes = kernels, kernels.path.lanes
        limbs = kernels.limbs
        self._bits, self._tile = limbs.bits, limbs.tile
        form = montgomery_form(self.m, limbs, root)
        self.limbs = form.limbs
        self.step = -(-self.limbs // GROUP) * GROUP
        self._own = local()
        self._m, self._inverse = _word_array(form.modulus), form.inverse
        self._complement = _word_array(form.complement)
        above = (mpz(1) << (limbs.bits * self.step)) - self.m
        self._above = _word_array([int(above >> (limbs.bits * k)) & limbs.top for k in range(self.step)])
        self._enter = allocate_aligned(len(form.enter), self.lanes)
        self._enter[:] = _word_array(form.enter)[:, None]
        self.one = self.allocate_blocks(self.lanes)
        self.one[:] = 0
        self.one[0, : self.limbs] = _word_array(form.one)[:, None]

    # Numbers

    def allocate_blocks(self, count: int) -> np.ndarray:
        """Uninitialised blocks for `count` numbers, uint64 [block, limb, lane]."""
        return allocate_aligned(-(-count // self.lanes), self.step, self.lanes)

    def make_batch(self, data: np.ndarray, count: int) -> LaneBatch:
        """The batch of `count` numbers in these blocks."""
        return LaneBatch(data, count, self.m, self.root)

    def blocks_of(self, batch: Batch) -> np.ndarray:
        """The blocks of a batch.

        Raises:
            MalformedError: the batch belongs to another modulus or path.
        """
        same = isinstance(batch, LaneBatch) and batch.m == self.m and batch.root == self.root
        if not isinstance(batch, LaneBatch) or not same or batch.data.shape[1:] != (self.step, self.lanes):
            raise MalformedError(f"a {type(batch).__name__} of another modulus or path; load it with this one")
        return batch.data

    def rows_of(self, batch: Batch) -> np.ndarray:
        """The numbers of a batch, one in each row, uint64 (n, step)."""
        data = self.blocks_of(batch)
        return np.ascontiguousarray(data.transpose(0, 2, 1)).reshape(-1, self.step)[: len(batch)]

    def from_rows(self, numbers: np.ndarray) -> LaneBatch:
        """The batch of the numbers in rows, uint64 (n, step); lanes without a number are 0."""
        out = self.allocate_blocks(len(numbers))
        whole = len(numbers) // self.lanes
        cut = numbers[: whole * self.lanes].reshape(whole, self.lanes, self.step)
        out[:whole] = cut.transpose(0, 2, 1)
        if whole < len(out):
            out[whole] = 0
            out[whole, :, : len(numbers) - whole * self.lanes] = numbers[whole * self.lanes :].T
        return self.make_batch(out, len(numbers))

    # Kernels

    def kernel_context(self) -> tuple[int, int, int, int]:
        """The context that kernels take: addresses of the modulus and of this thread's own columns."""
        found: tuple[int, int, int, int] | None = getattr(self._own, "context", None)
        if found is None:
            self._own.columns = allocate_aligned(3 * self.limbs, self.lanes)
            found = word_address(self._m), self._inverse, self.limbs // self._tile, word_address(self._own.columns)
            self._own.context = found
        return found

    def run_kernel(
        self, name: str, blocks: int, work: float, arguments: Callable[[int], Sequence[int]], scratch: int
    ) -> None:
        """Run a kernel on all blocks, in several threads if that pays.

        Args:
            name: the kernel.
            blocks: the number of blocks.
            work: products of numbers for each block.
            arguments: takes the first block of a part; returns the kernel's arguments before the scratch.
            scratch: blocks of scratch; 0 if the kernel takes none.
        """
        kernel = self.kernels[name]

        def task(first: int, count: int) -> None:
            if scratch:
                room = allocate_aligned(scratch, self.step, self.lanes)
                kernel(*arguments(first), word_address(room), *self.kernel_context(), count)
            else:
                kernel(*arguments(first), *self.kernel_context(), count)

        self.each_part(blocks, work, task)

    def each_part(self, blocks: int, work: float, task: Callable[[int, int], None]) -> None:
        """Run `task(first block, number of blocks)` over all blocks, in several threads if that pays."""
        workers = min(blocks, int(blocks * work * self.limbs**2 / _WORTH))
        workers = min(workers, thread_count()) if workers > 1 else workers
        if workers <= 1:
            if blocks:
                task(0, blocks)
            return
        parts = pairwise(blocks * k // workers for k in range(workers + 1))
        for _ in _thread_pool(workers, os.getpid()).map(lambda part: task(part[0], part[1] - part[0]), parts):
            pass

    def multiply_blocks(self, a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Products of the blocks a with as many blocks b, or with a single one; written to `out` if given."""
        result = allocate_aligned(*a.shape) if out is None else out
        step = int(len(a) == len(b))
        size = self.step * self.lanes

        def arguments(first: int) -> Sequence[int]:
            return (
                word_address(result, first * size),
                word_address(a, first * size),
                word_address(b, step * first * size),
                step,
            )

        self.run_kernel("products", len(a), 1, arguments, 0)
        return result

    def square_blocks(self, data: np.ndarray, times: int) -> None:
        """Square the blocks `times` times, in place."""
        size = self.step * self.lanes
        self.run_kernel("squarings", len(data), times, lambda first: (word_address(data, first * size), times), 0)

    # Modulus

    def load_bytes(self, numbers: np.ndarray) -> LaneBatch:
        """See `Modulus.load_bytes`."""
        given = checked_rows(numbers, self.width, "numbers")
        out = self.allocate_blocks(len(given))
        blocks = len(out)
        width = -(-self.step * self._bits // 64) * 8 + SLACK
        source = np.zeros((blocks * self.lanes, width), dtype=np.uint8)
        source[: len(given), : self.width] = given
        above = allocate_aligned(blocks, self.lanes)
        if blocks:
            complement, tiles = word_address(self._above), self.limbs // self._tile
            self.kernels["unpack"](
                word_address(out), word_address(above), word_address(source), width, complement, tiles, blocks
            )
        if above.any():
            raise MalformedError(f"a number that is not below the modulus of {self.m.bit_length()} bits; reduce it")
        size, constants = self.step * self.lanes, word_address(self._enter)

        def arguments(first: int) -> Sequence[int]:
            return word_address(out, first * size), word_address(out, first * size), constants

        self.run_kernel("enter", blocks, 1, arguments, 0)
        return self.make_batch(out, len(given))

    def store_bytes(self, batch: Batch) -> np.ndarray:
        """See `Modulus.store_bytes`."""
        data = self.blocks_of(batch)
        plain = allocate_aligned(*data.shape)
        plain[:, self.limbs :] = 0
        size = self.step * self.lanes
        complement = word_address(self._complement)

        def arguments(first: int) -> Sequence[int]:
            return word_address(plain, first * size), word_address(data, first * size), complement

        self.run_kernel("leave", len(data), 0.6, arguments, 0)
        width = -(-self.step * self._bits // 64) * 8 + SLACK
        target = np.empty((len(data) * self.lanes, width), dtype=np.uint8)
        if len(data):
            self.kernels["pack"](word_address(target), word_address(plain), width, self.limbs // self._tile, len(data))
        return np.ascontiguousarray(target[: len(batch), : self.width])

    def from_ints(self, numbers: Sequence[int | mpz]) -> LaneBatch:
        """See `Modulus.from_ints`."""
        raw = b"".join([(mpz(x) % self.m).to_bytes(self.width, "little") for x in numbers])
        return self.load_bytes(np.frombuffer(raw, dtype=np.uint8).reshape(len(numbers), self.width))

    def to_ints(self, batch: Batch) -> list[mpz]:
        """See `Modulus.to_ints`."""
        raw, w = self.store_bytes(batch).tobytes(), self.width
        return [mpz.from_bytes(raw[i : i + w], "little") for i in range(0, len(raw), w)]

    def mul(self, a: Batch, b: Batch) -> LaneBatch:
        """See `Modulus.mul`."""
        check_pairing(a, b)
        left, right = self.blocks_of(a), self.blocks_of(b)
        if len(a) == len(b):
            return self.make_batch(self.multiply_blocks(left, right), len(a))
        many, one, count = (left, right, len(a)) if len(b) == 1 else (right, left, len(b))
        factor = self.allocate_blocks(self.lanes)
        factor[0] = one[0, :, :1]
        return self.make_batch(self.multiply_blocks(many, factor), count)

    def take(self, batch: Batch, rows: np.ndarray) -> LaneBatch:
        """See `Modulus.take`."""
        data = self.blocks_of(batch)
        places = checked_places(rows, len(batch))
        return self.from_rows(data[places // self.lanes, :, places % self.lanes])

    def concat(self, batches: Sequence[Batch]) -> LaneBatch:
        """See `Modulus.concat`."""
        count = sum(len(batch) for batch in batches)
        parts = [self.blocks_of(batch) for batch in batches]
        if any(len(batch) % self.lanes for batch in batches[:-1]):
            return self.from_rows(np.concatenate([self.rows_of(batch) for batch in batches]))
        out = self.allocate_blocks(count)
        if count:
            np.concatenate(parts, out=out)
        return self.make_batch(out, count)
