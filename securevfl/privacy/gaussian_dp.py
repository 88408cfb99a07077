"""Gaussian differential privacy: exact conversions between μ and (ε, δ).

A mechanism is μ-GDP if no test tells two neighbouring tables apart better than N(0, 1) from N(μ, 1). Gaussian releases
compose exactly: together they have ``μ² = Σ μ_k²``, also where later releases are chosen by earlier ones (Dong, Roth
and Su 2022, corollaries 2.13 and 3.3). ``δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from securevfl.errors import InputError

__all__ = ["delta_at", "epsilon_at", "mu_for"]

_TAIL = -35.0
"""Below this, Φ is taken from its tail expansion, to relative errors far below those of ε."""


def _log_phi(x: float) -> float:
    """log Φ(x)."""
    if x > _TAIL:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / (x * x) + 3 / x**4)


def delta_at(epsilon: float, mu: float) -> float:
    """δ of a μ-GDP mechanism at this ε."""
    if mu <= 0:
        return 0.0
    first, second = _log_phi(mu / 2 - epsilon / mu), epsilon + _log_phi(-mu / 2 - epsilon / mu)
    if second >= first:
        return 0.0
    return math.exp(first) * -math.expm1(second - first)


def epsilon_at(mu: float, delta: float) -> float:
    """The smallest ε at which a μ-GDP mechanism has this δ; 0 where no ε is needed.

    Raises:
        InputError: δ is not between 0 and 1.
    """
    _check_delta(delta)
    if mu <= 0 or delta_at(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high, mu) > delta:
        low, high = high, 2 * high
    return _bisect(low, high, lambda epsilon: delta_at(epsilon, mu) <= delta)


def mu_for(epsilon: float, delta: float) -> float:
    """The largest μ whose mechanisms are (ε, δ) differentially private.

    Raises:
        InputError: ε is not a positive number, or δ is not between 0 and 1.
    """
    _check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon is {epsilon}; it must be a positive number (1 is strong, 10 is weak)")
    low, high = 0.0, 1.0
    while delta_at(epsilon, high) <= delta:
        low, high = high, 2 * high
    # `_bisect` returns the end that passes the test: here the smaller μ, so that the result errs towards more noise.
    return -_bisect(-high, -low, lambda minus: delta_at(epsilon, -minus) <= delta)


def _bisect(low: float, high: float, passes: Callable[[float], bool]) -> float:
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if passes(middle):
            high = middle
        else:
            low = middle
    return high


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; it must be between 0 and 1, well below one over the number of rows")
