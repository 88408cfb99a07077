"""Which common rows train, validate and test; and in which batches. All parties compute the same from the job's
seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from securevfl.errors import InputError
from securevfl.site import derive_seed

__all__ = ["Split", "batches", "chunks", "epoch_batches", "stratified_marks"]


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

    @classmethod
    def empty(cls) -> Split:
        """No rows."""
        none = np.arange(0)
        return cls(none, none, none)

    @classmethod
    def marked(cls, fold: np.ndarray) -> Split:
        """The split that the active party marked: `PartyTable.fold` of the aligned rows, in the common order.

        Raises:
            InputError: a part that is empty.
        """
        parts = cls(*(np.flatnonzero(fold == kind) for kind in (0, 1, 2)))
        if min(len(parts.train), len(parts.valid), len(parts.test)) == 0:
            raise InputError(
                f"of {len(fold)} common rows {len(parts.train)} are marked to train, {len(parts.valid)} to "
                "validate and "
                f"{len(parts.test)} to test; each needs at least one"
            )
        return parts


def stratified_marks(classes: np.ndarray, *, valid: float, test: float, seed: int) -> np.ndarray:
    """Marks of rows so that each part has its share of every class.

    Args:
        classes: of the rows, (n,).
        valid: fraction for validation.
        test: fraction for the test.
        seed: the label owner's own, which nobody else knows.

    Returns:
        uint8 (n,): 0 trains, 1 validates, 2 tests. A class of three rows or more has at least one row in each part.

    Raises:
        InputError: a class with fewer rows than parts.
    """
    generator = np.random.default_rng(seed)
    marks = np.zeros(len(classes), dtype=np.uint8)
    for kind in np.unique(classes):
        rows = generator.permutation(np.flatnonzero(classes == kind))
        if len(rows) < 3:
            raise InputError(
                f"class {int(kind)} has {len(rows)} common row{'s' if len(rows) > 1 else ''}; a stratified split needs "
                "3 of each class: find more common rows, merge classes, or leave stratify out"
            )
        n_valid, n_test = (min(max(round(len(rows) * part), 1), len(rows) - 2) for part in (valid, test))
        n_test = min(n_test, len(rows) - n_valid - 1)
        marks[rows[:n_valid]], marks[rows[n_valid : n_valid + n_test]] = 1, 2
    return marks


def batches(rows: np.ndarray, size: int, *, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """`rows` in a new random order for each epoch, `size` at a time; the last batch may be smaller."""
    order = np.random.default_rng(derive_seed(seed, "batches", epoch)).permutation(rows)
    return chunks(order, size)


def epoch_batches(rows: np.ndarray, size: int, steps: int | None, *, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of one epoch: one pass over `rows`, or `steps` full batches out of as many passes as they need."""
    if steps is None:
        return list(batches(rows, size, seed=seed, epoch=epoch))
    full = max(len(rows) // size, 1)
    found: list[np.ndarray] = []
    generator = np.random.default_rng(derive_seed(seed, "batches", epoch))
    while len(found) < steps:
        found += list(chunks(generator.permutation(rows), size))[:full]
    return found[:steps]


def chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """`rows` in their order, `size` at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
