"""Partitions from the papers on few aligned samples and on many label owners.

`limited_overlap`: some training rows are common to all parties, every other one belongs to a single party; the test
rows are common; validation rows are either common and separate, or taken from the common training rows. `label_owners`:
rows split over several label owners, iid or with two classes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from securevfl.data.parties import Parties
from securevfl.data.partition import drop_labels, is_number, seeded_generator, whole_number
from securevfl.data.table import TEST, TRAIN, VALID, LabelBook, PartyTable, check_fold
from securevfl.errors import InputError

__all__ = ["NON_IID", "Validation", "hold_out", "label_owners", "limited_overlap"]

Validation = Literal["beside", "overlap"]
"""Source of the validation rows: separate from the overlap, or taken from it; see `limited_overlap`."""

_FEWEST = 50
"""Fewest validation rows; if a fifth of the overlap is smaller, only 2 rows validate."""

NON_IID = ("iid", "1niid", "2niid", "3niid", "4niid")
"""Scenarios by the number of label owners with only two classes (Multi-VFL, Table 3)."""


def hold_out(rows: int, *, valid: float, test: float, seed: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Choose validation and test rows at random; returns `PartyTable.fold`, (rows,) int8.

    Args:
        rows: number of rows.
        valid: share for validation.
        test: share for the test.
        seed: seeds the choice.
        groups: rows with the same value stay together, for example the recordings of one person.

    Raises:
        InputError: shares out of range, an empty part, or groups for another number of rows.
    """
    if not (is_number(valid) and is_number(test) and 0 < valid < 1 and 0 < test < 1 and valid + test < 1):
        raise InputError(f"valid is {valid!r} and test is {test!r}; both and their sum must lie between 0 and 1")
    whole_number("rows", rows, 3)
    keys = np.arange(rows) if groups is None else np.asarray(groups)
    if keys.shape != (rows,):
        raise InputError(f"groups have shape {keys.shape} for {rows} rows; give one value for each row")
    distinct, member = np.unique(keys, return_inverse=True)
    order = seeded_generator(seed, 7).permutation(len(distinct))
    n_test, n_valid = round(len(distinct) * test), round(len(distinct) * valid)
    if min(n_test, n_valid, len(distinct) - n_test - n_valid) < 1:
        raise InputError(
            f"{len(distinct)} rows or groups are too few to hold out {valid:.0%} and {test:.0%} of them: a part would "
            "be empty; take more rows, or other shares"
        )
    kind = np.full(len(distinct), TRAIN, dtype=np.int8)
    kind[order[:n_test]] = TEST
    kind[order[n_test : n_test + n_valid]] = VALID
    found: np.ndarray = kind[member]
    return found


def limited_overlap(
    table: PartyTable,
    columns: Mapping[str, Sequence[str]],
    fold: np.ndarray,
    *,
    overlap: float,
    seed: int,
    labels: str = "own",
    validation: Validation = "beside",
    description: str = "",
) -> Parties:
    """Give all parties a share of the training rows and distribute the others evenly, each to one party.

    Args:
        table: the full table, named after the future active party.
        columns: party → its columns.
        fold: validation and test rows, (rows,) int8; these are common to all parties.
        overlap: common training rows: a share between 0 and 1, or a count from 2.
        seed: seeds the choice and each party's order of rows.
        labels: ``"own"``: the active party has the labels of its own rows; ``"all"``: of all parties' rows, as Entity
            Augmentation assumes.
        validation: ``"beside"``: the validation rows of `fold` are common to all parties, in addition to the overlap.
            ``"overlap"``: they are dropped from all tables, and common training rows replace them: a fifth of the
            overlap if that is at least 50 rows, otherwise 2, too few to choose a model on (`Job.keep`). All other rows
            are the same.
        description: description of the data.

    Raises:
        InputError: invalid `overlap` or `labels`, a fold that does not match the table, fewer than two parties, or a
            party without columns.
    """
    if table.label is None or table.name not in columns:
        raise InputError(f"{table.name!r} must own the labels and some of the columns ({', '.join(columns)})")
    if len(columns) < 2:
        raise InputError(f"{table.name!r} is the only party; give columns to at least one more")
    if labels not in ("own", "all"):
        raise InputError(f"labels is {labels!r}; expected 'own' or 'all'")
    fold = _fold_columns(table, columns, fold)
    train = seeded_generator(seed, 8).permutation(np.flatnonzero(fold == TRAIN))
    common = _common_count(overlap, len(train))
    inside = _validation_count(validation, common)
    held_out = np.flatnonzero(fold == TEST if inside else fold != TRAIN)
    fold[train[:inside]] = VALID
    parts = np.array_split(train[common:], len(columns))
    tables = []
    for number, (name, chosen) in enumerate(columns.items()):
        own = seeded_generator(seed, 9, number).permutation(np.concatenate([train[:common], parts[number], held_out]))
        part = table.select(chosen).take(own)
        if name != table.name:
            tables.append(drop_labels(part, name))
            continue
        others = np.concatenate([rows for i, rows in enumerate(parts) if i != number])
        book = LabelBook(tuple(table.ids[row] for row in others.tolist()), table.label[others])
        tables.append(replace(part, fold=fold[own], book=book if labels == "all" and len(others) else None))
    return Parties.of(*tables, description=description)


def _fold_columns(table: PartyTable, columns: Mapping[str, Sequence[str]], fold: np.ndarray) -> np.ndarray:
    for name, chosen in columns.items():
        if isinstance(chosen, str) or not len(chosen):
            raise InputError(f"party {name!r} gets {chosen!r}; give it a list of at least one column")
    found = np.asarray(fold)
    check_fold(found, table.rows, f"the table of {table.name!r}")
    return found.astype(np.int8)


def _validation_count(validation: str, common: int) -> int:
    """Return how many common training rows are used for validation."""
    if validation not in ("beside", "overlap"):
        raise InputError(f"validation is {validation!r}; expected 'beside' or 'overlap'")
    if validation == "beside":
        return 0
    if common < 4:
        raise InputError(
            f"of {common} common training rows, 2 would validate and {common - 2} would be left to train; give "
            "an overlap of at least 4 rows, or validation='beside'"
        )
    return common // 5 if common // 5 >= _FEWEST else 2


def _common_count(overlap: float, rows: int) -> int:
    if not is_number(overlap) or not (0 < overlap <= 1 or (overlap >= 2 and float(overlap).is_integer())):
        raise InputError(f"overlap is {overlap!r}; give a share, more than 0 and at most 1, or a whole count from 2")
    count = round(rows * overlap) if overlap <= 1 else int(overlap)
    if not 2 <= count <= rows:
        raise InputError(
            f"overlap={overlap} selects {count} of {rows} training rows; give a share or a count that selects "
            "at least 2 and at most all rows"
        )
    return count


def label_owners(
    table: PartyTable,
    columns: Mapping[str, Sequence[str]],
    fold: np.ndarray,
    *,
    owners: int = 5,
    rows: int = 5000,
    scenario: str = "iid",
    seed: int = 0,
    description: str = "",
) -> Parties:
    """Split a table into data owners, which have columns of all rows, and label owners, which each have labels of some
    rows.

    The first label owner also has the labels of the validation and test rows. Rows without a label owner are dropped.
    In scenario ``"2niid"`` the last two label owners own two classes each ({0, 1}, {2, 3}, … in their order), the
    others a random sample of all classes (Multi-VFL, arXiv 2106.05468, Table 3).

    Args:
        table: the full table with its labels.
        columns: data owner → its columns.
        fold: validation and test rows, (rows,) int8.
        owners: number of label owners.
        rows: training rows per label owner.
        scenario: one of `NON_IID`.
        seed: seeds the choice.
        description: description of the data.

    Raises:
        InputError: an unknown scenario, or one that needs more owners, classes or rows; a fold that does not match the
            table; no data owner, or one without columns.
    """
    if table.label is None:
        raise InputError(f"{table.name!r} has no labels to give to label owners")
    whole_number("owners", owners, 1)
    whole_number("rows", rows, 1)
    if not columns:
        raise InputError("columns names no data owner; give at least one")
    fold = _fold_columns(table, columns, fold)
    if scenario not in NON_IID:
        raise InputError(f"scenario is {scenario!r}; one of {', '.join(NON_IID)} was expected")
    skewed = NON_IID.index(scenario)
    if skewed >= owners or 2 * skewed > len(table.classes):
        raise InputError(
            f"scenario {scenario!r} needs more than {skewed} label owners and {2 * skewed} classes; there are {owners} "
            f"and {len(table.classes)}"
        )
    free = seeded_generator(seed, 10).permutation(np.flatnonzero(fold == TRAIN))
    # Two-class owners take rows from the end of the order, the others from its front: these get a fair sample of
    # all classes and not the two-class owners' leftovers.
    few: list[np.ndarray] = []
    for first in range(0, 2 * skewed, 2):
        wanted = free[np.isin(table.label[free], (first, first + 1))][::-1]
        if len(wanted) < rows:
            raise InputError(
                f"a label owner needs {rows} rows of classes {table.classes[first]!r} and "
                f"{table.classes[first + 1]!r}, and there are {len(wanted)}; give it fewer"
            )
        few.append(wanted[:rows])
        free = free[~np.isin(free, wanted[:rows])]
    full = owners - skewed
    if len(free) < full * rows:
        raise InputError(
            f"{full} label owners want {rows} rows of all classes each, and {len(free)} are left; give fewer"
        )
    taken = [*(free[: full * rows][i::full] for i in range(full)), *few]
    held_out = np.flatnonzero(fold != TRAIN)
    everything = np.concatenate([*taken, held_out])
    labels = replace(table, columns={}, categorical=frozenset(), fold=fold, book=None)
    tables = []
    for number, own in enumerate(taken):
        chosen = np.concatenate([own, held_out]) if number == 0 else own
        order = seeded_generator(seed, 11, number).permutation(chosen)
        tables.append(replace(labels.take(order), name=f"owner{number + 1}"))
    for number, (name, names) in enumerate(columns.items()):
        part = table.select(names).take(seeded_generator(seed, 12, number).permutation(everything))
        tables.append(drop_labels(part, name))
    return Parties.of(*tables, description=description)
