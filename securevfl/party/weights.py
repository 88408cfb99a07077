"""Weights of rows, from the label owner's table, and of classes, from the job. Both stay with the label owner; neither
is sent.

Row weights count in the loss and in every metric, class weights in the loss alone. Row weights are divided by their
mean over the training rows, so that learning rates mean what they mean without weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from securevfl.data import PartyTable
from securevfl.errors import InputError, UnknownNameError
from securevfl.training import NumberedRows

__all__ = ["add_weights", "class_weights"]

ClassWeight = str | Mapping[str, float] | None


def class_weights(chosen: ClassWeight, classes: tuple[str, ...], train: np.ndarray) -> np.ndarray | None:
    """The weight of each class, (classes,); None if all count alike.

    Args:
        chosen: ``"balanced"``, rows / (classes · rows of the class), as in scikit-learn; class → weight, 1 for other
            classes; or None.
        classes: their names.
        train: classes of the training rows, (n,).

    Raises:
        UnknownNameError: a class that does not exist.
        InputError: a class without training rows, balanced.
    """
    if chosen is None:
        return None
    if isinstance(chosen, str):
        counts = np.bincount(train, minlength=len(classes))
        if not counts.all():
            raise InputError(
                f"class_weight is 'balanced', and class {classes[int(counts.argmin())]!r} has no training row: leave "
                "class_weight out, or stratify the split"
            )
        found: np.ndarray = len(train) / (len(classes) * counts)
        return found
    for name in chosen:
        if name not in classes:
            raise UnknownNameError("class in class_weight:", name, classes)
    return np.array([chosen.get(name, 1.0) for name in classes], dtype=np.float64)


def add_weights(mine: NumberedRows, table: PartyTable, numbers: np.ndarray, chosen: ClassWeight) -> NumberedRows:
    """The label owner's numbered rows with their weights.

    Args:
        mine: with labels, without weights.
        table: the label owner's.
        numbers: for each numbered row its row in the table, (rows,); -1 if the table lacks it.
        chosen: see `class_weights`.

    Raises:
        InputError: weights that leave the training rows, the validation rows or the test rows without any.
    """
    y, split = mine.y, mine.split
    if y is None or (table.weight is None and chosen is None):
        return mine
    own = None
    if table.weight is not None:
        own = np.where(numbers >= 0, table.weight[numbers], 0.0)
        for what, rows in (("training", split.train), ("validation", split.valid), ("test", split.test)):
            if len(rows) and not own[rows].sum() > 0:
                raise InputError(
                    f"all {len(rows):,} {what} rows have weight 0, so no row would count: correct the "
                    "weights, or find more common rows"
                )
        mean = float(own[split.train].mean())
        own = np.where(numbers >= 0, own / mean, 1.0)  # of a row that the table lacks, in a label book: as the mean
    labels = y.numpy()
    each = class_weights(chosen, tuple(map(str, table.classes)), labels[split.train])
    by_class = np.ones(len(labels)) if each is None else np.where(labels >= 0, each[labels], 1.0)
    counts = by_class if own is None else by_class * own
    return replace(
        mine,
        weight=None if own is None else torch.from_numpy(own),
        counts=torch.from_numpy(counts.astype(np.float32)),
    )
