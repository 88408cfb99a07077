"""ε of one party's rows over all jobs of one asker: what earlier jobs released with noise, and what may be added.

Gaussian releases compose exactly: whatever their noise multipliers σ, together they tell two values of a row apart as
well as one release with 1/σ² = Σ 1/σ² does (Dong, Roth and Su 2022, corollary 3.3). So the party's
result book keeps this sum for each row and asker, and ε of any number of jobs follows from it, at the δ of the last.

An epoch's releases are written and synced before they leave. Nothing ever takes them off: neither time nor another job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from securevfl.errors import PolicyError
from securevfl.privacy.accountant import GaussianRelease
from securevfl.privacy.gaussian_dp import epsilon_at
from securevfl.privacy.result_book import ResultBook

__all__ = ["EpsilonBudget", "compose_epsilon"]

_TOLERANCE = 1e-6
"""Relative: rounding of the accountant."""


def compose_epsilon(losses: float, delta: float) -> float:
    """ε of Gaussian releases whose 1/σ² add up to `losses`, exactly; 0 for none."""
    return epsilon_at(math.sqrt(losses), delta) if losses > 0 else 0.0


class EpsilonBudget:
    """Counts one party's noisy releases for one asker in its result book, and enforces its bound.

    Args:
        party: whose rows.
        names: the person of each of its rows, by position.
        asker: the organisation that gets what is released.
        most: largest ε of a row, ever; None for any.
        book: the party's; one without a file counts nothing.
    """

    def __init__(
        self,
        party: str,
        names: Sequence[str],
        *,
        asker: str = "",
        most: float | None = None,
        book: ResultBook | None = None,
    ) -> None:
        self.party = party
        self.asker = asker
        self.most = most
        self._names = names
        self._book = book or ResultBook()
        self._run = ""
        self._last = (0.0, 0.0)

    def check_plan(self, places: np.ndarray, release: GaussianRelease, delta: float) -> None:
        """Check planned releases, beside those of earlier jobs, against the bound.

        Args:
            places: positions of the rows, (n,).
            release: of each of them.
            delta: δ with which ε is counted.

        Raises:
            PolicyError: with the value, the bound and the cure.
        """
        if self.most is None or self._book.path is None:
            return
        before = float(self._spent(places).max(initial=0.0))
        planned = release.times / release.noise_multiplier**2
        total = compose_epsilon(before + planned, delta)
        if before and not total <= self.most * (1 + _TOLERANCE):
            raise PolicyError(
                f"the job plans ε = {compose_epsilon(planned, delta):.3g} (δ = {delta:.3g}) of a row of {self.party!r} "
                f"for {self.asker!r}, beside ε = {compose_epsilon(before, delta):.3g} of earlier jobs: {total:.3g} "
                f"together; max_epsilon = {self.most:.3g} is for all jobs, ever: more noise, train on other rows, or "
                f"ask {self.party!r} to raise max_epsilon"
            )

    def count_releases(self, places: np.ndarray, sigma: float, times: int, delta: float) -> None:
        """Count `times` releases of these rows (n,) with noise multiplier `sigma`. Call it before they leave.

        Raises:
            PolicyError: another job spent the rest meanwhile; nothing was counted.
            OSError: the count could not be written; nothing may leave.
        """
        if self._book.path is None or not len(places):
            return
        with self._book.locked():
            self.check_plan(places, GaussianRelease(sigma, times), delta)
            self._run = self._run or self._book.begin_run(self._names, self.asker)
            self._book.add_noise(self._run, places, times / sigma**2)
            self._last = (float(self._spent(places).max(initial=0.0)), delta)

    def _spent(self, places: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._book.noise_spent(self._names, self.asker)[places]
        return found

    def ledger_facts(self) -> dict[str, str | int | float | bool]:
        """The ledger's note: ε of the row that was released most, over all jobs; empty where nothing is kept."""
        losses, delta = self._last
        if not losses:
            return {}
        found: dict[str, str | int | float | bool] = {
            "asker": self.asker,
            "epsilon": compose_epsilon(losses, delta),
            "delta": delta,
        }
        return found if self.most is None else found | {"allowed": self.most}

    def summary_sentence(self) -> str:
        """One sentence for reports; empty where nothing is kept."""
        facts = self.ledger_facts()
        if not facts:
            return ""
        allowed = "" if self.most is None else f"; max_epsilon = {self.most:g} is for all jobs"
        return (
            f"ε of one row of {self.party!r} over all jobs for {self.asker!r}, this one included: at most "
            f"{facts['epsilon']:.3g} (δ = {facts['delta']:.3g}){allowed}"
        )
