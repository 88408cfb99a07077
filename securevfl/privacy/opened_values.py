"""Count how many values of z a party opens for each of its rows, and enforce its budget.

A party that opens z of a row sees h linear combinations of that row's activations. With fixed features (an identity or
frozen bottom), every opening gives h more equations about the same row, whatever the weights are. Columns correlate, so
far fewer equations than columns already reveal a lot: on the credit table, with 100 known records, 0.1 values a column
gave R² 0.1 to 0.3, and 0.4 values 0.2 to 0.7 (``benchmarks/results/frozen_bottoms.json``). So a party counts *values*
for each row: openings × h, over training, validation, test and predictions. `Policy.max_looks` bounds them relative to
its number of columns.

Each passive party sets its own bound. It counts before it answers, and refuses a batch that would exceed the bound. A
noisy value counts like an exact one: to rely on ε, set `max_epsilon` instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from securevfl.errors import PolicyError
from securevfl.privacy.disclosure_book import DisclosureBook

__all__ = ["OpenedValues", "allowed_values"]

_AT_ONCE = 1 << 15
"""How many row positions may wait before they are added up."""


def allowed_values(most: float, columns: int) -> int:
    """Number of values of a row that `Policy.max_looks` allows: the bound times the number of columns, rounded down."""
    # 0.1 × 30 is 3 less a rounding error, and must allow 3.
    return math.floor(most * columns + 1e-9)


class OpenedValues:
    """Counts the values of z that one party opened for each of its rows.

    Args:
        party: whose rows.
        columns: how many columns its table has.
        names: identifier of each of its rows, by position.
        most: `Policy.max_looks`; None to count only.
        book: what earlier jobs and predictions opened.
    """

    def __init__(
        self,
        party: str,
        columns: int,
        names: Sequence[str],
        *,
        most: float | None = None,
        book: DisclosureBook | None = None,
    ) -> None:
        self.party = party
        self.columns = columns
        self.most = most
        self._names = names
        self._book = book or DisclosureBook()
        self._run = ""
        self.before = self._book.count_opened(names)
        self._given = np.zeros(len(names), np.int64)
        self._looks = np.zeros(len(names), np.int64)
        self._waiting: list[np.ndarray] = []
        self._waits = 0
        self._width = 0

    @property
    def allowed_values(self) -> int | None:
        """Values of one row that the party's policy allows, over all jobs and predictions; None for any number."""
        return None if self.most is None else allowed_values(self.most, self.columns)

    def check_plan(self, values: int) -> None:
        """Check a plan against the budget before anything leaves.

        Args:
            values: most values that the plan opens of one row.

        Raises:
            PolicyError: they exceed what the budget leaves for the most-opened row.
        """
        before = int(self.before.max(initial=0))
        if self.allowed_values is not None and before + values > self.allowed_values:
            raise PolicyError(self._describe_refusal("the job plans", values, before))

    def count_opening(self, places: np.ndarray, width: int) -> None:
        """Count one opening of `width` values for each of these rows. Call it before the values leave.

        Args:
            places: positions of the rows, (n,); one that appears twice counts twice.
            width: how many values of each row are opened.

        Raises:
            PolicyError: a row would exceed the budget; nothing was counted.
            OSError: the count could not be written; nothing may leave.
        """
        if self._book.refresh():
            self.before = self._book.count_opened(self._names) - self.values_per_row
        if self.allowed_values is not None:
            self._check_budget(places, width, self.allowed_values)
        if self._book.path is not None:
            # On disk first: what is counted in memory alone would be lost in a crash.
            self._run = self._run or self._book.begin_run(self._names)
            self._book.add(self._run, places, width)
        if width != self._width or self._waits >= _AT_ONCE:
            self._count_waiting()
            self._width = width
        self._waiting.append(places.copy())
        self._waits += len(places)

    def _count_waiting(self) -> None:
        """Add up the waiting counts. A batch's rows are scattered in memory, so many batches together take little
        longer than one.
        """
        if self._waiting:
            places = np.concatenate(self._waiting)
            np.add.at(self._given, places, self._width)
            np.add.at(self._looks, places, 1)
            self._waiting.clear()
            self._waits = 0

    @property
    def values_per_row(self) -> np.ndarray:
        """Values of each row that were opened in this run, (n,) int64."""
        self._count_waiting()
        return self._given

    @property
    def openings_per_row(self) -> np.ndarray:
        """How often each row was opened in this run, (n,) int64."""
        self._count_waiting()
        return self._looks

    def _check_budget(self, places: np.ndarray, width: int, allowed: int) -> None:
        """Refuse an opening of these rows that would exceed the budget."""
        rows, often = np.unique(places, return_counts=True)
        after = self.before[rows] + self.values_per_row[rows] + often * width
        if after.max(initial=0) > allowed:
            worst = int(after.argmax())
            had = int(after[worst]) - int(often[worst]) * width
            raise PolicyError(self._describe_refusal("this batch would open", int(often[worst]) * width, had))

    def fits_budget(self, places: np.ndarray, width: int) -> np.ndarray:
        """Where one more opening of these rows (n,) would stay within the budget, (n,) bool."""
        if self._book.refresh():
            self.before = self._book.count_opened(self._names) - self.values_per_row
        if self.allowed_values is None:
            return np.ones(len(places), bool)
        found: np.ndarray = self.before[places] + self.values_per_row[places] + width <= self.allowed_values
        return found

    @property
    def max_values(self) -> int:
        """Values of the most-opened row in this run."""
        return int(self.values_per_row.max(initial=0))

    @property
    def max_total_values(self) -> int:
        """Values of the most-opened row, including earlier jobs and predictions."""
        return int((self.before + self.values_per_row).max(initial=0))

    def ledger_facts(self) -> dict[str, int | float]:
        """Ledger entry: the most values opened of one row, and the number of rows with opened values."""
        found: dict[str, int | float] = {
            "looks": int(self.openings_per_row.max(initial=0)),
            "values": self.max_values,
            "values with earlier runs": self.max_total_values,
            "columns": self.columns,
            "rows": int((self.values_per_row > 0).sum()),
        }
        return found if self.allowed_values is None else found | {"allowed": self.allowed_values}

    def summary_sentence(self) -> str:
        """One sentence for reports."""
        share = self.max_total_values / max(self.columns, 1)
        looks = self.openings_per_row.max(initial=0)
        sentence = (
            f"at most {self.max_values} values of z of one row of {self.party!r} were opened, in {looks} openings"
        )
        if self.max_total_values > self.max_values:
            sentence += f", {self.max_total_values} with earlier runs"
        sentence += f": {share:.2g} for each of its {self.columns} columns"
        if self.allowed_values is not None:
            return f"{sentence} (max_looks = {self.most:g} allows {self.allowed_values})"
        return f"{sentence}; 0.1 reveals part of the features to somebody who knows some records, and 1 most of them"

    def _describe_refusal(self, who: str, values: int, had: int) -> str:
        earlier = f" beside the {had} already opened" if had else ""
        return (
            f"{who} {values} values of z of one row of {self.party!r}{earlier}; with {self.columns} columns "
            f"max_looks = {self.most:g} allows {self.allowed_values}: fewer epochs, a narrower cut (hidden), "
            "logistic_regression for a cut of one value, or protection 'shares', which opens no z"
        )
