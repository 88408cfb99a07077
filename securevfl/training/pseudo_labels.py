"""Pseudo-labels: classes that a model gives to rows without labels, where it is sure. All parties take part."""

from __future__ import annotations

import numpy as np
import torch

from securevfl.training.role import ActiveRole, PassiveRole
from securevfl.training.split import chunks

__all__ = ["answer_rows", "label_rows", "labelled_note"]


async def label_rows(role: ActiveRole, rows: np.ndarray, confidence: float) -> np.ndarray:
    """Label rows in the role's `y` by its model as it is, while the passive parties run `answer_rows`.

    Args:
        role: the active party's.
        rows: numbers of rows without labels, (n,).
        confidence: least probability of a class.

    Returns:
        Numbers of the rows that were labelled, in their order.
    """
    labelled = [rows[:0]]
    for part in chunks(rows, role.plan.eval_rows):
        p = role.task.probabilities(await role.score(part))
        sure = p.max(axis=1) >= confidence
        role.y[torch.from_numpy(part[sure])] = torch.from_numpy(p.argmax(axis=1)[sure]).to(role.y)
        labelled.append(part[sure])
    return np.concatenate(labelled)


async def answer_rows(role: PassiveRole, rows: np.ndarray) -> None:
    """Take part in labelling these rows, as many at a time as `label_rows` scores."""
    for part in chunks(rows, role.plan.eval_rows):
        await role.answer(part)


def labelled_note(labelled: int, rows: int, confidence: float) -> str:
    """What the report tells of it.

    Args:
        labelled: how many rows were.
        rows: how many there are.
        confidence: least probability of a class.
    """
    which = f"of the passive parties' other rows, those with a class of probability {confidence:g} or more"
    return f"{labelled:,} of {rows:,} rows labelled: {which}"
