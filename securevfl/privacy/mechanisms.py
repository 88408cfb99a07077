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
    """A mechanism; its tag in job files is ``mechanism``."""

    tag_field: ClassVar[str] = "mechanism"
    mechanism: ClassVar[str]

    @property
    def size(self) -> str:
        """The strength, for titles: ``ε = 8``."""
        return ""


class GaussianNoise(Mechanism):
    """A mechanism with Gaussian noise: a budget (ε, δ) for one row over the whole training, a clipping norm, and the
    noise that follows from them.

    Attributes:
        epsilon: budget of one row.
        delta: probability with which ε may be exceeded; well below one over the number of rows.
        clip: C, largest L2 norm of what is released of one row; longer rows are scaled down.
        noise_multiplier: σ, the standard deviation of the noise over the sensitivity, instead of deriving it from
            `epsilon`.
        on_budget: with a `noise_multiplier`: ``"refuse"`` leaves the decision to the parties' policies; ``"stop"`` ends
            training with the last epoch that `epsilon` allows.
    """

    epsilon: Epsilon = 8.0
    delta: Delta = 1e-5
    clip: Positive = 1.0
    noise_multiplier: (
        Annotated[float, Meta(ge=0.1, description="less noise protects nothing, and accountants cannot count it")]
        | None
    ) = None
    on_budget: Literal["refuse", "stop"] = "refuse"

    def problems(self) -> list[str]:
        if self.on_budget == "stop" and self.noise_multiplier is None:
            return [
                f"{self.section_path()}.on_budget is 'stop' and there is no noise_multiplier: set it, or leave "
                "on_budget out, for without one the noise is sized so that all epochs fit into epsilon"
            ]
        return []

    def sigma(self, times: int) -> float:
        """Noise multiplier with which `times` releases of a row stay within the budget."""
        return self.noise_multiplier or calibrate_sigma(self.epsilon, self.delta, times)

    def affords(self, times: int) -> bool:
        """Return True if `times` releases of a row, with the noise planned for them, cost at most `epsilon`."""
        return epsilon_rdp(GaussianRelease(self.sigma(times), times), self.delta) <= self.epsilon * (1 + 1e-9)

    @property
    def size(self) -> str:
        if self.noise_multiplier is None:
            return f"ε = {self.epsilon:g}"
        stop = f", up to ε = {self.epsilon:g}" if self.on_budget == "stop" else ""
        return f"σ/Δ = {self.noise_multiplier:g}{stop}"


class Gaussian(GaussianNoise):
    """Gaussian noise on each row that is released.

    For features, a passive party's activations are clipped and noised before the cut. For labels, ``∂loss/∂logits`` of
    each row is clipped and noised, where labels enter, and everything after it is computed from the result. For a model
    it is DP-SGD; on shares, where nobody can clip a gradient, `clip` is the largest norm of a row itself, over all
    parties.
    """

    mechanism: ClassVar[str] = "gaussian"


class JointNoise(GaussianNoise):
    """Gaussian noise on z inside the ciphertext: each passive party adds its share, and only the sum carries all of it.
    For features only; see `joint`.

    Attributes:
        weight_bound: R, the largest operator norm of any passive party's block of the cut's weights; it sizes the
            noise, and the active party shortens its steps so that the weights stay below it.
    """

    mechanism: ClassVar[str] = "joint"
    weight_bound: Annotated[float, Meta(gt=0, description="declare a bound on the operator norm of the cut's weights")]


class RandomisedResponse(Mechanism):
    """Draws each label once, before training; training uses the drawn labels only. For labels only.

    Attributes:
        epsilon: of one person's label, once.
        delta: δ it is reported with; the mechanism has δ = 0.
    """

    mechanism: ClassVar[str] = "randomised_response"
    epsilon: Annotated[float, Meta(gt=0, le=20, description="with more, labels practically never change")] = 8.0
    delta: Delta = 1e-5

    @property
    def size(self) -> str:
        return f"ε = {self.epsilon:g}"

    def sigma(self, times: int) -> float:
        """Return 0: labels are drawn, not noised."""
        return 0.0

    def affords(self, times: int) -> bool:
        """Return True: the draw happens and costs once, however often the label is used."""
        return True
