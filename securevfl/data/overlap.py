"""The partitions of the papers on few aligned samples and on many label owners.

`limited_overlap`: some training rows at all parties, every other one at a single party; rows for the test that all
parties hold; and rows for validation beside them, or some of the common training rows. `label_owners`: rows split over
several owners of labels, iid or with two classes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from securevfl.data.parties import Parties
from securevfl.data.partition import generator, is_number, unlabelled, whole_number
from securevfl.data.table import TEST, TRAIN, VALID, LabelBook, PartyTable, check_fold
from securevfl.errors import InputError

__all__ = ["NON_IID", "Validation", "hold_out", "label_owners", "limited_overlap"]

Validation = Literal["beside", "overlap"]
"""Where the rows come from that validate: beside the overlap, or out of it; see `limited_overlap`."""

_FEWEST = 50
"""Rows from which a fifth of the overlap validates."""

NON_IID = ("iid", "1niid", "2niid", "3niid", "4niid")
"""How many of the label owners hold two classes only (Multi-VFL, Table 3)."""


def hold_out(rows: int, *, valid: float, test: float, seed: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Which rows validate and test, at random: `PartyTable.fold`, (rows,) int8.

    Args:
        rows: how many there are.
        valid: share that validates.
        test: share that tests.
        seed: of the choice.
        groups: rows with the same value stay together (recordings of one person, say).

    Raises:
        InputError: shares out of range, a part that would be empty, or groups of another number of rows.
    """
    if not (is_number(valid) and is_number(test) and 0 < valid < 1 and 0 < test < 1 and valid + test < 1):
        raise InputError(f"valid is {valid!r} and test is {test!r}; both lie between 0 and 1, and so does their sum")
    whole_number("rows", rows, 3)
    keys = np.arange(rows) if groups is None else np.asarray(groups)
    if keys.shape != (rows,):
        raise InputError(f"groups have shape {keys.shape} for {rows} rows; give one value for each row")
    distinct, member = np.unique(keys, return_inverse=True)
    order = generator(seed, 7).permutation(len(distinct))
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
    """A share of the training rows at all parties, the others dealt out evenly, one party each.

    Args:
        table: the whole table, named like the party that will be active.
        columns: party → its columns.
        fold: which rows validate and test, (rows,) int8; all parties hold those.
        overlap: training rows that all parties hold: a share between 0 and 1, or a count from 2.
        seed: of the choice, and of each party's own order of rows.
        labels: ``"own"``: the active party knows the labels of its own rows; ``"all"``: of all parties' rows, which
            Entity Augmentation assumes.
        validation: ``"beside"``: the rows that `fold` marks to validate are common to all parties, beside the overlap.
            ``"overlap"``: they are left out of all tables, and common training rows validate in their place: a fifth of
            them where that is 50 or more, else 2, on which nothing can be chosen (`Job.keep`). All other rows are the
            same.
        description: of the data.

    Raises:
        InputError: an overlap or `labels` out of range, a fold that does not fit the table, fewer than two parties, or
            one without columns.
    """
    if table.label is None or table.name not in columns:
        raise InputError(f"{table.name!r} has to own the labels and some of the columns ({', '.join(columns)})")
    if len(columns) < 2:
        raise InputError(f"{table.name!r} is the only party; give columns to at least one more")
    if labels not in ("own", "all"):
        raise InputError(f"labels is {labels!r}; 'own' and 'all' are known")
    fold = _fold(table, columns, fold)
    train = generator(seed, 8).permutation(np.flatnonzero(fold == TRAIN))
    common = _count(overlap, len(train))
    inside = _inside(validation, common)
    held_out = np.flatnonzero(fold == TEST if inside else fold != TRAIN)
    fold[train[:inside]] = VALID
    parts = np.array_split(train[common:], len(columns))
    tables = []
    for number, (name, chosen) in enumerate(columns.items()):
        own = generator(seed, 9, number).permutation(np.concatenate([train[:common], parts[number], held_out]))
        part = table.select(chosen).take(own)
        if name != table.name:
            tables.append(unlabelled(part, name))
            continue
        others = np.concatenate([rows for i, rows in enumerate(parts) if i != number])
        book = LabelBook(tuple(table.ids[row] for row in others.tolist()), table.label[others])
        tables.append(replace(part, fold=fold[own], book=book if labels == "all" and len(others) else None))
    return Parties.of(*tables, description=description)


def _fold(table: PartyTable, columns: Mapping[str, Sequence[str]], fold: np.ndarray) -> np.ndarray:
    for name, chosen in columns.items():
        if isinstance(chosen, str) or not len(chosen):
            raise InputError(f"party {name!r} gets {chosen!r}; give it a list of at least one column")
    found = np.asarray(fold)
    check_fold(found, table.rows, f"the table of {table.name!r}")
    return found.astype(np.int8)


def _inside(validation: str, common: int) -> int:
    """How many of the common training rows validate."""
    if validation not in ("beside", "overlap"):
        raise InputError(f"validation is {validation!r}; 'beside' and 'overlap' are known")
    if validation == "beside":
        return 0
    if common < 4:
        raise InputError(
            f"{common} training rows are common and 2 of them would validate, which leaves {common - 2} to train; give "
            "an overlap of at least 4 rows, or validation='beside'"
        )
    return common // 5 if common // 5 >= _FEWEST else 2


def _count(overlap: float, rows: int) -> int:
    if not is_number(overlap) or not (0 < overlap <= 1 or (overlap >= 2 and float(overlap).is_integer())):
        raise InputError(f"overlap is {overlap!r}; give a share, more than 0 and at most 1, or a whole count from 2")
    count = round(rows * overlap) if overlap <= 1 else int(overlap)
    if not 2 <= count <= rows:
        raise InputError(
            f"an overlap of {overlap} means {count} of {rows} training rows; give a share or a count that means at "
            "least 2 and at most all"
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
    """Data owners that hold columns of all rows, and label owners that hold labels of some rows each.

    The first label owner also holds the labels of validation and test. Rows that no label owner holds are left out. In
    scenario ``"2niid"`` the last two label owners own two classes each ({0, 1}, {2, 3}, … in their order), the others a
    random sample of all classes (Multi-VFL, arXiv 2106.05468, Table 3).

    Args:
        table: the whole table with its labels.
        columns: data owner → its columns.
        fold: which rows validate and test, (rows,) int8.
        owners: number of label owners.
        rows: training rows of each.
        scenario: one of `NON_IID`.
        seed: of the choice.
        description: of the data.

    Raises:
        InputError: a scenario that does not exist, or that needs more owners, classes or rows than there are; a fold
            that does not fit the table, no data owner, or one without columns.
    """
    if table.label is None:
        raise InputError(f"{table.name!r} has no labels to give to label owners")
    whole_number("owners", owners, 1)
    whole_number("rows", rows, 1)
    if not columns:
        raise InputError("columns names no data owner; give at least one")
    fold = _fold(table, columns, fold)
    if scenario not in NON_IID:
        raise InputError(f"scenario is {scenario!r}; one of {', '.join(NON_IID)} was expected")
    skewed = NON_IID.index(scenario)
    if skewed >= owners or 2 * skewed > len(table.classes):
        raise InputError(
            f"scenario {scenario!r} needs more than {skewed} label owners and {2 * skewed} classes; there are {owners} "
            f"and {len(table.classes)}"
        )
    free = generator(seed, 10).permutation(np.flatnonzero(fold == TRAIN))
    # Two-class owners take from the end of the order, the others from its front: theirs is a fair sample of all
    # classes, and not what the first have left.
    few: list[np.ndarray] = []
    for first in range(0, 2 * skewed, 2):
        wanted = free[np.isin(table.label[free], (first, first + 1))][::-1]
        if len(wanted) < rows:
            raise InputError(
                f"a label owner wants {rows} rows of classes {table.classes[first]!r} and "
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
        order = generator(seed, 11, number).permutation(chosen)
        tables.append(replace(labels.take(order), name=f"owner{number + 1}"))
    for number, (name, names) in enumerate(columns.items()):
        part = table.select(names).take(generator(seed, 12, number).permutation(everything))
        tables.append(unlabelled(part, name))
    return Parties.of(*tables, description=description)
