"""How good predictions are, where the new rows have labels: the figures of a report, for other rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from securevfl.data import Parties, PartyTable
from securevfl.errors import InputError
from securevfl.party.report_options import ReportOptions
from securevfl.report.evaluation import Evaluation
from securevfl.report.record import Record
from securevfl.run.evaluation import evaluate_classes, evaluate_labels, evaluate_numbers
from securevfl.run.grouping import Grouping, find_grouping
from securevfl.run.model import Prediction

__all__ = ["judge_prediction", "judge_scores", "read_cutoff"]

_CERTAIN = 1 - 1e-9
"""Where every row has this much for one class, classes alone were opened."""


def judge_prediction(
    found: Prediction, parties: Parties, options: ReportOptions | None = None, *, cutoff: float | None = None
) -> Evaluation | None:
    """Evaluate predictions by the labels of the predicted rows; None where the table has none, or no row was scored.

    Args:
        found: the predictions.
        parties: the tables that were predicted.
        options: costs, and a column of the active party's to group by.
        cutoff: that training chose; with costs it is used here.

    Raises:
        InputError: the labels are of another kind than the model's.
        UnknownNameError: a class that the model does not have, or no such column.
    """
    return judge_scores(found.classes, found.ids, found.probabilities, parties.active, options, cutoff=cutoff)


def judge_scores(
    classes: Sequence[str],
    ids: Sequence[str],
    scores: np.ndarray,
    table: PartyTable,
    options: ReportOptions | None = None,
    *,
    cutoff: float | None = None,
) -> Evaluation | None:
    """Evaluate scores as `judge_prediction` does.

    Args:
        classes: names of the model's classes; a single one of a number.
        ids: of the scored rows.
        scores: of each, (n, classes).
        table: the active party's, with the labels.
        options, cutoff: see `judge_prediction`.

    Raises:
        InputError, UnknownNameError: see `judge_prediction`.
    """
    options = options or ReportOptions()
    if table.label is None or not len(ids):
        return None
    place = {name: row for row, name in enumerate(table.ids)}
    rows = np.array([place[name] for name in ids])
    weight = None if table.weight is None else table.weight[rows]
    grouping, said = _group_rows(options, table, rows)
    numeric = len(classes) == 1
    if numeric != (table.target == "number"):
        raise InputError(
            f"the model predicts {'a number' if numeric else 'classes'}, and the label {table.label_name!r} of "
            f"{table.name!r} is {'none' if numeric else 'a number'}: correct target, or leave the label out"
        )
    target = table.label_name
    if numeric:
        judged = evaluate_numbers(scores[:, 0], table.label[rows], weight=weight, target=target, grouping=grouping)
    elif table.target == "labels":
        judged = evaluate_labels(scores, table.label[rows], classes, weight=weight, target=target, grouping=grouping)
    else:
        known, labels = _known_classes(classes, table, rows)
        judged = evaluate_classes(
            scores[known],
            labels[known],
            classes,
            weight=None if weight is None else weight[known],
            target=target,
            costs=options.costs if len(classes) == 2 else None,
            cutoff=cutoff,
            grouping=None
            if grouping is None
            else Grouping(grouping.party, grouping.column, grouping.names[known], grouping.simulated),
            only_classes=bool(scores.max(axis=1).min() > _CERTAIN),
        )
    return msgspec.structs.replace(judged, missing=[*judged.missing, *said])


def _known_classes(classes: Sequence[str], table: PartyTable, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have a class of the model, bool (n,), and each row's class there, -1 for others."""
    at = {name: k for k, name in enumerate(classes)}
    codes = np.array([at.get(str(one), -1) for one in table.classes], dtype=np.int64)
    labels = codes[np.asarray(table.label)[rows]]
    if not (labels >= 0).any():
        raise InputError(
            f"the label {table.label_name!r} of {table.name!r} has the classes {list(map(str, table.classes))[:5]}; "
            f"the model has {list(classes)[:5]}: correct the table, or leave the label out"
        )
    return labels >= 0, labels


def _group_rows(options: ReportOptions, table: PartyTable, rows: np.ndarray) -> tuple[Grouping | None, list[str]]:
    where = options.grouping(table.name)
    if where is None:
        return None, []
    if where[0] != table.name:
        return None, [f"Predictions are grouped by columns of {table.name} alone, not by {options.group}."]
    if where[1] not in table.columns and where[1] not in table.beside:
        return None, [f"These rows have no column {where[1]!r}, so they are not compared by {options.group}."]
    return find_grouping(options, {table.name: table}, {table.name: rows}, table.name), []


def read_cutoff(folder: Path) -> float | None:
    """The cut-off that the run in this folder chose; None where it chose none, or there is no such run."""
    try:
        record = Record.read(folder / "metrics.json")
    except InputError:
        return None
    decisions = [run.evaluation.decision for run in record.runs if run.evaluation is not None and not run.baseline]
    return next((one.cutoff for one in reversed(decisions) if one is not None), None)
