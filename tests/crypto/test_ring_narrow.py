"""Products of matrices of small words: every path gives the words of Python's integers, whatever the shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.engine import narrow_products
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring import NarrowMatrix, OneHotMatrix, limbs
from support.ring_paths import NAMES, taken


def drawn(rng: np.random.Generator, kind: type[np.generic], *shape: int) -> np.ndarray:
    """Random words, of which a third are all zeros or all ones."""
    top = 1 << 8 * np.dtype(kind).itemsize
    words = rng.integers(0, top, shape, dtype=kind)
    if words.size:
        flat = words.reshape(-1)
        flat[rng.integers(0, flat.size, flat.size // 3)] = rng.choice(np.array([0, top - 1], kind))
    return words


def product(a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    """By Python's integers."""
    return np.asarray((a.astype(object) @ b.astype(object)) % (1 << bits))


def one_hot(codes: np.ndarray, sizes: list[int]) -> np.ndarray:
    found = np.zeros((sum(sizes), codes.shape[1]), np.uint32)
    for start, row in zip(np.cumsum([0, *sizes[:-1]]), codes, strict=True):
        found[start + row.astype(int), np.arange(len(row))] = 1
    return found


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    cells=st.integers(1, 21),
    rows=st.sampled_from([1, 7, 63, 64, 65, 200]),
    k=st.integers(1, 11),
)
def test_a_narrow_matrix_multiplies_as_pythons_integers(name: str, seed: int, cells: int, rows: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    z, v, s = (drawn(rng, np.uint32, *shape) for shape in ((cells, rows), (rows, k), (k, cells)))
    with taken(name):
        matrix = NarrowMatrix(z)
        assert (matrix.sum_rows(v) == product(z, v, 32)).all()
        assert (matrix.combine_cells(s) == product(s, z, 8)).all()
        assert (NarrowMatrix(z.astype(np.uint8)).combine_cells(s.astype(np.uint8)) == product(s, z, 8)).all()


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.sampled_from([1, 2, 3, 32, 256]), min_size=1, max_size=4),
    rows=st.sampled_from([1, 7, 64, 200]),
    k=st.integers(1, 11),
)
def test_a_one_hot_matrix_multiplies_as_its_words(name: str, seed: int, sizes: list[int], rows: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, rows) for size in sizes]).astype(np.uint8)
    z, v, s = one_hot(codes, sizes), drawn(rng, np.uint64, rows, k), drawn(rng, np.uint64, k, sum(sizes))
    with taken(name):
        matrix = OneHotMatrix(codes, sizes)
        assert (matrix.cells, matrix.rows) == z.shape
        assert (matrix.sum_rows(v) == product(z, v, 32)).all()
        assert (matrix.combine_cells(s) == product(s, z, 8)).all()


@pytest.mark.parametrize("name", NAMES)
def test_pieces_of_many_rows_and_cells_add_up(name: str) -> None:
    """More rows than a piece has, more cells than BLAS adds exactly at a time; words that are all ones, where sums are
    largest; and views, whose rows are not side by side."""
    rng = np.random.default_rng(1)
    z, v = drawn(rng, np.uint32, 5, 2 * 4096 + 100), drawn(rng, np.uint64, 3, 2 * 4096 + 100)
    ones = np.full((2500, 70), 255, np.uint8)
    halves = np.full((9, 2500), 128, np.uint8)
    with taken(name):
        assert (NarrowMatrix(z).sum_rows(v.T) == product(z, v.T, 32)).all()
        full = np.full_like(z, 2**32 - 1)
        assert (NarrowMatrix(full).sum_rows(full.T) == z.shape[1] % 2**32).all()
        assert (NarrowMatrix(z[::-1, ::2]).sum_rows(v.T[::2]) == product(z[::-1, ::2], v.T[::2], 32)).all()
        for octets in (ones, ones - np.uint8(127)):
            for factors in (halves, halves - np.uint8(1)):
                assert (NarrowMatrix(octets).combine_cells(factors) == product(factors, octets, 8)).all()
        codes = rng.integers(0, 200, (2, 2 * 4096 + 100)).astype(np.uint8)
        binned = OneHotMatrix(codes, [200, 201])
        assert (binned.sum_rows(v.T) == product(one_hot(codes, [200, 201]), v.T, 32)).all()


@pytest.mark.parametrize("name", NAMES)
def test_sums_by_bin_of_long_words_and_bins_that_repeat(name: str) -> None:
    from securevfl_crypto.ring.paths import ring_loops

    rng = np.random.default_rng(2)
    codes, values = np.zeros((2, 9000), np.uint8), drawn(rng, np.uint64, 9000, 6)
    with taken(name):
        found = ring_loops().sum_by_bin(codes, np.array([1, 3], np.uint64), values, 5)
    expected = values.astype(object).sum(0) % 2**64
    assert (found[[1, 3]] == expected).all()
    assert not found[[0, 2, 4]].any()


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_no_columns_and_no_factors(name: str) -> None:
    with taken(name):
        for matrix in (NarrowMatrix(np.zeros((3, 0), np.uint32)), OneHotMatrix(np.zeros((1, 0), np.uint8), [3])):
            assert not matrix.sum_rows(np.zeros((0, 2), np.uint32)).any()
            assert matrix.combine_cells(np.ones((2, 3), np.uint8)).shape == (2, 0)
        matrix = NarrowMatrix(np.ones((3, 70), np.uint32))
        assert matrix.sum_rows(np.zeros((70, 0), np.uint32)).shape == (3, 0)
        assert matrix.combine_cells(np.zeros((0, 3), np.uint8)).shape == (0, 70)


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "words of 64 bits": (lambda: NarrowMatrix(np.zeros((2, 2), np.uint64)), "narrow matrix of uint64"),
    "one axis": (lambda: NarrowMatrix(np.zeros(2, np.uint32)), r"expected uint32 or uint8 \(cells, n\)"),
    "sums of bytes": (
        lambda: NarrowMatrix(np.zeros((2, 3), np.uint8)).sum_rows(np.zeros((3, 1), np.uint32)),
        "no sums modulo 2",
    ),
    "other rows": (
        lambda: NarrowMatrix(np.zeros((2, 3), np.uint32)).sum_rows(np.zeros((4, 1), np.uint32)),
        r"expected uint32 or uint64 \(3, k\)",
    ),
    "other cells": (
        lambda: NarrowMatrix(np.zeros((2, 3), np.uint32)).combine_cells(np.zeros((1, 3), np.uint8)),
        r"\(k, 2\)",
    ),
    "signed": (
        lambda: NarrowMatrix(np.zeros((2, 3), np.uint32)).combine_cells(np.zeros((1, 2), np.int8)),
        "a factor of int8",
    ),
    "bins of another type": (lambda: OneHotMatrix(np.zeros((1, 3), np.int64), [3]), "expected uint8"),
    "another number of columns": (lambda: OneHotMatrix(np.zeros((1, 3), np.uint8), [3, 3]), "for 2 columns"),
    "a bin beyond": (lambda: OneHotMatrix(np.full((1, 3), 3, np.uint8), [3]), "column 0 has a row in bin 3"),
    "too many bins": (lambda: OneHotMatrix(np.zeros((1, 3), np.uint8), [257]), "expected 1 to 256"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_matrix_and_no_factor_is_refused(what: str) -> None:
    make, said = BAD[what]
    with pytest.raises(MalformedError, match=said):
        make()


def test_the_layouts_of_kernels_and_of_python_are_one() -> None:
    from securevfl_crypto.ring.base import COLUMNS

    assert narrow_products.PANEL == COLUMNS
    assert limbs._CELLS * 2**14 <= 2**24  # float32
    assert limbs._ROWS * 2**33 <= 2**53  # float64, two products of limbs of 16 bits
