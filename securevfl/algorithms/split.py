"""Which common rows train, validate and test; and in which batches. All parties compute the same from the job's
seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from securevfl.errors import InputError
from securevfl.party import derive_seed

__all__ = ["Split", "batches", "chunks"]


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers within the aligned table."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @classmethod
    def of(cls, rows: int, *, valid: float, test: float, seed: int) -> Split:
        """Split `rows` aligned rows at random.

        Args:
            rows: how many there are.
            valid: fraction for validation, between 0 and 1.
            test: fraction for the test; less than 1 together.
            seed: the job's.

        Raises:
            InputError: fractions out of range, or too few rows to give each part one.
        """
        if not (0 < valid < 1 and 0 < test < 1 and valid + test < 1):
            raise InputError(f"valid is {valid} and test is {test}; both lie between 0 and 1, and so does their sum")
        order = np.random.default_rng(derive_seed(seed, "split")).permutation(rows)
        n_valid, n_test = round(rows * valid), round(rows * test)
        parts = cls(order[n_valid + n_test :], order[:n_valid], order[n_valid : n_valid + n_test])
        if min(len(parts.train), len(parts.valid), len(parts.test)) == 0:
            raise InputError(
                f"{rows} common rows split into {len(parts.train)} to train, {len(parts.valid)} to validate and "
                f"{len(parts.test)} to test; each needs at least one: find more common rows"
            )
        return parts


def batches(rows: np.ndarray, size: int, *, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """`rows` in a new random order for each epoch, `size` at a time; the last batch may be smaller."""
    order = np.random.default_rng(derive_seed(seed, "batches", epoch)).permutation(rows)
    return chunks(order, size)


def chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """`rows` in their order, `size` at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
