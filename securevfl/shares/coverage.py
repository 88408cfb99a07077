"""What ε of a job on shares covers, and what is counted apart from it: of the rows that train, validate and test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from securevfl.privacy import Spent
from securevfl.privacy.accountant import epsilon_exact

__all__ = ["Coverage"]


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a run with noise on the steps of its model spends of a row, by what the row does.

    Attributes:
        epsilon: ε of a row that trains.
        delta: δ with which it is counted.
        opens_metrics: whether metrics of the validation rows are opened, without noise.
        numbers: how many numbers of a row its prediction opens, without noise.
    """

    epsilon: float
    delta: float
    opens_metrics: bool
    numbers: int

    @classmethod
    def from_costs(
        cls, spent: Iterable[Spent], *, opens_metrics: bool, numbers: int, exact: bool = False
    ) -> Coverage | None:
        """What these releases cover; None without noise on the model.

        Args:
            spent: all releases of one party in the run.
            opens_metrics: see `Coverage`.
            numbers: likewise.
            exact: whether noise was sized by the exact formula of Gaussian releases, and not by RDP.
        """
        found = [one for one in spent if one.what == "model"]
        if not found:
            return None
        worst = max(found, key=lambda one: one.epsilon_rdp)
        epsilon = epsilon_exact(worst.release, worst.delta) if exact else worst.epsilon_rdp
        return cls(epsilon=epsilon, delta=worst.delta, opens_metrics=opens_metrics, numbers=numbers)

    def ledger_facts(self) -> dict[str, str | int | float | bool]:
        """The ledger's note."""
        return {
            "rows that train": self.epsilon,
            "delta": self.delta,
            "rows that validate": "no bound" if self.opens_metrics else 0.0,
            "numbers of a predicted row": self.numbers,
        }

    def summary_sentence(self) -> str:
        """One sentence for reports."""
        validated = (
            "no bound for rows that validate, whose rounded metrics carry no noise"
            if self.opens_metrics
            else "0 for rows that validate, of which nothing is opened"
        )
        many = "numbers" if self.numbers > 1 else "number"
        return (
            f"ε = {self.epsilon:.3g} (δ = {self.delta:.3g}) for rows that train; {validated}; predictions: "
            f"{self.numbers} {many} a row, counted by max_results, not by ε"
        )
