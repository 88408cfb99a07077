"""Pseudo-labels: classes that a model assigns to rows without labels, by one of three rules. All parties take part.

- *confidence*: label a row if its largest probability reaches a bound.
- *calibrated*: the same after temperature scaling (Guo et al. 2017, arXiv 1706.04599), fitted to aligned rows that the
  model was not trained on.
- *balanced*: the surest rows of each class, as many as the class's share of known labels asks for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
import torch

from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.split import split_chunks
from securevfl.training.state import State

__all__ = ["Labelling", "SelfTraining", "answer_rows", "fit_temperature", "give_labels", "label_rows", "score_rows"]

Labelling = Literal["confidence", "calibrated", "balanced"]
"""The rule by which rows are labelled."""

FEWEST_TO_CALIBRATE = 10
"""Fewest held-out rows that a temperature is fitted to."""

_TEMPERATURES = np.geomspace(0.25, 16.0, 97)
_SMALLEST = 1e-12


def divide_logits(p: np.ndarray, heat: float) -> np.ndarray:
    """Probabilities (n, classes) whose logits are divided by `heat`."""
    if heat == 1 or not len(p):
        return p
    log = np.log(np.clip(p, _SMALLEST, None)) / heat
    raised = np.exp(log - log.max(axis=1, keepdims=True))
    found: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
    return found


def fit_temperature(p: np.ndarray, labels: np.ndarray) -> float:
    """The temperature that makes probabilities (n, classes) most likely for these classes (n,).

    Returns:
        One of 97 values from 0.25 to 16; 1 with fewer than `FEWEST_TO_CALIBRATE` rows.
    """
    if len(p) < FEWEST_TO_CALIBRATE:
        return 1.0
    at = np.arange(len(p))
    losses = [-np.log(np.clip(divide_logits(p, heat)[at, labels], _SMALLEST, None)).mean() for heat in _TEMPERATURES]
    return float(_TEMPERATURES[int(np.argmin(losses))])


def _class_margins(p: np.ndarray) -> np.ndarray:
    """Each class's probability minus the best other one, (n, classes)."""
    if p.shape[1] < 2:
        return p
    order = np.sort(p, axis=1)
    first, second = order[:, -1:], order[:, -2:-1]
    found: np.ndarray = p - np.where(p == first, second, first)
    return found


@dataclass
class SelfTraining:
    """Counts what self-training did, so that a run that labelled nothing is reported as such.

    Attributes:
        confidence: least probability of a pseudo-label, under the rules *confidence* and *calibrated*.
        labelling: the rule.
        share: of the rows, that the rule *balanced* labels.
        shares: of the classes among known labels, for the rule *balanced*.
        rows: rows without labels that the rule was applied to.
        labelled: how many of these got a label.
        dropped: rows that were left out of training.
        given: number of rows labelled with each class.
        classes: how many classes were assigned to at least one row.
        most: the largest probability of any of these rows, after temperature scaling if the rule uses it.
        heat: the temperature, 1 if none was fitted.
        bounds: of each class, the smallest margin with which the rule *balanced* assigned it.
        held: aligned rows that the labelling model was not trained on and scored by one passive party's columns alone.
        held_sure: how many of `held` the rule labels.
        held_right: how many of `held_sure` it labels correctly.
        valid: validation rows in the labelling model's last validation.
        sure: how many of `valid` reach `confidence`.
        right: how many of `sure` the model classifies correctly.
    """

    confidence: float
    labelling: Labelling = "confidence"
    share: float = 0.5
    shares: list[float] = field(default_factory=list)
    rows: int = 0
    labelled: int = 0
    dropped: int = 0
    given: list[int] = field(default_factory=list)
    classes: int = 0
    most: float = 0.0
    heat: float = 1.0
    bounds: list[float] = field(default_factory=list)
    held: int = 0
    held_sure: int = 0
    held_right: int = 0
    valid: int = 0
    sure: int = 0
    right: int = 0
    _noted: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def calibrate(self, p: np.ndarray, labels: np.ndarray) -> None:
        """Fit the temperature, if the rule uses one, to held-out rows: probabilities (n, classes), classes."""
        self.heat = fit_temperature(p, labels) if self.labelling == "calibrated" else 1.0

    def count_labels(self, keep: torch.Tensor, labels: torch.Tensor, sure: torch.Tensor) -> None:
        """Count labels assigned in a step, without waiting for the device; `collect_counts` adds them up.

        Args:
            keep: which rows are labelled, (n,) bool.
            labels: classes of all rows, (n,).
            sure: their probabilities, (n,).
        """
        self.rows += len(keep)
        self._noted.append((keep, labels, sure))

    def collect_counts(self) -> SelfTraining:
        """Add up the labels counted so far; returns itself."""
        for keep, labels, sure in self._noted:
            self._count_classes(np.bincount(labels[keep].cpu().numpy()))
            self.most = max(self.most, float(sure.max()) if len(sure) else 0.0)
        self._noted.clear()
        return self

    def _count_classes(self, counts: np.ndarray) -> None:
        """Add to the number of labels of each class."""
        wide = max(len(counts), len(self.given))
        both = [np.pad(np.asarray(c, dtype=np.int64), (0, wide - len(c))) for c in (counts, self.given)]
        self.given = [int(count) for count in both[0] + both[1]]
        self.labelled = sum(self.given)
        self.classes = sum(count > 0 for count in self.given)

    def choose_rows(self, p: np.ndarray) -> np.ndarray:
        """Which rows are labelled, (n,) bool, from probabilities (n, classes); `assign_labels` has the classes."""
        return self.assign_labels(p) >= 0

    def assign_labels(self, p: np.ndarray) -> np.ndarray:
        """The class assigned to each row, (n,) int64, -1 for none, from probabilities (n, classes)."""
        balanced = self.labelling == "balanced"
        found = self._label_by_margin(p) if balanced else self._label_by_bound(p)
        sure = found >= 0
        self.rows += len(p)
        self._count_classes(np.bincount(found[sure], minlength=p.shape[1]))
        self.most = max(self.most, float(divide_logits(p, self.heat).max(initial=0.0)))
        return found

    def _label_by_bound(self, p: np.ndarray) -> np.ndarray:
        """Classes of the rows whose tempered probability reaches the bound."""
        q = divide_logits(p, self.heat)
        if not len(q):
            return np.empty(0, dtype=np.int64)
        return np.where(q.max(axis=1) >= self.confidence, q.argmax(axis=1), -1)

    def _label_by_margin(self, p: np.ndarray) -> np.ndarray:
        """Label the rows of each class with the largest margins, the rarest class first."""
        margins, found = _class_margins(p), np.full(len(p), -1)
        shares = self.shares or [1 / p.shape[1]] * p.shape[1]
        self.bounds = [2.0] * p.shape[1]  # more than any margin
        for k in np.argsort(shares, kind="stable"):
            free = np.flatnonzero(found < 0)
            wanted = round(self.share * shares[k] * len(p))
            best = free[np.argsort(-margins[free, k], kind="stable")][:wanted]
            found[best] = k
            if len(best):
                self.bounds[k] = float(margins[best, k].min())
        return found

    def assess_held_out(self, p: np.ndarray, labels: np.ndarray) -> None:
        """Measure the rule on held-out rows: probabilities (n, classes), classes (n,)."""
        if self.labelling == "balanced" and self.bounds and len(p):
            lead = _class_margins(p) - np.array(self.bounds)
            given = np.where(lead.max(axis=1) >= 0, lead.argmax(axis=1), -1)
        else:
            given = self._label_by_bound(p)
        self.held += len(p)
        self.held_sure += int((given >= 0).sum())
        self.held_right += int((given[given >= 0] == labels[given >= 0]).sum())

    def assess_validation(self, p: np.ndarray, labels: np.ndarray) -> None:
        """Measure the labelling model on validation rows: probabilities (n, classes), classes (n,)."""
        sure = p.max(axis=1) >= self.confidence if len(p) else np.empty(0, dtype=bool)
        self.valid, self.sure = len(p), int(sure.sum())
        self.right = int((p[sure].argmax(axis=1) == labels[sure]).sum()) if self.sure else 0

    @property
    def rule_text(self) -> str:
        """The rule in words."""
        if self.labelling == "balanced":
            return f"the surest {100 * self.share:g} % of each class's share"
        tempering = f" at temperature {self.heat:.3g}" if self.labelling == "calibrated" else ""
        return f"with a probability of {self.confidence:g} or more{tempering}"

    @property
    def summary_sentence(self) -> str:
        """One sentence for the report."""
        found = (
            f"{self.labelled:,} of {self.rows:,} rows of the passive parties labelled, {self.rule_text}"
            f"{self._class_shares}; {self.dropped:,} rows dropped"
        )
        if self.held_sure:
            found += (
                f"; of {self.held:,} aligned rows held out, seen by one passive party alone, {self.held_sure:,} would "
                f"be labelled and {100 * self.held_right / self.held_sure:.0f} % of those rightly"
            )
        elif self.held:
            found += f"; none of {self.held:,} aligned rows held out would be labelled"
        if self.sure:
            share = 100 * self.right / self.sure
            found += (
                f"; of {self.valid:,} validation rows, which all parties have, {self.sure:,} reach "
                f"{'it' if self.labelling == 'confidence' else f'{self.confidence:g}'} and "
                f"{share:.0f} % of those are right"
            )
        elif self.valid:
            found += f"; none of {self.valid:,} validation rows reaches it"
        return found

    @property
    def _class_shares(self) -> str:
        if not self.labelled or not self.given:
            return ""
        parts = ", ".join(f"{100 * count / self.labelled:.0f}" for count in self.given[:20])
        return f" (classes, in per cent: {parts}{' …' if len(self.given) > 20 else ''})"

    @property
    def warnings(self) -> list[str]:
        """Sentences that a user has to read before the figures."""
        if self.labelled and self.classes == 1:
            return [
                f"self-training assigned all of its {self.labelled:,} labels to one class: with uneven classes, a "
                "threshold picks rows of the most frequent one; compare with an algorithm that labels no rows "
                "(zero_imputation)"
            ]
        if not self.rows or self.labelled:
            return []
        return [
            f"self-training labelled none of {self.rows:,} rows, so these figures show no effect of it: the largest "
            f"probability was {self.most:.3f}, and confidence is {self.confidence:g}; set confidence below that, and "
            "check how many labels are right"
        ]

    @property
    def figures(self) -> dict[str, float]:
        """For tables of many runs."""
        found = {"rows labelled": float(self.labelled), "rows dropped": float(self.dropped)}
        if self.labelled:
            found["largest class share"] = max(self.given, default=0) / self.labelled
        if self.held:
            found["rows held out"] = float(self.held)
            found["held-out rows labelled"] = float(self.held_sure)
        if self.held_sure:
            found["held-out labels right"] = self.held_right / self.held_sure
        if self.labelling == "calibrated":
            found["temperature"] = self.heat
        return found

    def get_state(self) -> State:
        """All counts without the rule, for a checkpoint."""
        rule = ("confidence", "labelling", "share", "_noted")
        return {name: value for name, value in asdict(self.collect_counts()).items() if name not in rule}

    def load_state(self, state: State) -> None:
        """Restore a state."""
        for name in self.get_state():
            setattr(self, name, type(getattr(self, name))(state[name]))


async def score_rows(role: ActiveRole, rows: np.ndarray) -> np.ndarray:
    """Probabilities (n, classes) of numbered rows by the current model; the passive parties run `answer_rows`."""
    found = [
        role.task.compute_probabilities(await role.score(part)) for part in split_chunks(rows, role.plan.eval_rows)
    ]
    return np.concatenate(found) if found else np.empty((0, role.task.classes))


def give_labels(role: ActiveRole, rows: np.ndarray, p: np.ndarray, tally: SelfTraining) -> np.ndarray:
    """Label rows in the role's `y` by their probabilities.

    Args:
        role: the active party's.
        rows: numbers of rows without labels, (n,).
        p: their probabilities, (n, classes).
        tally: the rule; counts the labels.

    Returns:
        Numbers of the labelled rows, in their order.
    """
    labels = tally.assign_labels(p)
    given = labels >= 0
    role.y[torch.from_numpy(rows[given]).to(role.y.device)] = torch.from_numpy(labels[given]).to(role.y)
    return rows[given]


async def label_rows(role: ActiveRole, rows: np.ndarray, tally: SelfTraining) -> np.ndarray:
    """`score_rows`, then `give_labels`."""
    return give_labels(role, rows, await score_rows(role, rows), tally)


async def answer_rows(role: PassiveRole, rows: np.ndarray) -> None:
    """Take part in labelling these rows, as many at a time as `score_rows` scores."""
    for part in split_chunks(rows, role.plan.eval_rows):
        await role.answer(part)
