"""One party's shapes: its part of each epoch, and how the opened sums move it.

``g_j += η d_j s_j / (n v_j + λ + κ σ)`` with ``η = lr / √(F + 1)``. Nothing here depends on exact counts of the party's
rows: n, F and σ are public, and v_j follows from the masses of the bins, which are declared or noisy where a budget is
spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl.algorithms.additive.columns import BinnedColumn, bin_offsets, code_rows
from securevfl.algorithms.additive.contrasts import Contrasts, draw_contrasts
from securevfl.algorithms.additive.steps import StepRule, step_rate
from securevfl.algorithms.additive.units import CONTRAST_ONE, SUM_ONE, part_of, split_caps
from securevfl.errors import InputError

__all__ = ["CLIP", "OwnShapes", "PublicPlan", "from_logits", "to_logits"]

CLIP = 0.005
"""Sums of shapes are read as probabilities between this and one less this."""


@dataclass(frozen=True, kw_only=True)
class PublicPlan:
    """What all parties know of the training, before its first epoch.

    Attributes:
        rows: n, that train.
        parties: names, the active party's first.
        columns: of each party; the intercept is one of the active party's.
        outputs: K: 1 for two classes and for a number, else one for each class.
        seed: the job's.
        start: the prediction that training begins with, float64 (outputs,).
        slack: of the parties' caps, see `units.cap_slack`.
        noise: standard deviation of the noise on a sum, in sums' own scale (a row adds at most 1); 0 without a budget.
    """

    rows: int
    parties: tuple[str, ...]
    columns: tuple[int, ...]
    outputs: int
    seed: int
    start: np.ndarray = field(repr=False)
    noise: float = 0.0
    slack: float = 0.0

    @property
    def total_columns(self) -> int:
        """F + 1: all parties' columns, and the intercept."""
        return sum(self.columns)

    def cap_of(self, party: str) -> int:
        """The party's cap, in units of 2⁻¹²."""
        return split_caps(self.columns)[self.parties.index(party)]


class OwnShapes:
    """A party's shapes, with its training rows.

    Args:
        party: its name.
        plan: of the training.
        rule: of the steps.
        columns: the party's; the active party's begin with the intercept.
        x: its columns of the training rows, float64 (n, columns without the intercept).

    Attributes:
        values: of each bin, float64 (all bins, outputs).
        variance: of each bin's value, from the noise alone, (all bins,): ``Σ (step σ s)²``.
    """

    def __init__(
        self, party: str, plan: PublicPlan, rule: StepRule, columns: Sequence[BinnedColumn], x: np.ndarray
    ) -> None:
        if len(columns) != plan.columns[plan.parties.index(party)]:
            raise InputError(f"{party!r} has {len(columns)} columns, and the plan of the job another number")
        self.party, self.plan, self.rule = party, plan, rule
        self.columns = tuple(columns)
        self.offsets = bin_offsets(columns)
        self._codes = code_rows(columns, x)
        self.values = np.zeros((int(self.offsets[-1]), plan.outputs))
        self.variance = np.zeros(int(self.offsets[-1]))

    def draw(self, epoch: int) -> Contrasts:
        """The epoch's contrasts of this party's columns."""
        return draw_contrasts(self.columns, self.plan.seed, self.party, epoch)

    def contrast_rows(self, contrasts: Contrasts) -> np.ndarray:
        """Contrasts of the training rows, int64 (n, columns), in units of 2⁻⁸."""
        found: np.ndarray = contrasts.values[self._codes]
        return found

    def part(self) -> np.ndarray:
        """This party's capped part of the training rows' predictions, int64 (n, outputs), in units of 2⁻¹²."""
        return part_of(self._sum_rows(), self.plan.start, self.plan.cap_of(self.party), self.plan.slack)

    def _sum_rows(self) -> np.ndarray:
        found = np.zeros((len(self._codes), self.plan.outputs))
        for codes in self._codes.T:
            found += self.values[codes]
        return found

    def update(self, contrasts: Contrasts, sums: np.ndarray) -> None:
        """Move the shapes by an epoch's opened sums.

        Args:
            contrasts: of the epoch.
            sums: noisy sums of this party's columns, int64 (columns, outputs), in units of 2⁻²⁰.
        """
        plan, rule = self.plan, self.rule
        if sums.shape != (len(self.columns), plan.outputs):
            raise InputError(f"{self.party!r} got sums of shape {sums.shape}")
        curvature = plan.rows * contrasts.curvature + rule.l2 + rule.damping * plan.noise
        step = step_rate(rule.lr, plan.total_columns) / curvature
        each = np.diff(self.offsets)
        weight = np.repeat(step, each) * (contrasts.values / CONTRAST_ONE)
        self.values += weight[:, None] * np.repeat(sums / SUM_ONE, each, axis=0)
        self.variance += (weight * plan.noise) ** 2
        self._project()

    def _project(self) -> None:
        """Make the shapes of monotone columns rise or fall: post-processing, with the bins' masses as weights."""
        for j, column in enumerate(self.columns):
            if column.direction and column.bins > 2:
                from sklearn.isotonic import isotonic_regression

                start, end = int(self.offsets[j]), int(self.offsets[j + 1]) - 1
                weights = np.maximum(column.masses[:-1], 1e-9)
                for k in range(self.plan.outputs):
                    self.values[start:end, k] = isotonic_regression(
                        self.values[start:end, k], sample_weight=weights, increasing=column.direction > 0
                    )


def to_logits(sums: np.ndarray, *, numeric: bool) -> np.ndarray:
    """Logits of sums of shapes, float64 (n, outputs).

    A sum is a probability, or a number between 0 and 1 of the target's range. Beyond the clipped range, log-odds go on
    with a slope of one: probabilities stay about at the clip, and rows keep their order.

    Args:
        sums: (n, outputs), with the start.
        numeric: whether the target is a number; then between −1 and 1, as `Regression` scales a range.
    """
    if numeric:
        return 2 * sums - 1
    clipped = np.clip(sums, CLIP, 1 - CLIP)
    beyond = sums - clipped
    if sums.shape[1] == 1:
        found: np.ndarray = np.log(clipped / (1 - clipped)) + beyond
        return found
    found = np.log(clipped) + beyond
    return found


def from_logits(logits: np.ndarray, *, numeric: bool) -> np.ndarray:
    """The sums that `to_logits` made logits of, where there is one output, (n, 1)."""
    if numeric:
        return (logits + 1) / 2
    bound = float(np.log((1 - CLIP) / CLIP))
    inside = np.clip(logits, -bound, bound)
    found: np.ndarray = 1 / (1 + np.exp(-inside)) + logits - inside
    return found
