"""Reasons for scores from one party's own columns: computed from its own table and part of the model, without any
message, and about no other party's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.data import FeatureEncoder, PartyTable
from securevfl.data.categories import Categories
from securevfl.data.column_terms import ColumnTerms, Direction, PartyTerms, Reason, find_reasons
from securevfl.errors import InputError, UnknownNameError
from securevfl.party import Job
from securevfl.run.model_parts import ModelPart
from securevfl.training.calibration import WHOLE, correction_of
from securevfl.training.multilabel import Labels
from securevfl.training.regression import Regression
from securevfl.training.task import Task

__all__ = [
    "build_task",
    "find_own_terms",
    "find_rows",
    "mean_terms",
    "own_curve",
    "own_reasons",
    "sum_of_answers",
]

_TINY = 1e-12
_AVERAGED = 1 << 16
"""Most rows of a table that a column's mean is taken over."""


def own_reasons(
    part: ModelPart,
    table: PartyTable,
    ids: Sequence[str],
    *,
    most: int = 3,
    direction: Direction = "down",
    output: int = 0,
) -> dict[str, list[Reason]]:
    """Find the columns of one party that move the scores of persons most.

    ```python
    reasons = sv.own_reasons(result.model().part("bank"), bank, ["c-1009"])
    ```

    Args:
        part: the party's, from `Model.part` or `ModelPart.load`.
        table: the party's; a column's mean is that over its rows, or that of the training rows where the model has it.
        ids: of the persons, each in the table.
        most: how many reasons of each.
        direction: ``"down"``: what lowers the score, ``"up"``: what raises it, ``"both"``: the largest of both.
        output: of which class, where there are several.

    Returns:
        Person → reasons, the strongest first; fewer than `most` where fewer columns move the score that way.

    Raises:
        InputError: a model that is no sum of terms of columns, a part without the party's own terms, no such output, or
            a person who is not in the table.
    """
    terms = find_own_terms(part, table, find_rows(table, ids))
    outputs = terms.values.shape[2]
    if not 0 <= output < outputs:
        raise InputError(f"output is {output}; the model has {outputs}, counted from 0")
    if direction not in ("down", "up", "both"):
        raise InputError(f"direction is {direction!r}: give 'down', 'up' or 'both'")
    return {
        name: find_reasons(terms, row, most=most, direction=direction, output=output) for row, name in enumerate(ids)
    }


def own_curve(
    part: ModelPart, table: PartyTable, column: str, *, points: int = 50, output: int = 0
) -> list[tuple[str, float]]:
    """What each value of one of a party's columns adds to a score, less the column's mean: exactly the column's partial
    dependence (Friedman 2001), as the model is a sum of terms. No message is sent.

    Args:
        part: the party's.
        table: the party's.
        column: its name.
        points: how many values of a column of numbers, at its quantiles; of others, the most frequent ones.
        output: of which class, where there are several.

    Returns:
        Values as text, and what they add: numbers ascending, others the most frequent first.

    Raises:
        InputError: see `own_reasons`; or a block of numbers.
        UnknownNameError: no such column.
    """
    if column not in table.columns:
        raise UnknownNameError(f"column of {table.name!r}:", column, table.columns)
    values = table.columns[column]
    if values.ndim > 1:
        raise InputError(f"column {column!r} of {table.name!r} is a block of numbers: it has no curve")
    most = min(max(points, 1), table.rows)
    if not isinstance(values, Categories) and values.dtype.kind in "iuf" and column not in table.categorical:
        numbers = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        grid = np.unique(np.quantile(numbers, np.linspace(0, 1, most), method="nearest"))
    else:
        found, counts = np.unique(np.asarray(values), return_counts=True)
        grid = found[np.argsort(-counts, kind="stable")][:most]
    rows = np.arange(len(grid))
    changed = table.take(rows)
    changed = replace(changed, columns={**changed.columns, column: grid.astype(np.asarray(values[:1]).dtype)})
    terms = find_own_terms(part, changed, rows, reference=table)
    place = terms.columns.index(column)
    return [(terms.texts[row][place], float(terms.values[row, place, output])) for row in rows.tolist()]


def find_own_terms(
    part: ModelPart, table: PartyTable, rows: np.ndarray, *, reference: PartyTable | None = None
) -> PartyTerms:
    """The terms of a party's own columns in the scores of rows of its table.

    Args:
        part: the party's.
        table: the party's.
        rows: numbers of rows of the table, (n,).
        reference: the table whose mean terms are subtracted; the same one unless given.

    Raises:
        InputError: see `own_reasons`; or other columns than in training.
    """
    encoder, terms = _column_terms(part, table, rows)
    return PartyTerms.of_rows(table, encoder, terms, mean_terms(part, reference or table), rows)


def mean_terms(part: ModelPart, table: PartyTable) -> np.ndarray:
    """The mean of each encoded column's term: as the model has it, or over rows of a table, (encoded columns, outputs).

    Args:
        part: the party's.
        table: the party's.
    """
    some = np.unique(np.linspace(0, table.rows - 1, min(table.rows, _AVERAGED)).astype(np.int64))
    _, terms = _column_terms(part, table, some)
    found: np.ndarray = terms.values.mean(axis=0) if terms.means is None else terms.means
    return found


def _column_terms(part: ModelPart, table: PartyTable, rows: np.ndarray) -> tuple[FeatureEncoder, ColumnTerms]:
    encoder, plan = FeatureEncoder.from_state(part.tree["encoder"]), part.job.plan
    x = encoder.transform(table, rows)
    return encoder, part.job.algorithm.column_terms(part.tree, x, table.name, plan.number)


def build_task(job: Job, part: Mapping[str, Any]) -> Task:
    """What a model predicts, from the active party's part of it."""
    plan, classes = job.plan, int(part["classes"])
    if plan.number is not None:
        return Regression(loss=plan.number).with_state(part.get("target"))
    return Labels(classes) if plan.several else Task(classes)


def sum_of_answers(job: Job, part: Mapping[str, Any], answers: np.ndarray) -> np.ndarray | None:
    """What the model added up to for rows, from its answers about them, (n,): of the second of two classes, or of a
    number; None for other targets.

    Args:
        job: that trained the model.
        part: the active party's.
        answers: (n, classes), or (n, 1) of numbers.
    """
    task = build_task(job, part)
    if task.outputs != 1 or task.is_multilabel:
        return None
    if isinstance(task, Regression):
        if task.loss.name in ("poisson", "tweedie"):
            return None
        logits = (answers[:, :1] - task.center) / task.scale
    else:
        p = np.clip(answers, _TINY, 1.0)
        logits = correction_of(part, WHOLE).undo_odds(np.log(p[:, 1:] / p[:, :1]))
    found: np.ndarray = job.algorithm.logits_to_sums(logits, numeric=task.is_numeric)[:, 0]
    return found


def find_rows(table: PartyTable, ids: Sequence[str]) -> np.ndarray:
    """The numbers of persons' rows, int64 (n,).

    Raises:
        InputError: a person who is not in the table.
    """
    place = {name: row for row, name in enumerate(table.ids)}
    for one in ids:
        if one not in place:
            raise InputError(f"the table of {table.name!r} has no person {one!r}: give ids of that table")
    return np.array([place[one] for one in ids], np.int64)
