"""Figures of scored rows whose labels the active party already has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data import PartyTable
from securevfl.party import Job
from securevfl.training.multilabel import Labels
from securevfl.training.regression import Regression
from securevfl.training.task import Task

__all__ = ["measure_scores"]


def measure_scores(
    job: Job, part: Mapping[str, Any], table: PartyTable, rows: np.ndarray, probabilities: np.ndarray
) -> tuple[dict[str, float], str]:
    """Return the metrics that training measures on its test rows, and why there are none (empty where there are).

    Args:
        job: that trained the model.
        part: the active party's part of the model, or its ``names`` alone; the measure of a Huber loss needs all of it.
        table: its table; metrics need its labels.
        rows: the table's rows that were scored, (n,).
        probabilities: of these rows, (n, classes), or predicted numbers (n, 1).
    """
    names: Sequence[str] = [str(name) for name in part["names"]]
    if table.label is None or not len(rows):
        return {}, ""
    task: Task
    if job.number_loss is not None:
        fitted = Regression(loss=job.number_loss)
        kind, task = "number", fitted.with_state(part["target"]) if "target" in part else fitted
    elif table.target == "labels" or table.label.ndim > 1:
        kind, task = "labels", Labels(len(names))
    else:
        kind, task = "classes", Task(len(names))
    if table.target != kind:
        return {}, f"the labels are {table.target}, and the model predicts {kind}: no figures"
    labels = table.label[rows]
    if kind == "classes":
        places = {name: place for place, name in enumerate(names)}
        known = np.array([places.get(str(value), -1) for value in table.classes], dtype=np.int64)
        labels = known[labels]
        new = sorted({str(value) for value, place in zip(table.classes, known, strict=True) if place < 0})
        if (labels < 0).any():
            return {}, f"label {new[0]!r} is none of the model's classes ({', '.join(names[:5])}): no figures"
    weight = None if table.weight is None else table.weight[rows]
    found = task.compute_metrics(probabilities, labels, weight)
    if "target" not in part:
        found.pop("huber", None)  # in units of a scale that only the part holds
    return found, ""
