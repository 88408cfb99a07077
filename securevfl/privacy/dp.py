"""`DP`: which mechanism protects features, labels, or the model of a party that trains alone."""

from __future__ import annotations

from securevfl.config import Config
from securevfl.privacy.mechanisms import Gaussian, GaussianNoise, JointNoise, RandomisedResponse
from securevfl.privacy.severity import with_planned_epsilon

__all__ = ["DP"]


class DP(Config):
    """Differential privacy settings of a job: a mechanism and a budget for features, for labels, or for a model.

    ```python
    DP(features=Gaussian(epsilon=8.0), labels=RandomisedResponse(epsilon=1.0))
    ```

    Noise on labels goes into the gradients at the logits, where labels enter: ``∂loss/∂logits`` of each row is clipped
    and noised, and everything after it (the gradient at the cut, the top model itself) is computed from the result.
    Noise at the cut alone would not be enough: a top model trained on exact labels carries them into the gradients of
    other rows.

    Attributes:
        features: of each passive party, protected from the active party: `Gaussian` on its activations, or `JointNoise`
            on z, their sum, inside the ciphertext.
        labels: protected from the passive parties: `Gaussian` on the gradients at the logits, or `RandomisedResponse`
            (labels are drawn once).
        model: protected by DP-SGD from anyone who receives the model or its predictions. For a party that trains alone,
            or, on shares, for a model of one layer that no party has; see `securevfl.shares.dp_steps`. No other noise
            then.

    Raises:
        InputError: nothing is protected, or `model` is combined with something else.
    """

    features: Gaussian | JointNoise | None = None
    labels: Gaussian | RandomisedResponse | None = None
    model: Gaussian | None = None

    def problems(self) -> list[str]:
        if self.features is None and self.labels is None and self.model is None:
            return [
                "dp protects nothing: give features=sv.Gaussian(epsilon=8), labels=sv.Gaussian(epsilon=8) or both (or "
                "model=… for a party that trains alone, or on shares), or leave dp out"
            ]
        if self.model is not None and (self.features is not None or self.labels is not None):
            return [
                "dp.model is for a party that trains alone, or for shares, and releases nothing else: leave features "
                "and labels out"
            ]
        return []

    def with_planned_epsilon(self, *, features: int | None, labels: int | None) -> DP:
        """Return these settings with each noise multiplier replaced by the ε that the plan spends, for code that
        reports what that permits; see `severity.with_planned_epsilon`.

        Args:
            features: most releases of one row's features, None where that depends on the rows.
            labels: most releases of the gradient of one label, likewise; training a model uses a row as often.
        """
        noised = {name: getattr(self, name) for name in ("features", "labels", "model")}
        looks = {"features": features, "labels": labels, "model": labels}
        return self.replace(
            **{name: with_planned_epsilon(m, looks[name]) for name, m in noised.items() if isinstance(m, GaussianNoise)}
        )

    def stops_on_budget(self) -> bool:
        """Return True if some mechanism ends training when its budget is spent."""
        every = (self.features, self.labels, self.model)
        return any(isinstance(m, GaussianNoise) and m.on_budget == "stop" for m in every)

    def affords(self, *, features: int | None, labels: int | None) -> bool:
        """Return True if the mechanisms that end training with their budget allow this many releases of a row; see
        `with_planned_epsilon`.
        """
        pairs = ((self.features, features), (self.labels, labels), (self.model, labels))
        stopping = [(m, n) for m, n in pairs if isinstance(m, GaussianNoise) and m.on_budget == "stop"]
        return all(looks is not None and mechanism.affords(looks) for mechanism, looks in stopping)

    @property
    def activation_noise(self) -> Gaussian | None:
        """The noise on each passive party's activations."""
        return self.features if isinstance(self.features, Gaussian) else None

    @property
    def joint_noise(self) -> JointNoise | None:
        """The noise on z."""
        return self.features if isinstance(self.features, JointNoise) else None

    @property
    def gradient_noise(self) -> Gaussian | None:
        """The noise on the gradients at the logits."""
        return self.labels if isinstance(self.labels, Gaussian) else None

    @property
    def label_draw(self) -> RandomisedResponse | None:
        """The draw of the labels."""
        return self.labels if isinstance(self.labels, RandomisedResponse) else None

    @property
    def title(self) -> str:
        """For titles: ``DP on features + labels, ε = 8``."""
        return self.title_for("the local model")

    def title_for(self, model: str) -> str:
        """`title`.

        Args:
            model: what `model` is about.
        """
        parts = [
            ("features at z" if self.joint_noise else "features", self.features),
            ("randomised labels" if self.label_draw else "labels", self.labels),
            (model, self.model),
        ]
        noisy = [(what, mechanism.strength_text) for what, mechanism in parts if mechanism is not None]
        if len({size for _, size in noisy}) == 1:
            return f"DP on {' + '.join(what for what, _ in noisy)}, {noisy[0][1]}"
        return "DP on " + " + ".join(f"{what} ({size})" for what, size in noisy)
