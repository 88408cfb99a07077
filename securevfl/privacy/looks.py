"""Looks: how many values of z a party gives away of each of its rows, and the budget of them.

Whoever opens z of a row sees h linear combinations of that row's activations. Under fixed features (an identity, a
frozen bottom) every look is h more equations about the same row, whatever the weights are. As columns resemble each
other, far fewer than there are columns tell much: on the credit table, with 100 known records, 0.1 values a column gave
R² 0.1 to 0.3, and 0.4 values 0.2 to 0.7 (``benchmarks/results/frozen_bottoms.json``). So a party counts *values*: looks
× h, of each row, over training, validation, test and predictions, and `Policy.max_looks` bounds them by the number of
its columns.

The bound is the passive party's own. It counts before it answers, and refuses the batch that would pass it. A value
with noise counts as one without: who relies on ε sets `max_epsilon` instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from securevfl.errors import PolicyError
from securevfl.privacy.look_book import LookBook

__all__ = ["RowLooks", "looks_allowed"]

_AT_ONCE = 1 << 15
"""Looks that wait before they are added up."""


def looks_allowed(most: float, columns: int) -> int:
    """How many values of a row a bound allows: `Policy.max_looks` times the number of columns, rounded down."""
    return math.floor(most * columns + 1e-9)


class RowLooks:
    """What one party gave away of each of its rows, in values of z.

    Args:
        party: whose rows.
        columns: how many columns its table has.
        names: identifier of each of its rows, in the order of their places.
        most: `Policy.max_looks`; None to count only.
        book: what earlier jobs and predictions gave away.
    """

    def __init__(
        self, party: str, columns: int, names: Sequence[str], *, most: float | None = None, book: LookBook | None = None
    ) -> None:
        self.party = party
        self.columns = columns
        self.most = most
        self._names = names
        self._book = book or LookBook()
        self._run = ""
        self.before = self._book.before(names)
        self._given = np.zeros(len(names), np.int64)
        self._looks = np.zeros(len(names), np.int64)
        self._waiting: list[np.ndarray] = []
        self._waits = 0
        self._width = 0

    @property
    def allowed(self) -> int | None:
        """Values of one row that the party's policy allows, over all jobs and predictions; None for any number."""
        return None if self.most is None else looks_allowed(self.most, self.columns)

    def plan(self, values: int) -> None:
        """Hold a plan against the budget before anything leaves.

        Args:
            values: that it gives away of one row, at most.

        Raises:
            PolicyError: more than what is left of it for the row that was looked at most.
        """
        before = int(self.before.max(initial=0))
        if self.allowed is not None and before + values > self.allowed:
            raise PolicyError(self._refusal("the job plans", values, before))

    def add(self, places: np.ndarray, width: int) -> None:
        """Count one look at each of these rows, which gives away `width` values; before they leave.

        Args:
            places: of the rows, (n,); one that is named twice counts twice.
            width: of what is opened.

        Raises:
            PolicyError: a row would pass the budget; nothing was counted.
            OSError: it could not be written down; nothing may leave.
        """
        if self._book.refresh():
            self.before = self._book.before(self._names) - self.given
        if self.allowed is not None:
            self._hold(places, width, self.allowed)
        if self._book.path is not None:
            self._run = self._run or self._book.begin(self._names)
            self._book.add(self._run, places, width)
        if width != self._width or self._waits >= _AT_ONCE:
            self._count()
            self._width = width
        self._waiting.append(places.copy())
        self._waits += len(places)

    def _count(self) -> None:
        """Add up the looks that wait: rows of a batch lie far apart in memory, and many batches take little longer."""
        if self._waiting:
            places = np.concatenate(self._waiting)
            np.add.at(self._given, places, self._width)
            np.add.at(self._looks, places, 1)
            self._waiting.clear()
            self._waits = 0

    @property
    def given(self) -> np.ndarray:
        """Values of each row that were opened in this run, (n,) int64."""
        self._count()
        return self._given

    @property
    def looks(self) -> np.ndarray:
        """How often each row was looked at in this run, (n,) int64."""
        self._count()
        return self._looks

    def _hold(self, places: np.ndarray, width: int, allowed: int) -> None:
        """Refuse a look at these rows that would pass the budget."""
        rows, often = np.unique(places, return_counts=True)
        after = self.before[rows] + self.given[rows] + often * width
        if after.max(initial=0) > allowed:
            worst = int(after.argmax())
            had = int(after[worst]) - int(often[worst]) * width
            raise PolicyError(self._refusal("this batch would give away", int(often[worst]) * width, had))

    def left(self, places: np.ndarray, width: int) -> np.ndarray:
        """Where one look more at these rows (n,) would stay within the budget, (n,) bool."""
        if self._book.refresh():
            self.before = self._book.before(self._names) - self.given
        if self.allowed is None:
            return np.ones(len(places), bool)
        found: np.ndarray = self.before[places] + self.given[places] + width <= self.allowed
        return found

    @property
    def values(self) -> int:
        """Values of the row that was looked at most in this run."""
        return int(self.given.max(initial=0))

    @property
    def total(self) -> int:
        """Values of the row that was looked at most, with those of earlier jobs and predictions."""
        return int((self.before + self.given).max(initial=0))

    def facts(self) -> dict[str, int | float]:
        """For a ledger: what one row gave away at most, and of how many rows anything left."""
        found: dict[str, int | float] = {
            "looks": int(self.looks.max(initial=0)),
            "values": self.values,
            "values with earlier runs": self.total,
            "columns": self.columns,
            "rows": int((self.given > 0).sum()),
        }
        return found if self.allowed is None else found | {"allowed": self.allowed}

    def text(self) -> str:
        """One sentence for reports."""
        share = self.total / max(self.columns, 1)
        looks = self.looks.max(initial=0)
        told = f"of one row of {self.party!r} {self.values} values of z were opened at most, in {looks} looks"
        if self.total > self.values:
            told += f", {self.total} with earlier runs"
        told += f": {share:.2g} for each of its {self.columns} columns"
        if self.allowed is not None:
            return f"{told} (max_looks = {self.most:g} allows {self.allowed})"
        return f"{told}; a tenth tells whoever knows some records a part of the features, and 1 most of them"

    def _refusal(self, who: str, values: int, had: int) -> str:
        earlier = f" beside the {had} that it gave away already" if had else ""
        return (
            f"{who} {values} values of z of one row of {self.party!r}{earlier}; with {self.columns} columns "
            f"max_looks = {self.most:g} allows {self.allowed}: fewer epochs, a narrower cut (hidden), "
            "logistic_regression for a cut of one value, or protection 'shares', which opens no z"
        )
