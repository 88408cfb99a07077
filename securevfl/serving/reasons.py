"""Reasons beside a served score, where the agreement says so: the active party's own columns, and what the others added
together. Both follow from the score and the active party's own part of the model: nothing is asked for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.data import FeatureEncoder, PartyTable
from securevfl.data.column_terms import PartyTerms
from securevfl.run.explained.own_terms import mean_terms, sum_of_answers
from securevfl.run.model_parts import ModelPart

__all__ = ["ReasonsOfScore", "ServedReasons"]


@dataclass(frozen=True, kw_only=True)
class ReasonsOfScore:
    """Why one score is what it is. `baseline`, `columns` and `others` add up to the model's sum.

    Attributes:
        party: the active party.
        partners: the others, ``"a + b"``.
        unit: of all numbers.
        baseline: of a row with average columns at the active party, without the others' part.
        columns: the active party's columns and what each adds, the strongest first.
        others: what the other parties add together, their average included.
    """

    party: str
    partners: str
    unit: str
    baseline: float
    columns: tuple[tuple[str, float], ...]
    others: float


class ServedReasons:
    """Explains answers about customers of the active party.

    Args:
        part: the active party's part of the served model.
        table: its table.

    Raises:
        InputError: a model that is no sum of terms of columns, or whose own terms this party does not have.
    """

    def __init__(self, part: ModelPart, table: PartyTable) -> None:
        self._part, self._table = part, table
        self._means = mean_terms(part, table)
        self._row = {name: row for row, name in enumerate(table.ids)}
        self._encoder = FeatureEncoder.from_state(part.tree["encoder"])

    def explain(self, customers: Sequence[str], answers: np.ndarray) -> list[ReasonsOfScore]:
        """Why the scores of customers are what they are.

        Args:
            customers: identifiers.
            answers: (n, classes), or (n, 1) of numbers.
        """
        rows = np.array([self._row[name] for name in customers], np.int64)
        job, tree = self._part.job, self._part.tree
        x = self._encoder.transform(self._table, rows)
        terms = job.algorithm.column_terms(tree, x, self._table.name, job.plan.number)
        own = PartyTerms.of_rows(self._table, self._encoder, terms, self._means, rows)
        whole = sum_of_answers(job, tree, answers)
        if whole is None:
            return []
        found, partners = [], " + ".join(name for name in map(str, tree["passive"]) if name != own.party)
        for row in range(len(rows)):
            added = own.values[row, :, 0].tolist()
            columns = sorted(zip(own.columns, added, strict=True), key=lambda one: -abs(one[1]))
            start = float(own.start[0])
            found.append(
                ReasonsOfScore(
                    party=own.party,
                    partners=partners,
                    unit=own.unit,
                    baseline=start,
                    columns=tuple(columns),
                    others=float(whole[row]) - start - sum(added),
                )
            )
        return found
