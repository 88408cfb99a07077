"""The privacy budget of a search: what its trials released, and whether another would exceed it.

A trial that ended well counts as the accountant composes its releases with those of all others (RDP). One that was
pruned, failed or broke off counts with all that it planned, added up: it may have released that much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from securevfl.errors import InputError
from securevfl.experiments.privacy_cost import Cost, total_cost
from securevfl.privacy import Spent
from securevfl.privacy.accountant import FEATURES, LABELS, Accountant, GaussianRelease, PureRelease, Release

__all__ = ["Released", "SearchBudget", "Unbudgeted", "kept_plan", "kept_releases", "planned_of", "total_released"]

Released = Mapping[str, Sequence[Mapping[str, Any]]]
"""Party → its releases, in plain values as a study keeps them."""


class Unbudgeted(InputError):
    """A trial has noise, and no budget was given."""


@dataclass(frozen=True)
class SearchBudget:
    """What a search may spend for one row.

    Attributes:
        epsilon: over all of its trials and the winner's runs; None where no job may have noise.
    """

    epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None and (math.isnan(self.epsilon) or self.epsilon <= 0):
            raise InputError(f"budget is {self.epsilon}; a positive ε was expected, or math.inf")

    def allows(self, spent: Mapping[str, Cost], more: Sequence[Mapping[str, Cost]]) -> bool:
        """Return True if jobs with these costs still fit, given what was spent.

        Raises:
            Unbudgeted: a job has noise, and no budget was given.
        """
        if not any(more):
            return True
        if self.epsilon is None:
            worst = ", ".join(f"ε = {one.epsilon:g} of {what}" for what, one in total_cost(more[:1]).items())
            raise Unbudgeted(
                f"a trial has noise ({worst}), and every trial releases the same rows again: whoever receives them "
                "receives those of all trials, not of the winner alone. Give budget=… (ε over all trials and the "
                "winner's runs; budget=math.inf for data that are public or simulated), or search without noise and "
                "train once with it"
            )
        after = total_cost([spent, *more])
        return all(one.epsilon <= self.epsilon * (1 + 1e-9) for one in after.values())


def kept_releases(spent: Mapping[str, Iterable[Spent]]) -> dict[str, list[dict[str, Any]]]:
    """Releases in plain values, for the study.

    Args:
        spent: party → what it released in a run.
    """
    return {name: [_spent_to_plain(one) for one in every] for name, every in spent.items() if every}


def _spent_to_plain(one: Spent) -> dict[str, Any]:
    release = one.release
    kind: dict[str, Any]
    if isinstance(release, GaussianRelease):
        kind = {"sigma": release.noise_multiplier, "rate": release.sample_rate}
    else:
        kind = {"epsilon": release.epsilon, "classes": release.classes}
    return {**kind, "times": release.times, "protects": list(one.protects), "delta": one.delta}


def _restore_release(kept: Mapping[str, Any]) -> Release:
    if "sigma" in kept:
        return GaussianRelease(kept["sigma"], kept["times"], kept["rate"])
    return PureRelease(kept["epsilon"], kept["times"], kept["classes"])


def kept_plan(costs: Mapping[str, Cost]) -> dict[str, list[float | None]]:
    """A plan's costs in plain values; an unknown ε becomes None."""
    return {what: [one.epsilon if math.isfinite(one.epsilon) else None, one.delta] for what, one in costs.items()}


def planned_of(kept: Mapping[str, Sequence[float | None]]) -> dict[str, Cost]:
    """A plan's costs from a study: what is protected → ε and δ; None is an unknown ε."""
    return {what: Cost(math.inf if one[0] is None else one[0], one[1] or 0.0) for what, one in kept.items()}


def total_released(ended: Sequence[Released], others: Sequence[Mapping[str, Cost]]) -> dict[str, Cost]:
    """What was spent so far, by what it protects: of the party that spent most.

    Args:
        ended: releases of the runs that ended well.
        others: what the other runs planned.
    """
    accountants: dict[str, Accountant] = {}
    every = [one for run in ended for releases in run.values() for one in releases]
    delta = max((one["delta"] for one in every), default=0.0)
    for run in ended:
        for party, releases in run.items():
            accountant = accountants.setdefault(party, Accountant(party, delta))
            for one in releases:
                accountant.add(_restore_release(one), one["protects"])
    most: dict[str, Cost] = {}
    for accountant in accountants.values():
        for about in (FEATURES, LABELS):
            epsilon = accountant.epsilon_rdp(about)
            if epsilon > most.get(about, Cost(0.0, 0.0)).epsilon:
                most[about] = Cost(epsilon, delta)
    return total_cost([most, *others])
