"""Which common rows train, validate and test, and in which batches. All parties derive the same from the job's
seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.errors import InputError
from securevfl.party_context import derive_seed

__all__ = ["Split", "draw_batches", "epoch_batches", "fixed_batches", "split_chunks", "stratified_marks"]

_DRAWS = 2_000
"""How many splits are tried before giving up."""


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers within the aligned table."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @classmethod
    def draw(cls, rows: int, *, valid: float, test: float, seed: int) -> Split:
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

    def with_valid(self, most: int | None, *, seed: int) -> Split:
        """This split with at most so many validation rows, drawn at random; the others stay unused.

        Args:
            most: how many; None for all.
            seed: the job's.
        """
        if most is None or len(self.valid) <= most:
            return self
        generator = np.random.default_rng(derive_seed(seed, "validation rows"))
        return Split(self.train, np.sort(generator.choice(self.valid, most, replace=False)), self.test)

    @classmethod
    def without_rows(cls) -> Split:
        """No rows."""
        none = np.arange(0)
        return cls(none, none, none)

    @classmethod
    def from_marks(cls, fold: np.ndarray) -> Split:
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


def stratified_marks(
    classes: np.ndarray, *, valid: float, test: float, seed: int, words: Sequence[object] = ()
) -> np.ndarray:
    """Mark each row independently at random, and repeat until each part has enough rows of every class.

    Enough is half of the part's share, rounded down, and at least one. Exact shares would reveal more: whoever knew the
    classes of all rows but one could compute that one from the marks. With independent draws the marks depend on the
    classes only through repetitions, which are rare if every class has dozens of rows.

    Args:
        classes: of the rows, (n,).
        valid: fraction for validation.
        test: fraction for the test.
        seed: the label owner's own, which nobody else knows.
        words: the classes as the table writes them, for the message; numbers unless given.

    Returns:
        uint8 (n,): 0 trains, 1 validates, 2 tests.

    Raises:
        InputError: a class has so few rows that no draw was good.
    """
    generator = np.random.default_rng(seed)
    shares = (1 - valid - test, valid, test)
    kinds, numbers = np.unique(classes, return_inverse=True)
    sizes = np.bincount(numbers, minlength=len(kinds))
    least = np.maximum(np.floor(np.outer(sizes, shares) / 2), 1)
    for _ in range(_DRAWS):
        marks = generator.choice(3, size=len(classes), p=shares).astype(np.uint8)
        counts = np.bincount(numbers * 3 + marks, minlength=3 * len(kinds)).reshape(-1, 3)
        if (counts >= least).all():
            return marks
    rarest = int(np.argmin(sizes))
    name = repr(str(words[int(kinds[rarest])])) if len(words) else int(kinds[rarest])
    raise InputError(
        f"class {name} has {sizes[rarest]} common row{'s' if sizes[rarest] > 1 else ''}, and {_DRAWS:,} "
        "splits left a part without enough of it: find more common rows, merge classes, or leave stratify out"
    )


def draw_batches(rows: np.ndarray, size: int, *, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """`rows` in a new random order for each epoch, `size` at a time; the last batch may be smaller."""
    order = np.random.default_rng(derive_seed(seed, "batches", epoch)).permutation(rows)
    return split_chunks(order, size)


def epoch_batches(rows: np.ndarray, size: int, steps: int | None, *, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of one epoch: one pass over `rows`, or `steps` full batches out of as many passes as they need."""
    if steps is None:
        return list(draw_batches(rows, size, seed=seed, epoch=epoch))
    full = max(len(rows) // size, 1)
    found: list[np.ndarray] = []
    generator = np.random.default_rng(derive_seed(seed, "batches", epoch))
    while len(found) < steps:
        found += list(split_chunks(generator.permutation(rows), size))[:full]
    return found[:steps]


def fixed_batches(rows: np.ndarray, size: int, steps: int | None, *, seed: int, epoch: int) -> list[np.ndarray]:
    """The batches of one epoch of a job whose batches have the same rows in all epochs, in an order that is drawn again
    for each: one pass over them, or `steps` full ones out of as many passes as they need.

    Args:
        rows: that train.
        size: of a batch; the last one may be smaller.
        steps: batches of an epoch; None for one pass.
        seed: the job's.
        epoch: from 1.
    """
    order = np.random.default_rng(derive_seed(seed, "fixed batches")).permutation(rows)
    every = list(split_chunks(order, size))
    generator = np.random.default_rng(derive_seed(seed, "batches", epoch))
    if steps is None:
        return [every[number] for number in generator.permutation(len(every))]
    full = max(len(rows) // size, 1)
    found: list[np.ndarray] = []
    while len(found) < steps:
        found += [every[number] for number in generator.permutation(full)]
    return found[:steps]


def split_chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """`rows` in their order, `size` at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
