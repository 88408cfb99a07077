"""A numeric target: its scale at the active party, its loss and its metrics.

The active party scales the target by its training rows: networks train on ``(y − mean) / deviation``, or on
``y / mean`` for losses that learn the logarithm of the mean. Predictions are converted back to the target's units. No
other party learns the scale.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from securevfl.privacy.loss import Loss, NumberLoss
from securevfl.training.objectives import LossOfNumber
from securevfl.training.state import State, as_dict
from securevfl.training.task import Task

__all__ = ["Regression"]

_LOGS = ("poisson", "tweedie")
_STEEPEST = 50.0
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Regression(Task):
    """A numeric target.

    Attributes:
        classes: 1, for a numeric target.
        loss: its name.
        center: subtracted from the target, in its units; 0 for losses that learn the logarithm of the mean.
        scale: divides the difference, in the target's units; above 0.
    """

    classes: int = 1
    loss: LossOfNumber = field(default_factory=LossOfNumber)
    center: float = 0.0
    scale: float = 1.0

    @classmethod
    def fit_scale(cls, loss: LossOfNumber, y: np.ndarray, weight: np.ndarray | None = None) -> Regression:
        """Scale by these rows, or by `LossOfNumber.range` if it is set.

        Args:
            loss: of the job.
            y: the target of the training rows, (n,), in its units.
            weight: of these rows; equal unless given.
        """
        if loss.range is not None:
            low, high = loss.range
            if loss.name in _LOGS:
                return cls(loss=loss, scale=high)
            return cls(loss=loss, center=(low + high) / 2, scale=(high - low) / 2)
        if not len(y):
            return cls(loss=loss)
        mean = float(np.average(y, weights=weight))
        if loss.name in _LOGS:
            return cls(loss=loss, scale=mean if mean > 0 else 1.0)
        spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
        return cls(loss=loss, center=mean, scale=spread if spread > 0 else 1.0)

    def clipped_at(self, bound: float) -> Regression:
        """The same target by the Huber loss, scaled so that δ is `bound`, for training on shares.

        Args:
            bound: δ of the protocol that clips errors.
        """
        return replace(self, scale=self.scale * self.loss.delta / bound, loss=replace(self.loss, delta=bound))

    @property
    def is_numeric(self) -> bool:
        return True

    @property
    def outputs(self) -> int:
        return 1

    @property
    def score_name(self) -> str:
        return "r2"

    def build_loss(self) -> Loss:
        return NumberLoss(self.loss.name, delta=self.loss.delta, power=self.loss.power, span=self._clip_span)

    @property
    def _clip_span(self) -> float | None:
        if self.loss.range is None:
            return None
        return 1.0 if self.loss.name in _LOGS else 2.0

    def drop_unknown(self, labels: np.ndarray) -> np.ndarray:
        found: np.ndarray = labels[np.isfinite(labels)]
        return found

    def make_targets(self, labels: torch.Tensor) -> torch.Tensor:
        if self.loss.range is not None:
            low, high = self.loss.range
            labels = labels.clamp(0.0 if self.loss.name in _LOGS else low, high)
        return ((labels - self.center) / self.scale).float()

    def compute_probabilities(self, logits: torch.Tensor) -> np.ndarray:
        """Predictions in the target's units, (n, 1) float64."""
        wide = logits.double()
        if self.loss.name in _LOGS:
            wide = wide.clamp(-_STEEPEST, _STEEPEST).exp()
        found: np.ndarray = (wide * self.scale + self.center).cpu().numpy()
        return found

    def compute_metrics(
        self, probabilities: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """Root mean squared error, mean absolute error, R², and for losses other than the squared one their mean:
        ``huber`` (in squared units of the target) or ``deviance`` (of Poisson and Tweedie, as in scikit-learn).

        R² is left out if all rows have the same target.

        Raises:
            ValueError: no row, or a prediction that is not finite.
        """
        if not (len(labels) and np.isfinite(probabilities).all()):
            raise ValueError(f"metrics of {len(labels)} rows: need at least one row and finite predictions")
        predicted = probabilities[:, 0]
        error = predicted - labels
        squares = float(np.average(error**2, weights=weight))
        found = {"rmse": squares**0.5, "mae": float(np.average(np.abs(error), weights=weight))}
        around = labels - np.average(labels, weights=weight)
        spread = float(np.average(around**2, weights=weight))
        if spread > 0:
            found["r2"] = 1 - squares / spread
        return found | self._own_measure(predicted, labels, weight)

    def _own_measure(self, predicted: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> dict[str, float]:
        if self.loss.name == "squared":
            return {}
        if self.loss.name == "huber":
            delta = self.loss.delta * self.scale
            r = np.abs(predicted - y)
            each = np.where(r <= delta, r**2 / 2, delta * (r - delta / 2))
            return {"huber": float(np.average(each, weights=weight))}
        mean = np.maximum(predicted, _TINY)
        if self.loss.name == "poisson":
            logs = np.where(y > 0, y * np.log(np.maximum(y, _TINY) / mean), 0.0)
            each = 2 * (logs - y + mean)
        else:
            p = self.loss.power
            each = 2 * (y ** (2 - p) / ((1 - p) * (2 - p)) - y * mean ** (1 - p) / (1 - p) + mean ** (2 - p) / (2 - p))
        return {"deviance": float(np.average(each, weights=weight))}

    def selection_score(self, metrics: dict[str, float]) -> float:
        """Minus the loss."""
        return -next(metrics[name] for name in ("deviance", "huber", "rmse") if name in metrics)

    @property
    def loss_name(self) -> str:
        return {"squared": "rmse", "huber": "huber"}.get(self.loss.name, "deviance")

    def get_state(self) -> State:
        return {"center": self.center, "scale": self.scale}

    def with_state(self, state: object) -> Regression:
        if state is None:
            raise TypeError("this model of a numeric target lacks the target's scale")
        kept = as_dict(state)
        return Regression(loss=self.loss, center=float(str(kept["center"])), scale=float(str(kept["scale"])))
