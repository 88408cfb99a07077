"""The privacy cost of trying several jobs with noise on the same rows.

Whoever receives a party's activations or gradients receives those of *every* job that was tried, not of the chosen one
alone. So theorems for a choice of which only the winner is published (Liu and Talwar 2019, Papernot and Steinke 2022)
do not apply here: ε and δ of all jobs add up (basic composition, Dwork and Roth 2014, theorem 3.16), or less by the
accountant where the releases are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securevfl.party import Job
from securevfl.privacy.accountant import FEATURES, LABELS

__all__ = ["Cost", "describe_cost", "plan_cost", "total_cost"]

_BOTH = (FEATURES, LABELS)


@dataclass(frozen=True)
class Cost:
    """(ε, δ) of one row.

    Attributes:
        epsilon: infinite where a plan does not say it.
        delta: probability with which ε may be exceeded.
    """

    epsilon: float
    delta: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta)


def plan_cost(job: Job, passive: Sequence[str]) -> Mapping[str, Cost]:
    """The most that a job spends for one row: ``"features"`` and ``"labels"``; empty without differential privacy.

    Args:
        job: with its protection.
        passive: names of the passive parties.
    """
    dp = job.planned_protection(len(passive)).dp
    if dp is None:
        return {}
    found: dict[str, Cost] = {}
    for mechanism, subjects in ((dp.features, (FEATURES,)), (dp.labels, (LABELS,)), (dp.model, _BOTH)):
        if mechanism is None:
            continue
        fixed = getattr(mechanism, "noise_multiplier", None) is not None  # what it spends depends on the rows
        unknown = fixed and getattr(mechanism, "on_budget", "") != "stop"
        epsilon = math.inf if unknown else float(mechanism.epsilon)
        for subject in subjects:
            found[subject] = Cost(epsilon, float(getattr(mechanism, "delta", 0.0)))
    return found


def total_cost(costs: Sequence[Mapping[str, Cost]]) -> dict[str, Cost]:
    """The total cost of several jobs on the same rows, by what is protected: the sums of ε and of δ."""
    found: dict[str, Cost] = {}
    for cost in costs:
        for subject, one in cost.items():
            found[subject] = found[subject] + one if subject in found else one
    return found


def describe_cost(costs: Sequence[Mapping[str, Cost]]) -> str:
    """A note for readers of the figures; empty if no job has noise."""
    noisy = [cost for cost in costs if cost]
    if not noisy:
        return ""
    spent = " and ".join(
        f"ε = {one.epsilon:.4g} (δ = {one.delta:.2g}) of {subject}" for subject, one in total_cost(noisy).items()
    )
    return (
        f"{len(noisy)} of these runs have noise, on the same rows. A simulation spends nothing. Parties that did this "
        f"for real would spend that of all runs together, whichever is chosen: at most {spent}."
    )
