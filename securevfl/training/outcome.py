"""Warnings about how training ended: worse than a constant prediction, or on too few rows of a class.

A run that ends without an error may still be worthless: its loss is finite but worse than that of always predicting the
class shares, or its validation rows include a single row of a class. Both are warnings with a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from securevfl.errors import InputError
from securevfl.training.objectives import check_numbers_fit
from securevfl.training.regression import Regression
from securevfl.training.rows import Epoch
from securevfl.training.task import Task

__all__ = [
    "check_classes",
    "check_labels",
    "constant_metrics",
    "ended_early",
    "few_labels",
    "few_rows",
    "went_nowhere",
]

_LAST = 3
"""How many of the last epochs are checked."""

_MARGIN = 1.02
"""A loss within two per cent of the constant prediction's counts as equal."""

_FEW = 10
"""Fewer rows of a class make a metric of that class unreliable."""

_WORD = 40
"""Characters of a class's name in a message."""

_LOSSES = {"log_loss": "log-loss", "rmse": "RMSE", "huber": "Huber loss"}

_STRATIFY = "stratify = true in [job] (Job(stratify=True)) gives each part its share of every class"


def constant_metrics(
    task: Task,
    train: np.ndarray,
    rows: np.ndarray,
    train_weight: np.ndarray | None = None,
    weight: np.ndarray | None = None,
) -> dict[str, float]:
    """Metrics on `rows` of a constant prediction: the training rows' class shares (accuracy and log-loss), or the mean
    of a numeric target.

    Args:
        task: what is learned.
        train: labels of the training rows, (n,).
        rows: labels of the rows that are scored, (m,).
        train_weight: of the training rows, (n,); equal unless given.
        weight: of the rows that are scored, (m,).

    Returns:
        ``accuracy``, of always predicting the most frequent training class; ``log_loss``, infinite if `rows` include a
        class that training lacks. Empty without rows.
    """
    if not len(train) or not len(rows):
        return {}
    if task.is_numeric:
        mean = float(np.average(train, weights=train_weight))
        return task.compute_metrics(np.full((len(rows), 1), mean), rows, weight)
    if task.is_multilabel:
        means = np.average(train, axis=0, weights=train_weight)
        found = task.compute_metrics(np.broadcast_to(means, rows.shape).astype(np.float64), rows, weight)
        return {name: found[name] for name in ("accuracy", "log_loss")}
    shares = np.bincount(train, weights=train_weight, minlength=task.classes)
    shares = shares / shares.sum()
    with np.errstate(divide="ignore"):
        losses = -np.log(shares[rows])
    right = rows == shares.argmax()
    return {
        "accuracy": float(np.average(right, weights=weight)),
        "log_loss": float(np.average(losses, weights=weight)),
    }


def check_labels(task: Task, train: np.ndarray, words: Sequence[str] = ()) -> None:
    """Refuse to train if there is nothing to learn.

    Args:
        task: what is learned.
        train: labels of the training rows, (n,).
        words: the classes, or the labels, as the table writes them; numbers unless given.

    Raises:
        InputError: all rows are of one class or have the same number, a label is the same in all rows, or the loss is
            not defined for the numbers.
    """
    if isinstance(task, Regression):
        check_numbers_fit(task.loss.name, train, "training")
    elif task.is_multilabel:
        for number in np.flatnonzero(train.min(axis=0) == train.max(axis=0)) if len(train) else ():
            raise InputError(
                f"label {_name_class(int(number), words)} is {train[0, number]} in all {len(train):,} training rows, "
                "so there is nothing to learn about it: find more common rows, or leave the label out"
            )
    else:
        check_classes(train, words=words)


def _name_class(number: int, words: Sequence[str]) -> str:
    """A class or a label as the label's table writes it, or its number where that is not known."""
    if number >= len(words):
        return str(number)
    word = words[number]
    return repr(word if len(word) <= _WORD else word[: _WORD - 1] + "…")


def check_classes(train: np.ndarray, names: str = "training", words: Sequence[str] = ()) -> None:
    """Refuse to train on a single class.

    Args:
        train: labels of the rows, (n,).
        names: what these rows are for.
        words: the classes as the table writes them; numbers unless given.

    Raises:
        InputError: all rows are of one class; the message has their number and a remedy.
    """
    if len(train) and len(np.unique(train)) == 1:
        raise InputError(
            f"all {len(train):,} {names} rows are of one class, {_name_class(int(train[0]), words)}, so there is "
            f"nothing to learn: find more common rows; {_STRATIFY}"
        )


def few_rows(classes: int, parts: dict[str, np.ndarray], words: Sequence[str] = ()) -> list[str]:
    """Warn about parts of the split with hardly any row of a class.

    Args:
        classes: number of classes.
        parts: purpose of the rows → their classes.
        words: the classes as the table writes them; numbers unless given.
    """
    found = []
    for what, labels in parts.items():
        if not len(labels):
            continue
        counts = np.bincount(labels, minlength=classes)
        scarce = np.flatnonzero(counts < min(_FEW, len(labels) // classes + 1))
        if len(scarce):
            listed = ", ".join(f"{counts[k]:,} of class {_name_class(k, words)}" for k in scarce[:4])
            listed += f" and few of {len(scarce) - 4} more" if len(scarce) > 4 else ""
            found.append(
                f"of {len(labels):,} {what} rows only {listed}: metrics on so few rows are unreliable; "
                f"find more common rows; {_STRATIFY}"
            )
    return found


def few_labels(labels: int, parts: dict[str, np.ndarray], words: Sequence[str] = ()) -> list[str]:
    """Warn about parts of the split in which hardly any row has, or lacks, one of several labels.

    Args:
        labels: number of labels.
        parts: purpose of the rows → their zeros and ones, (n, labels).
        words: names of the labels; numbers unless given.
    """
    found = []
    for what, known in parts.items():
        rarer = np.minimum(known.sum(axis=0), len(known) - known.sum(axis=0)) if len(known) else np.empty(0)
        scarce = np.flatnonzero(rarer < min(_FEW, len(known) // labels + 1))
        if len(scarce):
            listed = ", ".join(f"{int(rarer[k]):,} for label {_name_class(k, words)}" for k in scarce[:4])
            listed += f" and {len(scarce) - 4} more" if len(scarce) > 4 else ""
            found.append(
                f"of {len(known):,} {what} rows few have the rarer value: {listed}: metrics on so few rows are "
                "unreliable; find more common rows, or leave the label out"
            )
    return found


def ended_early(epochs: Sequence[Epoch], best: int, planned: int, loss: str = "log_loss") -> list[str]:
    """Warn if training used all of its epochs and the last one was the best: it was still getting better.

    Args:
        epochs: the history.
        best: the epoch that was kept, from 1.
        planned: how many the job allows.
        loss: the metric that is the loss.
    """
    losses = [epoch.valid[loss] for epoch in epochs if loss in epoch.valid]
    if not best == len(epochs) == planned or len(losses) < 2 or losses[-1] >= min(losses[:-1]):
        return []
    name = _LOSSES.get(loss, loss)
    return [
        f"the best epoch is the last of {planned:,}, and the validation {name} was still falling "
        f"({losses[-2]:.4g}, {losses[-1]:.4g}): the model was getting better when training ended; give more epochs, "
        f"such as epochs = {4 * planned} with patience = {max(5, planned // 2)}, which stops where nothing is gained"
    ]


def went_nowhere(
    epochs: Sequence[Epoch],
    constant: dict[str, float],
    test: dict[str, float],
    on_test: dict[str, float],
    loss: str = "log_loss",
) -> list[str]:
    """Warn if the validation loss of the last epochs, or the kept model's test loss, is worse than that of a constant
    prediction.

    Args:
        epochs: the history.
        constant: `constant_metrics` of the validation rows.
        test: the kept model's metrics on the test rows.
        on_test: `constant_metrics` of the test rows.
        loss: the metric that is the loss.
    """
    name = _LOSSES.get(loss, loss)
    always = "class shares" if loss == "log_loss" else "mean"
    losses = [epoch.valid[loss] for epoch in epochs[-_LAST:] if loss in epoch.valid]
    compared = [
        (
            f"the validation {name} of the last {'epoch' if len(losses) == 1 else f'{len(losses)} epochs'} was "
            + ", ".join(f"{one:.3g}" for one in losses),
            sum(losses) / max(len(losses), 1),
            constant.get(loss, math.inf),
        ),
        (
            f"the test {name} is {test.get(loss, 0):.3g}",
            test.get(loss, 0.0),
            on_test.get(loss, math.inf),
        ),
    ]
    falls = len(losses) > 1 and all(later < before for before, later in pairwise(losses))
    cure = (
        "the loss was still falling: train more epochs"
        if falls
        else "training diverged or overfitted; lower the learning rates, train fewer epochs (patience = …), or take "
        "less noise"
    )
    return [
        f"{what}; always predicting the training rows' {always} has {bound:.3g}: {cure}"
        for what, value, bound in compared
        if value > bound * _MARGIN
    ][:1]
