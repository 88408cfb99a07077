"""The attack on the sums of an additive model on shares, by one who knows all of the job but one thing of one row.

He is a computing party that adds no noise; he sees the sums of all parties, which is more than any party sees; and he
knows every other row, label and column. He weighs both values of the row's label, and of a column that a coin tossed,
by the likelihood of all sums of all epochs, which no other attack exceeds.

Rows of one training share its noise, so each row is attacked in a training of its own: a job sets up and runs on
shares, and then its first `EPOCHS` epochs run once for each of `TRIALS` rows, in the clear, which gives the sums of a
run on shares word by word (`tests/shares/additive`), with the noise that two computing parties draw in a job of so many
epochs. ε bounds the AUC over the rows. Without a budget the sums are those of the job itself: they are exact, and he is
always right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.gate.cells import Cell
from benchmarks.gate.judge import Figures, Got
from benchmarks.gate.power import Ranked
from securevfl.algorithms.additive.channel import sum_contrasts
from securevfl.algorithms.additive.shapes import OwnShapes
from securevfl.algorithms.additive.units import CONTRAST_ONE, SUM_ONE
from securevfl.attacks.measure import auc, auc_error
from securevfl.errors import PolicyError
from securevfl.privacy import permitted_by
from securevfl.run import join_parties
from securevfl.run.job_card import job_card, refuse_unaccepted_leaks
from securevfl.run.simulation import run_parties
from securevfl.shares.additive.noise import PartyNoise
from securevfl.testing.trial import roles_begun

__all__ = ["EPOCHS", "TRIALS", "Training", "measure"]

EPOCHS, TRIALS, EXACT = 2, 1100, 100
"""Of trainings with noise; and how many rows are attacked where there is none."""

Said = Callable[[str, str], tuple[str, bool]]
"""Learner, whose data it is → the severity that the job states, and whether ``leaks = false`` admits it."""


@dataclass
class Training:
    """A training that can run again with other noise.

    Attributes:
        shapes: each party's, before the first epoch.
        flipped: the second party's, with the opposite coin in each row.
        targets: int64 (n, 1).
        coins: bool (n,).
    """

    shapes: list[OwnShapes]
    flipped: OwnShapes
    targets: np.ndarray = field(repr=False)
    coins: np.ndarray = field(repr=False)

    @classmethod
    def of_roles(cls, roles: Sequence[Any]) -> Training:
        """What the roles trained."""
        made = [role.shapes.training for role in roles]
        rows = [role.columns_of(role.table.split.train) for role in roles]
        fresh = [OwnShapes(one.party, one.plan, one.rule, one.columns, x) for one, x in zip(made, rows, strict=True)]
        two = made[1]
        flipped = OwnShapes(two.party, two.plan, two.rule, two.columns, -rows[1])
        return cls(fresh, flipped, roles[0].targets, rows[1][:, 0] > 0)

    def weigh(self, row: int, opened: Sequence[Callable[[np.ndarray], np.ndarray]]) -> tuple[float, float]:
        """How much likelier the row's label is 1 than 0, and its coin likewise, given what is opened: logarithms but
        for a factor.

        Args:
            row: its place.
            opened: of each epoch: exact sums of all columns, int64 (sums, 1) → what is opened.
        """
        shapes, flipped = [copy(one) for one in self.shapes], copy(self.flipped)
        ends = np.cumsum([len(one.columns) for one in shapes])[:-1]
        label = bool(self.targets[row, 0])
        coin, found = bool(self.coins[row]), np.zeros(2)
        for epoch, tell in enumerate(opened):
            contrasts = [one.draw(epoch + 1) for one in shapes]
            sides = [one.contrast_rows(each) for one, each in zip(shapes, contrasts, strict=True)]
            flipped.values = shapes[1].values
            parts = [one.part() for one in shapes]
            residual = self.targets - sum(parts)
            exact = np.concatenate([sum_contrasts(each, residual) for each in sides])
            sums = tell(exact)
            mine = np.concatenate([each[row] for each in sides])
            others = np.concatenate([sides[0][row], flipped.contrast_rows(contrasts[1])[row]])
            moved = residual[row, 0] + parts[1][row, 0] - flipped.part()[row, 0]
            by_label = mine / CONTRAST_ONE * (-1 if label else 1)
            by_coin = (others * moved - mine * residual[row, 0]) / SUM_ONE
            gap = (sums - exact)[:, 0] / SUM_ONE
            for k, (shift, truth) in enumerate(((by_label, label), (by_coin, coin))):
                found[k] += (1 if truth else -1) * (shift @ shift - 2 * shift @ gap)
            for one, each, own in zip(shapes, contrasts, np.split(sums, ends), strict=True):
                one.values, one.variance = one.values.copy(), one.variance.copy()
                one.update(each, own)
        return float(found[0]), float(found[1])


@contextmanager
def _watch() -> Iterator[dict[str, list[np.ndarray]]]:
    """Record each party's sums of each epoch."""
    opened: dict[str, list[np.ndarray]] = {}
    update = OwnShapes.update

    def noted(self: OwnShapes, contrasts: Any, sums: np.ndarray) -> None:
        opened.setdefault(self.party, []).append(sums.copy())
        update(self, contrasts, sums)

    with mock.patch.object(OwnShapes, "update", noted):
        yield opened


def measure(cell: Cell, rows: int, said: Said) -> Figures:
    """Run a cell of an additive model, and attack some of its rows.

    Args:
        cell: of the matrix, on the data "canaries".
        rows: of the table.
        said: what the job says of itself.
    """
    job, people = cell.job, cell.parties(rows)
    with _watch() as watched, roles_begun() as begun:
        run_parties(job, people, join_parties(people, job), run="gate")
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    owner, other = people.active.name, people.passive[0].name
    training = Training.of_roles([roles[owner], roles[other]])
    mechanism = None if job.protection.dp is None else job.protection.dp.model
    tried = range(min(EXACT if mechanism is None else TRIALS, len(training.targets)))
    if mechanism is None:
        sums = [np.concatenate(own) for own in zip(watched[owner], watched[other], strict=True)]
        weights = [training.weigh(row, [partial(_give, own) for own in sums]) for row in tried]
    else:
        plan = job.algorithm.plan_sums(  # type: ignore[attr-defined]
            job.protection,
            rows=len(training.targets),
            outputs=1,
            columns=training.shapes[0].plan.columns,
            epochs=EPOCHS,
        )
        noises = [PartyNoise(plan) for _ in range(2)]

        def open_sums(exact: np.ndarray) -> np.ndarray:
            found = exact + np.rint(cell.noise * sum(one.draw(exact.shape) for one in noises)).astype(np.int64)
            return np.asarray(found)

        weights = [training.weigh(row, [open_sums] * EPOCHS) for row in tried]
    truths = {"labels": training.targets[: len(tried), 0] > 0, "an attribute": training.coins[: len(tried)]}
    readers = {"labels": (other, owner), "an attribute": (owner, other)}
    bound = 1.0 if mechanism is None else permitted_by(mechanism).auc
    ranked, got = [], {}
    for (what, truth), scores in zip(truths.items(), zip(*weights, strict=True), strict=True):
        value, positive = auc(truth, np.array(scores)), int(truth.sum())
        negative, attack = len(truth) - positive, "likelihood of all sums"
        ranked.append(Ranked(what=what, attack=attack, value=value, bound=bound, positive=positive, negative=negative))
        severity, admitted = said(*readers[what])
        if mechanism is None and not _asks_consent(cell):
            severity = "ok"  # which the rules then find false
        got[what] = Got(
            severity=severity,  # type: ignore[arg-type]
            value=value,
            without=0.5,
            error=auc_error(value, positive, negative),
            attack=attack,
            bound=bound,
            admitted=admitted,
        )
    control = cell.noise != 1
    return Figures(
        name=cell.name,
        data="control" if control else cell.data,
        algorithm=cell.algorithm,
        protection=cell.protection,
        seed=cell.seed,
        labels=got["labels"],
        attribute=got["an attribute"],
        ranked=[] if mechanism is None else ranked,
        control=control,
    )


def _give(sums: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """What was opened, whatever the exact sums are."""
    return sums


def _asks_consent(cell: Cell) -> bool:
    """Whether the job is refused between organisations unless it accepts what is read."""
    try:
        refuse_unaccepted_leaks(job_card(cell.job, ("bank",), ("shop",)), accepted=False)
    except PolicyError as error:
        return "--accept-leak" in str(error)
    return False
