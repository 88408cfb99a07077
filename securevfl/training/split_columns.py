"""Splits by a column of the label owner: by groups, by time or by classes; and folds of each.

The other parties learn the marks: which common rows train, validate and test. From a split by time they learn which
rows lie before and after two points in time; from a split by groups, that rows with different marks belong to different
groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.errors import InputError

__all__ = ["UNUSED", "class_folds", "fold_marks", "group_folds", "group_marks", "time_fold", "time_marks"]

UNUSED = 3
"""Mark of an unused common row: one that is later than the test fold."""

_DRAWS = 2_000


def group_marks(groups: np.ndarray, *, valid: float, test: float, seed: int) -> np.ndarray:
    """Mark each group independently at random, and repeat until each part has at least half of its share of the rows.

    Args:
        groups: of the rows, integers (n,).
        valid: fraction of the rows for validation.
        test: fraction for the test.
        seed: the label owner's, secret.

    Returns:
        uint8 (n,): 0 trains, 1 validates, 2 tests; the same for all rows of a group.

    Raises:
        InputError: groups are so few or so large that no draw was good.
    """
    generator = np.random.default_rng(seed)
    shares = np.array([1 - valid - test, valid, test])
    kinds, numbers = np.unique(groups, return_inverse=True)
    least = np.maximum(shares * len(groups) / 2, 1)
    for _ in range(_DRAWS if len(kinds) >= len(shares) else 0):
        marks = generator.choice(3, size=len(kinds), p=shares).astype(np.uint8)[numbers]
        if (np.bincount(marks, minlength=3) >= least).all():
            return marks
    raise InputError(
        f"{len(groups):,} common rows belong to {len(kinds):,} groups, the largest with "
        f"{np.bincount(numbers).max():,}: no split in {_DRAWS:,} left each part half of its share of the rows; find "
        "more groups, or split by rows"
    )


def time_marks(time: np.ndarray, *, valid: float, test: float) -> np.ndarray:
    """Train on the earliest rows, validate on later ones, test on the latest; rows of one time stay together.

    Args:
        time: of the rows, (n,).
        valid: fraction of the rows for validation, approximate if many rows have the same time.
        test: fraction for the test, also approximate.

    Returns:
        uint8 (n,): 0 trains, 1 validates, 2 tests.

    Raises:
        InputError: there are too few different times for one in each part.
    """
    order = np.sort(time)
    bounds = [_time_after(order, share) for share in (1 - valid - test, 1 - test)]
    marks = np.searchsorted(np.array(bounds), time, side="right").astype(np.uint8)
    _check_times(marks, time, 3)
    return marks


def time_fold(time: np.ndarray, k: int, folds: int, *, valid: float) -> np.ndarray:
    """Fold k of n in time, as in scikit-learn's TimeSeriesSplit.

    The rows fall into n + 1 blocks: blocks 1 to k train and validate, block k + 1 tests, later ones are unused.

    Args:
        time: of the rows, (n,).
        k: from 1.
        folds: how many.
        valid: fraction of the rows before the test block that validates: the latest ones.

    Returns:
        uint8 (n,): 0 trains, 1 validates, 2 tests, 3 is unused.

    Raises:
        InputError: there are too few different times.
    """
    order = np.sort(time)
    first, last = (_time_after(order, part / (folds + 1)) for part in (k, k + 1))
    before = np.sort(time[time < first])
    middle = _time_after(before, 1 - valid) if len(before) else first
    edges = [middle, first] + ([last] if k < folds else [])
    marks = np.searchsorted(np.array(edges), time, side="right").astype(np.uint8)
    _check_times(np.minimum(marks, UNUSED), time, 3)
    return marks


def fold_marks(numbers: np.ndarray, k: int, *, valid: float, seed: int, whole: np.ndarray | None = None) -> np.ndarray:
    """Marks of fold k: its rows test, and a random fraction of the others validates.

    Args:
        numbers: the fold of each row, from 0, (n,).
        k: the fold that tests, from 1.
        valid: fraction of all rows for validation.
        seed: of the draw of validation rows.
        whole: groups of the rows, (n,), that validate together; by default, each row is drawn independently.

    Returns:
        uint8 (n,): 0 trains, 1 validates, 2 tests.

    Raises:
        InputError: there are too few rows for one in each part.
    """
    rest = np.flatnonzero(numbers != k - 1)
    wanted = max(round(len(numbers) * valid), 1)
    of = np.arange(len(numbers)) if whole is None else whole
    kinds, sizes = np.unique(of[rest], return_counts=True)
    order = np.random.default_rng(seed).permutation(len(kinds))
    taken = np.cumsum(sizes[order]) - sizes[order] < wanted
    marks = np.where(np.isin(of, kinds[order][taken]), 1, 0).astype(np.uint8)
    marks[numbers == k - 1] = 2
    counts = np.bincount(marks, minlength=3)
    if not counts.all():
        raise InputError(
            f"of {len(numbers):,} common rows, fold {k} leaves {counts[0]} to train, {counts[1]} to validate and "
            f"{counts[2]} to test; each needs at least one: find more common rows or groups, or take fewer folds"
        )
    return marks


def group_folds(groups: np.ndarray, folds: int, *, seed: int) -> np.ndarray:
    """The fold of each row, from 0. The largest groups are assigned first, each to the fold with the fewest rows so
    far; groups of one size come in random order.

    Args:
        groups: of the rows, integers (n,).
        folds: how many.
        seed: the label owner's, secret.

    Raises:
        InputError: there are fewer groups than folds.
    """
    kinds, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(kinds) < folds:
        raise InputError(
            f"the common rows belong to {len(kinds)} groups, and {folds} folds need one each: take fewer folds"
        )
    found = np.empty(len(kinds), dtype=np.int64)
    rows = np.zeros(folds, dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(kinds))
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        found[group] = rows.argmin()
        rows[found[group]] += sizes[group]
    return found[numbers]


def class_folds(classes: np.ndarray, folds: int, *, seed: int, words: Sequence[object] = ()) -> np.ndarray:
    """The fold of each row, from 0, drawn independently until each fold has at least half of its share of every class
    and at least one row of it. `stratified_marks` explains why.

    Args:
        classes: of the rows, (n,).
        folds: how many.
        seed: the label owner's, secret.
        words: the classes as the table writes them, for the message; numbers unless given.

    Raises:
        InputError: a class has so few rows that no draw was good.
    """
    generator = np.random.default_rng(seed)
    kinds, numbers = np.unique(classes, return_inverse=True)
    sizes = np.bincount(numbers)
    least = np.maximum(sizes[:, None] // (2 * folds), 1)
    for _ in range(_DRAWS):
        found = generator.integers(folds, size=len(classes))
        counts = np.bincount(numbers * folds + found, minlength=len(kinds) * folds).reshape(-1, folds)
        if (counts >= least).all():
            return found
    rarest = int(np.argmin(sizes))
    name = repr(str(words[int(kinds[rarest])])) if len(words) else int(kinds[rarest])
    raise InputError(
        f"class {name} has {sizes[rarest]} common rows, and {_DRAWS:,} draws of {folds} folds left one "
        "without enough of it: take fewer folds, find more common rows, or leave stratify out"
    )


def _time_after(order: np.ndarray, share: float) -> float:
    """The first time after this share of the rows."""
    return float(order[min(round(len(order) * share), len(order) - 1)])


def _check_times(marks: np.ndarray, time: np.ndarray, parts: int) -> None:
    counts = np.bincount(marks, minlength=parts)
    if not counts[:parts].all():
        raise InputError(
            f"{len(time):,} common rows have {len(np.unique(time)):,} different times, which splits them into "
            f"{counts[0]} to train, {counts[1]} to validate and {counts[2]} to test; each needs at least one: find "
            "more common rows, take fewer folds, or split by rows"
        )
