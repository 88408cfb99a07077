"""The budget of training by noisy sums: what each release of an additive model spends, and the noise that it needs.

*Neighbours*: two tables that differ in one common row, in all columns of all parties and the label; the number of rows
is public. *Joint*: ε bounds what everything that all parties see tells of the row, and so what any one party sees.

=========  ========================================  =============================  ==============
release    what it is                                sensitivity Δ                  share of μ²
=========  ========================================  =============================  ==============
start      sum of the targets                        1, or √2 of several classes    about 1 %
counts     noisy counts of all columns               √18 a column (see `edges`)     about 10 %, or none
sums       T epochs of F + 1 sums                    2 R √(F + 1) an epoch          the rest
=========  ========================================  =============================  ==============

An epoch is the unit: it spends μ²/(T + S), and start and counts together S of these units, so that what an interrupted
attempt may have released is counted in whole units. R bounds a row's residual: 1 and the slack of caps, or √2 with an
output for each class. All are Gaussian, so μ² adds up, and ε follows exactly (`securevfl.privacy.gaussian_dp`).

*Who adds noise.* A party knows the noise that it added, so what protects against it is the noise of the others. Between
two parties each adds all of σ; of three computing parties each adds variance σ²/2, so that any two reach σ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from securevfl.errors import InputError
from securevfl.privacy.gaussian_dp import epsilon_at, mu_for
from securevfl.privacy.spent import Spent
from securevfl.privacy.uses import GaussianUses

__all__ = ["WORTHLESS", "Adders", "SumsBudget", "SumsUses"]

Adders = Literal["two parties", "three computing parties"]

WORTHLESS = 50.0
"""Below n·μ of this many times F + 1 sums, training is not worth its budget."""

_START, _COUNTS = 0.01, 0.10
_VARIANCE: dict[Adders, tuple[float, float]] = {
    "two parties": (1.0, 2.0),
    "three computing parties": (0.5, 1.5),
}
"""Who adds noise → variance of one party's noise, and of all noise on a sum, over σ²."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SumsBudget:
    """The budget of a training, and the noise that follows from it.

    Attributes:
        epsilon: ε of a common row, over everything that training shows to any party.
        delta: δ.
        rows: n, that train.
        columns: F + 1, of all parties, with the intercept.
        epochs: T.
        outputs: K: 1, or one for each of several classes.
        counted: whether bins and masses come from noisy counts.
        adders: who adds noise to the sums.
        slack: how far a row's residual may exceed 1 where there is one output.
    """

    epsilon: float
    delta: float
    rows: int
    columns: int
    epochs: int
    outputs: int
    counted: bool
    adders: Adders
    slack: float = 0.0

    @property
    def mu(self) -> float:
        """μ of the whole training."""
        return mu_for(self.epsilon, self.delta)

    @property
    def residual(self) -> float:
        """R, the largest norm of a row's residual."""
        return 1.0 + self.slack if self.outputs == 1 else math.sqrt(2.0)

    @property
    def setup_units(self) -> int:
        """S, how many epochs' worth of budget the start and the counts spend."""
        early = _START + (_COUNTS if self.counted else 0.0)
        return math.ceil(self.epochs * early / (1 - early))

    @property
    def units(self) -> int:
        """T + S, into which μ² is split alike."""
        return self.epochs + self.setup_units

    @property
    def mu_start(self) -> float:
        """μ of the start."""
        share = _START / (_START + _COUNTS) if self.counted else 1.0
        return self.mu * math.sqrt(share * self.setup_units / self.units)

    @property
    def mu_counts(self) -> float:
        """μ of the noisy counts of all columns; 0 where none are drawn."""
        share = _COUNTS / (_START + _COUNTS) if self.counted else 0.0
        return self.mu * math.sqrt(share * self.setup_units / self.units)

    @property
    def mu_column(self) -> float:
        """μ of the noisy counts of one column."""
        return self.mu_counts / math.sqrt(max(self.columns - 1, 1))

    @property
    def mu_sums(self) -> float:
        """μ of all epochs' sums."""
        return self.mu * math.sqrt(self.epochs / self.units)

    @property
    def start_sensitivity(self) -> float:
        """Δ of the sum of the targets."""
        return 1.0 if self.outputs == 1 else math.sqrt(2.0)

    @property
    def start_sigma(self) -> float:
        """σ of the noise on the sum of the targets."""
        return self.start_sensitivity / self.mu_start

    @property
    def sensitivity(self) -> float:
        """Δ of one epoch's sums of all parties."""
        return 2 * self.residual * math.sqrt(self.columns)

    @property
    def sums_sigma(self) -> float:
        """σ of the noise on each sum, that no party but the adders themselves may know."""
        return self.sensitivity * math.sqrt(self.epochs) / self.mu_sums

    @property
    def own_sigma(self) -> float:
        """σ of the noise that one adding party draws for each sum."""
        return self.sums_sigma * math.sqrt(_VARIANCE[self.adders][0])

    @property
    def total_sigma(self) -> float:
        """σ of all parties' noise on a sum together."""
        return self.sums_sigma * math.sqrt(_VARIANCE[self.adders][1])

    def own_units(self, unit: int) -> int:
        """`own_sigma` as a whole number of units, rounded up.

        Args:
            unit: how many units make one.
        """
        return math.ceil(self.own_sigma * unit)

    def spent_mu(self) -> dict[str, float]:
        """Release → its μ, as the ledger has it."""
        counts = {"counts": self.mu_counts} if self.counted else {}
        return {"start": self.mu_start, **counts, "sums": self.mu_sums}

    def repeated_mu(self, repeated: int) -> float:
        """μ of what interrupted attempts may have released besides.

        Args:
            repeated: units that they began and that were begun again.
        """
        return self.mu * math.sqrt(repeated / self.units)

    def spent_epsilon(self, repeated: int = 0) -> float:
        """ε of all releases, from their noise alone.

        Args:
            repeated: see `repeated_mu`.
        """
        each = self.sensitivity / self.sums_sigma
        early = math.hypot(self.start_sensitivity / self.start_sigma, self.mu_counts)
        return epsilon_at(math.hypot(early, each * math.sqrt(self.epochs), self.repeated_mu(repeated)), self.delta)

    def check_worth(self) -> None:
        """Refuse a training that noise would drown.

        Raises:
            InputError: the figures, and the cure.
        """
        have, need = self.rows * self.mu, WORTHLESS * (self.columns - 1)
        if have < need:
            rows = math.ceil(need / self.mu)
            raise InputError(
                f"{self.rows:,} rows at ε = {self.epsilon:g} (μ = {self.mu:.3g}) are too few for {self.columns - 1} "
                f"columns: n·μ = {have:,.0f}, and below {WORTHLESS:g}·F = {need:,.0f} the noise on the sums is larger "
                f"than what they tell. Take {rows:,} rows or more, a larger epsilon, or fewer columns; or let each "
                "party train a model of its own (algorithm 'local')"
            )

    def ledger_facts(self, repeated: int = 0) -> dict[str, str | int | float | bool]:
        """The ledger's note.

        Args:
            repeated: see `repeated_mu`.
        """
        told = self._parts(repeated).items()
        parts: dict[str, str | int | float | bool] = {f"mu of {name}": mu for name, mu in told}
        return {
            "epsilon": self.spent_epsilon(repeated),
            "delta": self.delta,
            "mu": math.hypot(self.mu, self.repeated_mu(repeated)),
            **parts,
            "sensitivity": self.sensitivity,
            "sigma": self.sums_sigma,
            "own sigma": self.own_sigma,
            "epochs": self.epochs,
            "adjacency": "one common row is replaced, at all parties",
            "added by": self.adders,
        }

    def summary_sentence(self, repeated: int = 0) -> str:
        """One sentence for reports.

        Args:
            repeated: see `repeated_mu`.
        """
        parts = ", ".join(f"{name} {mu:.3g}" for name, mu in self._parts(repeated).items())
        mu = math.hypot(self.mu, self.repeated_mu(repeated))
        return (
            f"ε = {self.spent_epsilon(repeated):.3g} (δ = {self.delta:g}) of a common row, for everything that any "
            f"party sees in training (μ = {mu:.3g}: {parts}); predictions are not covered"
        )

    def _parts(self, repeated: int) -> dict[str, float]:
        more = {"interrupted attempts": self.repeated_mu(repeated)} if repeated else {}
        return {**self.spent_mu(), **more}


class SumsUses(GaussianUses):
    """Counts units of the budget: an epoch whose sums are opened is one, the start and the counts are `setup_units`.

    Args:
        budget: of the training.
        rows: number of rows that exist.
    """

    def __init__(self, budget: SumsBudget, rows: int) -> None:
        super().__init__(
            "model",
            "a row would train",
            rows=rows,
            times=budget.units,
            sigma=math.sqrt(budget.units) / budget.mu,
            clip=budget.residual,
            delta=budget.delta,
        )
        self.budget = budget

    @property
    def cost_so_far(self) -> Spent:
        """The price so far, of the row that was used most often; its noise is sized by the exact formula."""
        return replace(super().cost_so_far, exact=True)

    def count_setup(self, rows: np.ndarray) -> None:
        """Count the start and the counts of these rows (n,). Call it before noise is drawn for them.

        Raises:
            PolicyError: more than was planned.
        """
        self.counts.add(np.repeat(rows, self.budget.setup_units))

    def count_epoch(self, rows: np.ndarray) -> None:
        """Count an epoch's sums over these rows (n,). Call it before anything of them leaves.

        Raises:
            PolicyError: more epochs than were planned.
        """
        self.counts.add(rows)
