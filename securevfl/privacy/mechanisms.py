"""The privacy mechanisms of a job: how much noise, for which budget. `DP` assigns them to features, labels or a model;
`releases` draws the noise.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from securevfl.config import Config
from securevfl.privacy.accountant import GaussianRelease, calibrate_sigma, epsilon_rdp

__all__ = ["Gaussian", "GaussianNoise", "JointNoise", "Mechanism", "RandomisedResponse"]

Epsilon = Annotated[float, Meta(gt=0, description="1 is strong, 10 is weak")]
Delta = Annotated[float, Meta(gt=0, lt=1, description="well below one over the number of rows")]
Positive = Annotated[float, Meta(gt=0)]


class Mechanism(Config):
    """The base of all mechanisms. A job file chooses one with the key ``mechanism``."""

    tag_field: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str]

    @property
    def strength_text(self) -> str:
        """The strength, for titles: ``ε = 8``."""
        return ""


class GaussianNoise(Mechanism):
    """Gaussian noise, sized by a budget (ε, δ) for one row over all of training and by a clipping norm.

    Attributes:
        epsilon: budget of one row.
        delta: δ, the probability that a release exceeds ε; well below one over the number of rows.
        clip: C, the largest L2 norm of what one row releases; larger vectors are scaled down to it.
        noise_multiplier: σ, the noise's standard deviation divided by the sensitivity. None derives it from `epsilon`.
        on_budget: what to do where training with this `noise_multiplier` would cost more than `epsilon`. ``"refuse"``
            leaves the decision to the parties' policies; ``"stop"`` ends training after the last epoch that fits.
    """

    epsilon: Epsilon = 8.0
    delta: Delta = 1e-5
    clip: Positive = 1.0
    noise_multiplier: (
        Annotated[float, Meta(ge=0.1, description="less noise protects nothing, and accountants cannot bound its ε")]
        | None
    ) = None
    on_budget: Literal["refuse", "stop"] = "refuse"

    def problems(self) -> list[str]:
        if self.on_budget == "stop" and self.noise_multiplier is None:
            return [
                f"{self.section_path()}.on_budget is 'stop', but noise_multiplier is not set: set it, or leave "
                "on_budget out; "
                "the noise is then sized so that all epochs fit into epsilon"
            ]
        return []

    def sigma(self, times: int) -> float:
        """Noise multiplier with which `times` releases of a row stay within the budget."""
        return self.noise_multiplier or calibrate_sigma(self.epsilon, self.delta, times)

    def affords(self, times: int) -> bool:
        """Return True if `times` releases of a row, with the noise planned for them, cost at most `epsilon`."""
        # The tolerance absorbs rounding: σ is calibrated so that the planned releases cost exactly epsilon.
        return epsilon_rdp(GaussianRelease(self.sigma(times), times), self.delta) <= self.epsilon * (1 + 1e-9)

    @property
    def strength_text(self) -> str:
        if self.noise_multiplier is None:
            return f"ε = {self.epsilon:g}"
        stop = f", up to ε = {self.epsilon:g}" if self.on_budget == "stop" else ""
        return f"σ/Δ = {self.noise_multiplier:g}{stop}"


class Gaussian(GaussianNoise):
    """Gaussian noise on each row that is released.

    On features, each passive party clips its activations and adds noise to them before the cut layer. On labels, the
    active party clips each row's ``∂loss/∂logits``, adds noise to it, and computes everything else from the result. On
    a model, this is DP-SGD. On secret shares nobody can clip a gradient, so `clip` bounds the norm of the row itself,
    over all parties' columns.
    """

    mechanism: ClassVar[str] = "gaussian"


class JointNoise(GaussianNoise):
    """Gaussian noise on the embedding z, the sealed sum that the active party opens. Each passive party adds a share of
    the noise before it sends its part, so only the sum has all of it. For features only; see `securevfl.privacy.joint`.

    Attributes:
        weight_bound: R, the largest operator norm of any passive party's block of the cut layer's weights. The noise is
            sized by R, and the active party shortens its steps so that no block exceeds it.
    """

    mechanism: ClassVar[str] = "joint"
    weight_bound: Annotated[float, Meta(gt=0, description="declare a bound on the operator norm of the cut's weights")]


class RandomisedResponse(Mechanism):
    """Draws each label once, before training; training uses the drawn labels only. For labels only.

    Attributes:
        epsilon: ε of the one draw of a person's label.
        delta: δ under which reports list that ε; the mechanism itself has δ = 0.
    """

    mechanism: ClassVar[str] = "randomised_response"
    epsilon: Annotated[float, Meta(gt=0, le=20, description="with more, labels practically never change")] = 8.0
    delta: Delta = 1e-5

    @property
    def strength_text(self) -> str:
        return f"ε = {self.epsilon:g}"

    def sigma(self, times: int) -> float:
        """Return 0: labels are drawn, not noised."""
        return 0.0

    def affords(self, times: int) -> bool:
        """Return True: the label is drawn, and paid for, only once, however often training uses it."""
        return True
