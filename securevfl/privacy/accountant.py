"""Convert a party's noisy releases into ε, as Opacus' RDP and PRV accountants do.

A release of rows is *local*: the receiver sees every row separately, so sampling amplifies nothing, and releasing a row
again costs again. Adjacency: two tables that differ in the content of one row (bounded differential privacy); a row
clipped to norm C moves by at most Δ = 2C, or by less if a smaller bound is known. T releases of one row with noise σΔ
are T-fold compositions of the Gaussian mechanism with noise multiplier σ.

ε of Gaussian releases comes from Opacus: its RDP accountant (Mironov 2017, arXiv 1702.07476) and its PRV accountant
(Gopi, Lee and Wutschitz 2021, arXiv 2106.02848), which is tighter. RDP of releases of every row is one line, which
stands here, so that a proposal is checked without loading Opacus; tests compare it. For mechanisms with a pure ε, the
RDP accountant adds their exact curve and the PRV accountant adds ε (basic composition).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from securevfl.errors import InputError
from securevfl.privacy.gaussian_dp import epsilon_at
from securevfl.privacy.opacus_accountants import load_accountants

__all__ = [
    "FEATURES",
    "LABELS",
    "Accountant",
    "GaussianRelease",
    "PureRelease",
    "Release",
    "Total",
    "calibrate_sigma",
    "epsilon_exact",
    "epsilon_prv",
    "epsilon_rdp",
]

_MAX_SIGMA = 1e4
_PRV_MOST = 300.0
"""ε by RDP from which PRV is not asked: with so little noise its grid takes minutes, raises, or gives infinity."""

_ORDERS = np.array([*(1 + x / 10 for x in range(1, 100)), *range(12, 64), *range(64, 2048, 32)])
"""Opacus' default orders α, which end at 63, and larger ones, at which a small ε is reached."""

FEATURES, LABELS = "features", "labels"
"""Which part of a row a release depends on."""


@dataclass(frozen=True, slots=True)
class GaussianRelease:
    """`times` releases of one row's content, each with Gaussian noise.

    Attributes:
        noise_multiplier: standard deviation of the noise over the sensitivity Δ.
        times: releases of one and the same row.
        sample_rate: probability that a row takes part in a release, drawn independently for each row and release
            (Poisson sampling) and hidden from the receiver; 1 if every row takes part. Below 1, Opacus' accountants
            assume that a row is *added or removed*, with Δ = C.
    """

    noise_multiplier: float
    times: int
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0):
            raise InputError(f"noise multiplier is {self.noise_multiplier}; it must be a positive number")
        if self.times < 0:
            raise InputError(f"a row cannot be released {self.times} times; give 0 or more")
        if not 0 < self.sample_rate <= 1:
            raise InputError(f"sample rate is {self.sample_rate}; it must be above 0 and at most 1 (1: every row)")


@dataclass(frozen=True, slots=True)
class PureRelease:
    """`times` releases of one row's content through a mechanism with δ = 0.

    Attributes:
        epsilon: of one release.
        times: releases of one and the same row.
        classes: number of answers of randomised response; 2 is the worst case and covers any pure mechanism.
    """

    epsilon: float
    times: int = 1
    classes: int = 2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"epsilon is {self.epsilon}; it must be a positive number (1 is strong, 10 is weak)")
        if self.times < 0:
            raise InputError(f"a row cannot be released {self.times} times; give 0 or more")
        if self.classes < 2:
            raise InputError(f"randomised response needs at least 2 classes, got {self.classes}")

    def rdp(self, orders: np.ndarray) -> np.ndarray:
        """Exact Rényi divergence of k-ary randomised response at these orders α > 1, (orders,).

        With p = e^ε/(e^ε + k − 1) and q = 1/(e^ε + k − 1):
        ``log(p^α q^(1−α) + q^α p^(1−α) + (k − 2) q) / (α − 1)``. For k = 2 it is Mironov 2017, Table II, and bounds
        every mechanism with this ε (any pair of its distributions is a post-processing of randomised response).
        """
        a, e = np.asarray(orders, dtype=np.float64), self.epsilon
        rest = math.log(self.classes - 2) if self.classes > 2 else -math.inf
        whole = np.logaddexp(np.logaddexp(a * e, (1 - a) * e), rest) - np.logaddexp(e, math.log(self.classes - 1))
        return np.asarray(np.maximum(whole, 0.0) / (a - 1) * self.times)


Release = GaussianRelease | PureRelease


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}; it must be between 0 and 1, well below one over the number of rows")


def _split_releases(
    releases: Release | Iterable[Release],
) -> tuple[tuple[GaussianRelease, ...], tuple[PureRelease, ...]]:
    """Split releases into Gaussian ones (equal ones merged) and pure ones, without those of zero times."""
    times: dict[tuple[float, float], int] = {}
    pure = []
    for release in [releases] if isinstance(releases, GaussianRelease | PureRelease) else releases:
        if isinstance(release, PureRelease):
            pure += [release] if release.times else []
        elif release.times:
            key = (release.noise_multiplier, release.sample_rate)
            times[key] = times.get(key, 0) + release.times
    gaussian = tuple(GaussianRelease(sigma, count, rate) for (sigma, rate), count in sorted(times.items()))
    return gaussian, tuple(sorted(pure, key=lambda p: (p.epsilon, p.times, p.classes)))


def epsilon_rdp(releases: Release | Iterable[Release], delta: float) -> float:
    """ε of all these releases of one row by Rényi differential privacy (Opacus' RDP accountant); 0 for no release."""
    _check_delta(delta)
    gaussian, pure = _split_releases(releases)
    if not gaussian and not pure:
        return 0.0
    simple = sum(p.epsilon * p.times for p in pure)
    if not gaussian:
        return min(_rdp_epsilon((), pure, delta), simple)
    return min(_rdp_epsilon(gaussian, pure, delta), _rdp_epsilon(gaussian, (), delta) + simple)


def epsilon_prv(releases: Release | Iterable[Release], delta: float) -> float:
    """ε of all these releases of one row by privacy loss random variables (Opacus' PRV accountant): an upper bound,
    tighter than RDP's; RDP's where it fails for lack of noise. The ε of pure releases is added.
    """
    _check_delta(delta)
    gaussian, pure = _split_releases(releases)
    return (_prv_epsilon(gaussian, delta) if gaussian else 0.0) + sum(p.epsilon * p.times for p in pure)


@lru_cache(maxsize=4096)
def _rdp_epsilon(gaussian: Sequence[GaussianRelease], pure: Sequence[PureRelease], delta: float) -> float:
    curve = np.zeros(len(_ORDERS))
    for gauss in gaussian:
        curve = curve + _gaussian_curve(gauss)
    for p in pure:
        curve = curve + p.rdp(_ORDERS)
    # Balle et al. 2020, theorem 21, as Opacus has it. The best order may be the largest: its bound stays valid.
    found = curve - (np.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1) + np.log((_ORDERS - 1) / _ORDERS)
    return math.inf if np.isnan(found).all() else max(float(np.nanmin(found)), 0.0)


def _gaussian_curve(release: GaussianRelease) -> np.ndarray:
    """Rényi divergence at `_ORDERS`. That of every row is α/2σ² (Mironov 2017, table II) and needs no Opacus, whose
    import a proposal would wait for; of sampled rows Opacus computes it.
    """
    if release.sample_rate == 1:
        return np.asarray(_ORDERS / (2 * release.noise_multiplier**2) * release.times)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampled: np.ndarray = load_accountants().rdp.compute_rdp(
            q=release.sample_rate, noise_multiplier=release.noise_multiplier, steps=release.times, orders=_ORDERS
        )
    return sampled


@lru_cache(maxsize=4096)
def _prv_epsilon(gaussian: Sequence[GaussianRelease], delta: float) -> float:
    bound = _rdp_epsilon(gaussian, (), delta)
    if bound > _PRV_MOST:
        return bound
    accountant = load_accountants().prv()
    accountant.history = [(r.noise_multiplier, r.sample_rate, r.times) for r in gaussian]
    with warnings.catch_warnings(), suppress(RuntimeError):
        warnings.simplefilter("ignore")
        # The PRV's ε is an upper bound whatever these errors are; they trade tightness for time.
        found = float(accountant.get_epsilon(delta, eps_error=0.01, delta_error=delta / 1000))
        if math.isfinite(found):
            return found
    return bound


def epsilon_exact(releases: Release | Iterable[Release], delta: float) -> float:
    """ε of all these releases of one row: exactly, by Gaussian differential privacy, where all are Gaussian releases of
    every row; else by RDP, which is an upper bound. 0 for no release.
    """
    gaussian, pure = _split_releases(releases)
    if pure or any(one.sample_rate < 1 for one in gaussian):
        return epsilon_rdp([*gaussian, *pure], delta)
    return epsilon_at(math.sqrt(sum(one.times / one.noise_multiplier**2 for one in gaussian)), delta)


def calibrate_sigma(epsilon: float, delta: float, times: int) -> float:
    """The smallest noise multiplier with which `times` releases of a row cost at most (ε, δ), by the RDP accountant.

    Raises:
        InputError: ε or δ out of range, or so small an ε that the noise would exceed 10⁴ sensitivities.
    """
    _check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon is {epsilon}; it must be a positive number (1 is strong, 10 is weak)")
    if times < 1:
        raise InputError(f"{times} releases cannot be calibrated; at least one is needed")
    low, high = 1e-3, 1.0
    while epsilon_rdp(GaussianRelease(high, times), delta) > epsilon:
        low, high = high, high * 2
        if high > _MAX_SIGMA:
            raise InputError(
                f"epsilon {epsilon} over {times} releases needs more noise than {_MAX_SIGMA:g} sensitivities"
            )
    # Bisect on a log scale. `high` always satisfies the budget, so the result errs on the side of more noise.
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        if epsilon_rdp(GaussianRelease(middle, times), delta) > epsilon:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True, slots=True)
class Total:
    """The total cost of a party's releases that depend on the same part of a row.

    Attributes:
        party: whose data it is.
        protects: ``"features"``, ``"labels"``, or ``"features and labels"`` of one row together.
        epsilon_rdp: by Rényi differential privacy.
        epsilon_prv: by privacy loss random variables.
        delta: probability with which ε may be exceeded: one δ for all of the releases.
        releases: of one row, all kinds together.
        adjacency: what two neighbouring tables differ in.
    """

    party: str
    protects: str
    epsilon_rdp: float
    epsilon_prv: float
    delta: float
    releases: int
    adjacency: str


class Accountant:
    """Add up one party's releases and compute what they cost one row.

    Features and labels are composed separately. A release that depends on both, such as a model, counts towards each.
    `compute_totals` also composes everything, for tables that differ in both.

    Args:
        party: whose releases these are.
        delta: δ of each total.
    """

    def __init__(self, party: str, delta: float) -> None:
        _check_delta(delta)
        self.party = party
        self.delta = delta
        self._releases: list[tuple[Release, frozenset[str]]] = []

    def add(self, release: Release, protects: Iterable[str]) -> None:
        """Count a release.

        Args:
            release: what was released, of the row that was released most often.
            protects: whether it depends on the row's features, its labels, or both.

        Raises:
            InputError: `protects` is empty or names something other than features and labels.
        """
        subjects = frozenset(protects)
        if not subjects or not subjects <= {FEATURES, LABELS}:
            raise InputError(f"a release protects {sorted(subjects)}; name {FEATURES!r}, {LABELS!r} or both")
        if not isinstance(release, GaussianRelease | PureRelease):
            raise InputError(f"{release!r} cannot be counted; give a GaussianRelease or a PureRelease")
        self._releases.append((release, subjects))

    def releases_about(self, about: str = "") -> list[Release]:
        """The releases that depend on `about`; all of them unless named."""
        return [release for release, subjects in self._releases if not about or about in subjects]

    def epsilon_rdp(self, about: str = "") -> float:
        """ε of all releases that depend on `about` (or of all), by RDP."""
        return epsilon_rdp(self.releases_about(about), self.delta)

    def epsilon_exact(self, about: str = "") -> float:
        """ε of all releases that depend on `about` (or of all), exactly where all are Gaussian; see `epsilon_exact`."""
        return epsilon_exact(self.releases_about(about), self.delta)

    def epsilon_prv(self, about: str = "") -> float:
        """ε of all releases that depend on `about` (or of all), by PRV."""
        return epsilon_prv(self.releases_about(about), self.delta)

    def compute_totals(self) -> list[Total]:
        """Totals for features, for labels and, if there are releases of both, for the two together."""
        kinds = [kind for kind in (FEATURES, LABELS) if self.releases_about(kind)]
        named = [(kind, kind) for kind in kinds] + ([("", f"{FEATURES} and {LABELS}")] if len(kinds) == 2 else [])
        return [self._compute_total(about, words) for about, words in named]

    def _compute_total(self, about: str, words: str) -> Total:
        found = self.releases_about(about)
        sampled = any(isinstance(r, GaussianRelease) and r.sample_rate < 1 for r in found)
        return Total(
            party=self.party,
            protects=words,
            epsilon_rdp=epsilon_rdp(found, self.delta),
            epsilon_prv=epsilon_prv(found, self.delta),
            delta=self.delta,
            releases=sum(r.times for r in found),
            adjacency="one row is added or removed" if sampled else "the content of one row is replaced",
        )
