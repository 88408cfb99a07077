"""Chooses the path of the inner loops: the fastest that this machine can run and that passes its self-test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np

from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath, check_cpu
from securevfl_crypto.engine.paths import load_chosen, load_named
from securevfl_crypto.errors import EngineError
from securevfl_crypto.ring.base import COLUMNS, MODULUS, RingLoops
from securevfl_crypto.ring.portable import PortableRingLoops

__all__ = ["LEAST", "check_ring_loops", "large_products", "product_function", "ring_loops", "take_large_products"]

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]
LEAST = 1 << 24
"""Multiplications from which a product is large: 1.4 ms of a core by IFMA, 4.4 by AVX2. No accelerator was measured."""
_large: tuple[Product, int] | None = None


def ring_loops(path: str | None = None) -> RingLoops:
    """The inner loops of a path.

    Args:
        path: one of `engine.PATHS`; those without kernels compute with numpy. None: the path that ``SECUREVFL_ENGINE``
            named at first use, or the fastest that works here.

    Raises:
        EngineError: the requested path is unknown, cannot run here, or fails its self-test.
    """
    return _chosen() if path is None else load_named(path, _load, PortableRingLoops)


@lru_cache(maxsize=1)
def _chosen() -> RingLoops:
    _keep_memory()
    return load_chosen(_load, PortableRingLoops, stacklevel=4)


@lru_cache(maxsize=len(VECTOR_PATHS))
def _load(path: VectorPath) -> RingLoops:
    check_cpu(path)
    from securevfl_crypto.engine.compiled_ring import ring_kernels
    from securevfl_crypto.ring.compiled import CompiledRingLoops

    found = CompiledRingLoops(ring_kernels(path))
    check_ring_loops(found)
    return found


def _keep_memory() -> None:
    """Make glibc keep freed memory: its threshold for returning it grows to twice the largest array ever freed.

    A layer's messages are arrays of some 100 KB. Requesting their pages from the kernel again each time costs more than
    the arithmetic. The array here is never written, so it takes no memory. Other allocators ignore this.
    """
    np.empty(_LARGE, dtype=np.uint8)


def take_large_products(product: Product | None, least: int = LEAST) -> None:
    """Compute the large products of this process by another implementation, such as an accelerator's, from now on.

    Args:
        product: takes uint64 (m, k) and (k, n), and returns their product modulo 2^64; None for the chosen path's.
        least: the number of multiplications m k n from which `product` is used.

    Raises:
        EngineError: the product is wrong for random words, or for words that are all ones, where sums are largest.
            Then nothing changes.
    """
    global _large  # noqa: PLW0603 - the process has one accelerator, or none
    if product is not None:
        _check_product(product)
    _large = None if product is None else (product, least)


@contextmanager
def large_products(product: Product, least: int = LEAST) -> Iterator[None]:
    """`take_large_products` within this context.

    Raises:
        EngineError: as there.
    """
    global _large  # noqa: PLW0603
    before = _large
    take_large_products(product, least)
    try:
        yield
    finally:
        _large = before


def _check_product(product: Product) -> None:
    words = np.frombuffer(secrets.token_bytes(8 * 2 * 700 * 9), dtype=np.uint64)
    random, ones = words.reshape(2, 9, 700), np.full((2, 9, 700), 2**64 - 1, dtype=np.uint64)
    right = PortableRingLoops()
    for a, b in (random, ones, (random[0], ones[1])):
        if not np.array_equal(product(a, b.T), right.product(a, b.T)):
            raise EngineError("the given implementation of large products gives wrong results; it was not used")


def product_function(multiplications: int) -> Product:
    """The function for a product of this many multiplications: that of `large_products`, or the chosen path's."""
    if _large is not None and multiplications >= _large[1]:
        return _large[0]
    return ring_loops().product


def check_ring_loops(candidate: RingLoops) -> None:
    """Check every loop against numpy on fresh random input.

    Raises:
        EngineError: the path computes a wrong result.
    """
    right = PortableRingLoops()
    n, times = 9, 2
    m = n * times
    words = np.frombuffer(secrets.token_bytes(8 * 37 * 41), dtype=np.uint64)
    octets = np.frombuffer(secrets.token_bytes(COLUMNS * 300), dtype=np.uint8)
    a, b = words[: 37 * 20].reshape(37, 20), words[-20 * 19 :].reshape(20, 19)
    wide = words[: 5 * 300].reshape(5, 300).repeat(15, axis=0)
    residues = _take_residues(right, octets, MODULUS)
    bits, zeros, other = (residues[k * COLUMNS : (k + rows) * COLUMNS].reshape(rows, COLUMNS) for k, rows in _PARTS)
    factors = _take_residues(right, octets, MODULUS - 1)[: m * COLUMNS].reshape(m, COLUMNS)
    turns = octets[:m].copy()
    halves = words[: 5 * 64].view(np.uint32).reshape(5, 128)
    codes, starts = octets[: 3 * 50].reshape(3, 50) % np.uint8(4), np.array([0, 4, 8], dtype=np.uint64)

    def results(path: RingLoops) -> dict[str, list[np.ndarray]]:
        return {
            "products": [
                path.product(a, b),
                path.product(b.T, a.T),
                path.product(a, b[:, :8]),
                path.product(wide, wide.T),
                path.product(wide, wide.T[:, :2]),  # one vector of columns, on every path
            ],
            "residues": [_take_residues(path, octets, modulus) for modulus in (MODULUS, MODULUS - 1)],
            "the shares of bits": [path.deal_bits(words[:n], bits)],
            "comparisons": [
                path.mask_comparison(words[:m], bits, factors, zeros, turns, first=first) for first in (True, False)
            ],
            "zeros": [path.count_zeros(zeros, other)],
            "sums of words": [path.sum_words(halves, halves[:3]), path.sum_words(halves[:4], halves)],
            "products of octets": [
                path.combine_octets(octets[: 6 * 20].reshape(6, 20), octets[: 3 * 20 * 64].reshape(3, 20, 64))
            ],
            "sums by bin": [
                path.sum_by_bin(codes, starts, values, 12)
                for values in (words[: 50 * 4].reshape(50, 4), words[: 50 * 4].view(np.uint32).reshape(50, 8))
            ],
        }

    found, expected = results(candidate), results(right)
    wrong = [
        name
        for name, arrays in expected.items()
        if not all(np.array_equal(x, y) for x, y in zip(arrays, found[name], strict=True))
    ]
    if wrong:
        raise EngineError(
            f"the path {candidate.name!r} computes {' and '.join(wrong)} wrongly on this machine; "
            "set SECUREVFL_ENGINE=cryptography and report it"
        )


def _take_residues(path: RingLoops, octets: np.ndarray, modulus: int) -> np.ndarray:
    out = np.empty_like(octets)
    return out[: path.residues(octets, modulus, out)]


_LARGE = 1 << 24
_PARTS = ((0, 9), (9, 18), (27, 18))
"""Where the rows of the self-test begin, and how many there are."""
