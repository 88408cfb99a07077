"""Honest accounting of Gaussian releases: what was released is data, the accountants turn it into ε.

A release here is *local*: the receiver sees each row of its own, so no amplification by sampling applies, and a row
that is released again pays again. Adjacency: two tables that differ in the content of one row (bounded
differential privacy); a row clipped to norm C moves by at most Δ = 2C, or less where that is known. T releases of
one row with noise σΔ are T-fold compositions of the Gaussian mechanism with noise multiplier σ.

ε comes from Opacus: its RDP accountant (Mironov 2017, arXiv 1702.07476) and its PRV accountant (Gopi, Lee and
Wutschitz 2021, arXiv 2106.02848), which is tighter.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache

from securevfl.errors import InputError

__all__ = ["GaussianRelease", "calibrate", "epsilon_prv", "epsilon_rdp"]

_MAX_SIGMA = 1e4


@dataclass(frozen=True, slots=True)
class GaussianRelease:
    """That one row's content was released `times` times with Gaussian noise.

    Attributes:
        noise_multiplier: standard deviation of the noise over the sensitivity Δ.
        times: releases of one and the same row.
    """

    noise_multiplier: float
    times: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0):
            raise InputError(f"noise multiplier is {self.noise_multiplier}; it has to be a positive number")
        if self.times < 0:
            raise InputError(f"a row cannot be released {self.times} times")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; it lies between 0 and 1, well below one over the number of rows")


def epsilon_rdp(release: GaussianRelease, delta: float) -> float:
    """ε by Rényi differential privacy (Opacus' RDP accountant); 0 for no release."""
    _check_delta(delta)
    if release.times == 0:
        return 0.0
    return _rdp(release.noise_multiplier, release.times, delta)


def epsilon_prv(release: GaussianRelease, delta: float) -> float:
    """ε by privacy loss random variables (Opacus' PRV accountant): an upper bound, tighter than RDP's."""
    _check_delta(delta)
    if release.times == 0:
        return 0.0
    return _prv(release.noise_multiplier, release.times, delta)


@lru_cache(maxsize=4096)
def _rdp(sigma: float, times: int, delta: float) -> float:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(sigma, 1.0, times)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "optimal order is the largest alpha": its bound stays valid
        alphas = [*RDPAccountant.DEFAULT_ALPHAS, *range(64, 2048, 32)]
        return float(accountant.get_epsilon(delta, alphas=alphas))


@lru_cache(maxsize=4096)
def _prv(sigma: float, times: int, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(sigma, 1.0, times)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta, eps_error=0.01, delta_error=delta / 1000))


def calibrate(epsilon: float, delta: float, times: int) -> float:
    """The smallest noise multiplier with which `times` releases of a row cost at most (ε, δ), by the RDP accountant.

    Raises:
        InputError: ε or δ out of range, or so small an ε that the noise would exceed 10⁴ sensitivities.
    """
    _check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon is {epsilon}; it has to be a positive number (1 is strong, 10 is weak)")
    if times < 1:
        raise InputError(f"{times} releases cannot be calibrated; at least one is needed")
    low, high = 1e-3, 1.0
    while epsilon_rdp(GaussianRelease(high, times), delta) > epsilon:
        low, high = high, high * 2
        if high > _MAX_SIGMA:
            raise InputError(
                f"epsilon {epsilon} over {times} releases needs more noise than {_MAX_SIGMA:g} sensitivities"
            )
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        if epsilon_rdp(GaussianRelease(middle, times), delta) > epsilon:
            low = middle
        else:
            high = middle
    return high
