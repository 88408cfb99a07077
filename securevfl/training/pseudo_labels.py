"""Pseudo-labels: classes that a model gives to rows without labels, where it is sure. All parties take part."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch

from securevfl.training.role import ActiveRole, PassiveRole
from securevfl.training.split import chunks
from securevfl.training.state import State

__all__ = ["SelfTraining", "answer_rows", "label_rows"]


@dataclass
class SelfTraining:
    """What self-training did: a run that labelled nothing must not pass for one that did.

    Attributes:
        confidence: least probability of a pseudo-label.
        rows: without labels, that were looked at.
        labelled: of these, that were given one.
        dropped: rows that were left out of training.
        classes: how many classes were given.
        most: the largest probability that one of these rows reached.
        valid: validation rows that the labelling model scored last.
        sure: of these, that reach `confidence`.
        right: of these again, that have the class which the model gives them.
    """

    confidence: float
    rows: int = 0
    labelled: int = 0
    dropped: int = 0
    classes: int = 0
    most: float = 0.0
    valid: int = 0
    sure: int = 0
    right: int = 0

    def look(self, p: np.ndarray) -> np.ndarray:
        """Which rows are sure enough of a class, (n,) bool, from probabilities (n, classes)."""
        top = p.max(axis=1) if len(p) else np.empty(0)
        sure = np.asarray(top >= self.confidence)
        self.rows += len(p)
        self.labelled += int(sure.sum())
        self.classes = max(self.classes, len(np.unique(p[sure].argmax(axis=1))))
        self.most = max(self.most, float(top.max(initial=0.0)))
        return sure

    def judge(self, p: np.ndarray, labels: np.ndarray) -> None:
        """How the model that labels does on validation rows: probabilities (n, classes), classes (n,)."""
        sure = p.max(axis=1) >= self.confidence if len(p) else np.empty(0, dtype=bool)
        self.valid, self.sure = len(p), int(sure.sum())
        self.right = int((p[sure].argmax(axis=1) == labels[sure]).sum()) if self.sure else 0

    @property
    def text(self) -> str:
        """One sentence for the report."""
        found = (
            f"{self.labelled:,} of {self.rows:,} rows of the passive parties labelled, with a probability of "
            f"{self.confidence:g} or more; {self.dropped:,} rows dropped"
        )
        if self.sure:
            share = 100 * self.right / self.sure
            found += (
                f"; of {self.valid:,} validation rows, which all parties hold, {self.sure:,} reach it and "
                f"{share:.0f} % of those are right"
            )
        elif self.valid:
            found += f"; none of {self.valid:,} validation rows reaches it"
        return found

    @property
    def warnings(self) -> list[str]:
        """What a user has to know before reading the figures."""
        if self.labelled and self.classes == 1:
            return [
                f"self-training gave all of its {self.labelled:,} labels to one class: where classes are uneven, a "
                "threshold picks rows of the most frequent one; compare with an algorithm that labels none "
                "(zero_imputation)"
            ]
        if not self.rows or self.labelled:
            return []
        return [
            f"self-training labelled none of {self.rows:,} rows, so these figures show nothing of it: the largest "
            f"probability was {self.most:.3f}, and confidence is {self.confidence:g}; set confidence below that, and "
            "look at how many labels are right"
        ]

    @property
    def figures(self) -> dict[str, float]:
        """For tables of many runs."""
        return {"rows labelled": float(self.labelled), "rows dropped": float(self.dropped)}

    def state(self) -> State:
        """All of it but the threshold, for a checkpoint."""
        return {name: value for name, value in asdict(self).items() if name != "confidence"}

    def load(self, state: State) -> None:
        """Go on from a state."""
        for name in self.state():
            setattr(self, name, type(getattr(self, name))(state[name]))


async def label_rows(role: ActiveRole, rows: np.ndarray, tally: SelfTraining) -> np.ndarray:
    """Label rows in the role's `y` by its model as it is, while the passive parties run `answer_rows`.

    Args:
        role: the active party's.
        rows: numbers of rows without labels, (n,).
        tally: says how sure a label has to be, and counts.

    Returns:
        Numbers of the rows that were labelled, in their order.
    """
    labelled = [rows[:0]]
    for part in chunks(rows, role.plan.eval_rows):
        p = role.task.probabilities(await role.score(part))
        sure = tally.look(p)
        role.y[torch.from_numpy(part[sure])] = torch.from_numpy(p.argmax(axis=1)[sure]).to(role.y)
        labelled.append(part[sure])
    return np.concatenate(labelled)


async def answer_rows(role: PassiveRole, rows: np.ndarray) -> None:
    """Take part in labelling these rows, as many at a time as `label_rows` scores."""
    for part in chunks(rows, role.plan.eval_rows):
        await role.answer(part)
