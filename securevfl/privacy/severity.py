"""Severity of findings: *ok*, *note* or *leak*, from what an attack achieved or from what ε permits.

| severity | an attack on labels or on a yes-or-no attribute | an attack on features |
|---|---|---|
| ok | AUC at most 0.55 | no gain |
| note | at most 0.05 above the AUC of an attacker without the message | R² at most 0.10 above it |
| leak | more | more |

For a numeric target the measure is the correlation of recovered with true values: at most 0.10 above that of an
attacker without the message, which is about where the AUC of *above or below the median* exceeds 0.55.

Two sources for what crosses the cut. *Noise*: the planned ε bounds the AUC of every attack on a row's own releases
(below; it does not bound what other rows' releases reveal of it through trained bottoms or the cut's weights). A guess
without the message has AUC 0.5, so noise turns a leak into a note only if that AUC is at most 0.55. *No noise*:
``measured.json`` beside this file has the results of the gate's attacks on recorded runs (``python -m benchmarks.gate``
writes it); a view without a measurement is a leak. Eight notes beside the cut are set by hand, where their messages are
declared: which rows train (RISA, FedDA), what Multi-VFL's coordinator adds up, two of a label book, metrics on shares,
and of a scorecard its counts by bin and the coefficients of a party's own columns.

*What ε permits.* T releases of a row with noise multiplier σ tell two values of it apart as well as one draw of N(0, 1)
from one of N(μ, 1) with μ = √T/σ (Dong, Roth and Su 2022, corollary 3.3); the best AUC of that is Φ(μ/√2). Randomised
response among k classes keeps a label with probability p and turns it into any given other one with q, so that its best
AUC is (1 + p − q)/2, largest at k = 2, where it is p = e^ε/(1 + e^ε).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from securevfl.privacy.accountant import GaussianRelease, calibrate_sigma, epsilon_rdp
from securevfl.privacy.mechanisms import GaussianNoise, RandomisedResponse
from securevfl.transport import Severity

__all__ = [
    "NOTE_AUC_GAIN",
    "NOTE_CORRELATION_GAIN",
    "NOTE_R2_GAIN",
    "OK_AUC",
    "READ_AUC",
    "MeasuredView",
    "Permitted",
    "auc_of_mu",
    "auc_of_response",
    "largest_epsilon",
    "load_measured",
    "mu_of",
    "permitted_by",
    "severity_of_view",
    "with_planned_epsilon",
]

OK_AUC = 0.55
"""Largest AUC of an attack for a finding *ok*, and the largest under noise that turns a leak into a note."""

NOTE_AUC_GAIN = 0.05
"""Largest gain in AUC for a *note*, over an attacker who has only his own features."""

_LEAST_EPSILON = 1e-6
"""Used for ε = 0, which accountants return for a large δ but mechanisms do not accept."""

READ_AUC = 0.90
"""An ε that permits a larger AUC of a yes-or-no attribute is reported as no bound. Gaussian noise at ε = 8 and δ = 10⁻⁵
permits 0.88, randomised response at ε = 8 0.9998.
"""

NOTE_R2_GAIN = 0.10
"""Largest gain in R² of estimated features for a *note*."""


NOTE_CORRELATION_GAIN = 0.10
"""Largest gain in the correlation of a numeric target with its estimate for a *note*. Two normal numbers correlated by
r rank *above the median* with an AUC of about 0.5 + 0.45 r.
"""


def auc_of_mu(mu: float) -> float:
    """Φ(μ/√2): the best AUC for distinguishing N(0, 1) from N(μ, 1)."""
    return 0.5 * (1 + math.erf(mu / 2))


def auc_of_response(epsilon: float, classes: int = 2) -> float:
    """The best AUC for distinguishing two classes by a label drawn with randomised response.

    Args:
        epsilon: of the draw.
        classes: k; 2 is the worst case.
    """
    low = math.exp(-epsilon)
    return 0.5 * (1 + (1 - low) / (1 + (classes - 1) * low))


@cache
def mu_of(epsilon: float, delta: float) -> float:
    """μ of Gaussian releases whose noise is sized for (ε, δ). It does not depend on their number: the accountant's
    curve depends only on T/σ².
    """
    return 1 / calibrate_sigma(epsilon, delta, 1)


@dataclass(frozen=True, slots=True)
class Permitted:
    """What a planned ε permits of any attack on one row.

    Attributes:
        epsilon: planned over all releases; infinite if the plan does not bound it.
        auc: largest AUC with which one bit of the row can be ranked.
    """

    epsilon: float
    auc: float

    @property
    def severity(self) -> Severity:
        """*note* up to an AUC of 0.55, else *leak*; noise never makes it *ok*."""
        return "note" if self.auc <= OK_AUC else "leak"

    def describe(self, what: str) -> str:
        """``(ε = 8): labels ranked with AUC at most 0.88``, rounded up.

        Args:
            what: what is ranked.
        """
        if math.isinf(self.epsilon):
            return f"(ε grows with each release, and the plan does not bound their number): {what} ranked ever better"
        return f"(ε = {self.epsilon:.3g}): {what} ranked with AUC at most {math.ceil(self.auc * 100 - 1e-9) / 100:.2f}"


def permitted_by(mechanism: GaussianNoise | RandomisedResponse) -> Permitted:
    """What a mechanism's budget permits. A noise multiplier without a known number of releases bounds nothing;
    `with_planned_epsilon` replaces it with the ε of the plan.

    Args:
        mechanism: from the job or its plan.
    """
    if isinstance(mechanism, RandomisedResponse):
        return Permitted(mechanism.epsilon, auc_of_response(mechanism.epsilon))
    if mechanism.noise_multiplier is not None and mechanism.on_budget != "stop":
        return Permitted(math.inf, 1.0)
    return Permitted(mechanism.epsilon, auc_of_mu(mu_of(mechanism.epsilon, mechanism.delta)))


def with_planned_epsilon(mechanism: GaussianNoise, looks: int | None) -> GaussianNoise:
    """Return the mechanism with its noise multiplier, if it has one, replaced by the ε that `looks` releases of a row
    cost.

    Args:
        mechanism: as the job has it.
        looks: most releases of one row; None where that depends on the rows.
    """
    sigma = mechanism.noise_multiplier
    if sigma is None or looks is None:
        return mechanism
    spends = epsilon_rdp(GaussianRelease(sigma, looks), mechanism.delta)
    if mechanism.on_budget == "stop":
        spends = min(spends, mechanism.epsilon)
    spends = max(spends, _LEAST_EPSILON)
    return mechanism.replace(epsilon=spends, noise_multiplier=None, on_budget="refuse")


def largest_epsilon(auc: Callable[[float], float]) -> float:
    """The largest ε, in tenths, at which a mechanism turns a leak into a note.

    Args:
        auc: increasing function from ε to the AUC it permits.
    """
    tenths = 1
    while auc((tenths + 1) / 10) <= OK_AUC:
        tenths += 1
    return tenths / 10


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredView:
    """Results of attacks on what one party receives without noise: the worst over data, algorithms and seeds.

    Attributes:
        view: key in ``measured.json`` of what it receives.
        about: ``"labels"``, ``"features"``, or ``"cells"``: bins of a party's columns.
        got: result of the best attack: AUC for labels, R² for features, share of cells.
        without: result of the same attacker without the message.
        attribute: of features, the AUC of a yes-or-no attribute.
        attribute_without: likewise without the message.
        cell: where that was measured: data, algorithm, protection.
        after: of boosted trees, how many are grown → share of the party's cells whose bin the active party computes.
    """

    view: str
    about: str
    got: float
    without: float
    attribute: float = 0.5
    attribute_without: float = 0.5
    cell: str = ""
    after: Mapping[str, float] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        """By the table of this module."""
        if self.about == "labels":
            if self.got <= OK_AUC:
                return "ok"
            return "note" if self.got - self.without <= NOTE_AUC_GAIN else "leak"
        attribute = self.attribute - self.attribute_without
        if self.got - self.without > NOTE_R2_GAIN or attribute > NOTE_AUC_GAIN:
            return "leak"
        return "note"


@cache
def load_measured() -> Mapping[str, MeasuredView]:
    """Attack results by view, as the gate wrote them."""
    text = files("securevfl.privacy").joinpath("measured.json").read_text(encoding="utf-8")
    content: Mapping[str, Any] = json.loads(text)
    return {view: MeasuredView(view=view, **figures) for view, figures in content["views"].items()}


def severity_of_view(view: str) -> Severity:
    """Severity of what a party receives without noise, as measured; a view without a measurement is a leak."""
    found = load_measured().get(view)
    return "leak" if found is None else found.severity
