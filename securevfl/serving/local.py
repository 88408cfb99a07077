"""A model that scores the active party's rows without any peer: customers unknown to the others, and all customers
while a peer is away if the party's settings allow it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.data import PartyTable
from securevfl.errors import InputError
from securevfl.party import Alone
from securevfl.run.model_parts import ModelPart

__all__ = ["LocalModel"]


class LocalModel:
    """A model that scores the active party's rows without any peer.

    Args:
        part: of a model that the active party trained alone, or its own part of one that is fit for rows of the active
            party alone (`Algorithm.subsets`).
        table: the party's own.

    Raises:
        InputError: a model that needs other parties, or other columns than in training.
    """

    def __init__(self, part: ModelPart, table: PartyTable) -> None:
        try:
            self._alone = Alone(table, part.job, part.tree)
        except InputError as error:
            raise InputError(f"the local model needs other parties to score: {error}") from None
        self.part = part
        self.classes = tuple(map(str, part.tree["names"]))
        self._at = {one: row for row, one in enumerate(table.ids)}

    def scores(self, customers: Sequence[str]) -> np.ndarray:
        """Probabilities (n, classes), or predicted numbers (n, 1), of customers in the party's table.

        Raises:
            KeyError: one that is not.
        """
        return self._alone.scores(np.array([self._at[one] for one in customers], np.int64))
