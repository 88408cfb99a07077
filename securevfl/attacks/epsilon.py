"""Audit ε: turn the success of an attack into a lower bound on the ε that was actually spent.

A bound above the ε that a run reports is a proof, at its confidence, that the report is wrong: noise too small,
observations not counted, or a path around the noise. A bound below it proves only that this attack was not stronger.

*One run* (Steinke, Nasr and Jagielski 2023, arXiv 2305.08846, theorem 5.2): each of n rows carries an independent
random bit; an attacker guesses r of them from all observations, and v guesses are right. If the run was (ε, δ)-private
for each row, v is stochastically dominated by a binomial count with success rate e^ε/(1 + e^ε), except for a term in δ.
The bits are randomly drawn labels or a canary column of the features.

*Rates*: how often a test outputs 1 for bits that are 1 and for bits that are 0, over rows with independent noise. By
(ε, δ), ``P(1 | 1) ≤ e^ε P(1 | 0) + δ``; both rates are bounded after Clopper and Pearson (1934).

Trying several thresholds means several tests: `audit` divides its level among them (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

__all__ = ["EpsilonBound", "bound_epsilon", "epsilon_of_guesses", "epsilon_of_rates"]

_MOST = 60.0
"""Largest ε that the search for a bound considers."""

SHARES = (1.0, 0.5, 0.2, 0.05)
"""Shares of the rows to guess, starting with the most extreme scores."""


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """Result of an audit.

    Attributes:
        lower: lower bound on ε, at the stated confidence.
        confidence: over all tests of this audit together.
        guesses: of the test with the best bound.
        right: how many of them were right.
    """

    lower: float
    confidence: float
    guesses: int
    right: int


def epsilon_of_guesses(right: int, guesses: int, rows: int, *, delta: float, level: float) -> float:
    """Return the largest ε that `right` guesses in one run refute.

    Args:
        right: v.
        guesses: r.
        rows: n, rows with a secret bit.
        delta: of the claim.
        level: probability with which the bound may be too high.
    """
    if _p_value(0.0, right, guesses, rows, delta) > level:
        return 0.0
    low, high = 0.0, _MOST
    for _ in range(40):
        middle = (low + high) / 2
        if _p_value(middle, right, guesses, rows, delta) <= level:
            low = middle
        else:
            high = middle
    return low


def _p_value(epsilon: float, right: int, guesses: int, rows: int, delta: float) -> float:
    """Return the largest probability of at least `right` right guesses under (ε, δ)."""
    rate = 1 / (1 + math.exp(-epsilon))
    if not right:
        return 1.0
    tail = float(special.bdtrc(right - 1, guesses, rate))
    steps = np.arange(1, right + 1)
    below = special.bdtr(right - 1, guesses, rate) - np.append(special.bdtr(right - 1 - steps[:-1], guesses, rate), 0.0)
    return min(1.0, tail + 2 * rows * delta * float((below / steps).max()))  # below[i]: P(v − i ≤ count < v)


def epsilon_of_rates(hits: int, ones: int, false: int, zeros: int, *, delta: float, level: float) -> float:
    """Return the largest ε that these rates of a test refute.

    Args:
        hits: rows called 1 whose bit is 1.
        ones: rows whose bit is 1.
        false: rows called 1 whose bit is 0.
        zeros: rows whose bit is 0.
        delta: of the claim.
        level: probability with which the bound may be too high, half of it for each rate.
    """
    least = float(stats.beta.ppf(level / 2, hits, ones - hits + 1)) if hits else 0.0
    most = float(stats.beta.ppf(1 - level / 2, false + 1, zeros - false)) if false < zeros else 1.0
    return max(0.0, math.log(max(least - delta, 1e-300) / most))


def bound_epsilon(
    bits: np.ndarray,
    score: np.ndarray,
    *,
    delta: float,
    confidence: float = 0.95,
    either_way: bool = False,
    shares: Sequence[float] = SHARES,
) -> EpsilonBound:
    """Compute a lower bound on ε from one run.

    Args:
        bits: independent random bit of each row, (n,) 0 or 1.
        score: the attack's score, (n,): the higher, the more likely 1.
        delta: of the claimed (ε, δ).
        confidence: of the bound, over all tests together.
        either_way: whether the score's sign is unknown, which doubles the number of tests.
        shares: of the rows to guess, most extreme scores first; one test each.
    """
    bits = np.asarray(bits, dtype=bool)
    level = (1 - confidence) / (len(shares) * (2 if either_way else 1))
    order = np.argsort(score, kind="stable")
    found = EpsilonBound(lower=0.0, confidence=confidence, guesses=0, right=0)
    for share in shares:
        half = int(len(bits) * share / 2)
        if not half:
            continue
        right = int((~bits[order[:half]]).sum() + bits[order[-half:]].sum())
        right = max(right, 2 * half - right) if either_way else right
        lower = epsilon_of_guesses(right, 2 * half, len(bits), delta=delta, level=level)
        if lower > found.lower or not found.guesses:
            found = EpsilonBound(lower=lower, confidence=confidence, guesses=2 * half, right=right)
    return found
