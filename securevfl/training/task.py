"""The task that a job learns: targets, probabilities and metrics of a classification with two or more classes.

A numeric target is a `securevfl.training.regression.Regression`, several labels of a row are
`securevfl.training.multilabel.Labels`; both have the same methods. `securevfl.privacy.loss` has the loss and its
sensitivity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from securevfl.privacy.loss import CrossEntropy, Loss
from securevfl.training.metrics import roc_curve
from securevfl.training.state import State

__all__ = ["Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """A classification.

    Attributes:
        classes: number of classes; with two the model has one output, a logit.
    """

    classes: int

    @property
    def is_numeric(self) -> bool:
        """Whether the target is a number."""
        return False

    @property
    def is_multilabel(self) -> bool:
        """Whether a row can have several labels."""
        return False

    @property
    def outputs(self) -> int:
        """Width of the top model's output: 1 for two classes and for a number."""
        return 1 if self.classes <= 2 else self.classes

    @property
    def score_name(self) -> str:
        """The metric by which runs are compared; larger is better."""
        return "auc" if self.classes == 2 else "accuracy"

    @property
    def loss_name(self) -> str:
        """The metric that is the loss; smaller is better."""
        return "log_loss"

    def selection_score(self, metrics: dict[str, float]) -> float:
        """The figure that chooses the best epoch, from metrics of the validation rows; larger is better: the AUC of two
        classes, else the log-loss with its sign turned. Accuracy moves in steps of a row and stops early."""
        return metrics["auc"] if self.classes == 2 and "auc" in metrics else -metrics["log_loss"]

    def build_loss(self) -> Loss:
        """The loss of each row that training minimises."""
        return CrossEntropy(self.classes)

    def drop_unknown(self, labels: np.ndarray) -> np.ndarray:
        """Labels without those that the active party does not know."""
        return labels[labels >= 0]

    def make_targets(self, labels: torch.Tensor) -> torch.Tensor:
        """The targets of the loss for these labels."""
        return labels

    def get_state(self) -> State:
        """Its values fitted in training, which a prediction needs."""
        return {}

    def with_state(self, state: object) -> Task:
        """This task with fitted values restored."""
        return self

    def one_hot(self, labels: torch.Tensor) -> torch.Tensor:
        """(n, classes) float32 of classes (n,)."""
        return functional.one_hot(labels, self.classes).float()

    def compute_probabilities(self, logits: torch.Tensor) -> np.ndarray:
        """(n, classes) float64, rows sum to one."""
        wide = logits.double()
        if self.classes == 2:
            positive = torch.sigmoid(wide[:, 0])
            return torch.stack([1 - positive, positive], dim=1).cpu().numpy()
        return torch.softmax(wide, dim=1).cpu().numpy()

    def compute_metrics(
        self, probabilities: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """AUC (one against the rest, averaged, for more than two classes), accuracy, log-loss; KS for two classes; rows
        count by their weights.

        A metric that the rows do not define (AUC of a single class) is left out. The values equal those of
        scikit-learn's functions of these names, to the last bit.

        Raises:
            ValueError: no row, or a probability that is not finite.
        """
        if not (len(labels) and np.isfinite(probabilities).all()):
            raise ValueError(f"metrics of {len(labels)} rows: need at least one row and finite probabilities")
        edge = np.finfo(probabilities.dtype).eps  # keeps the log-loss of a zero probability finite
        right = np.clip(probabilities[np.arange(len(labels)), labels], edge, 1 - edge)
        found = {
            "accuracy": float(np.average(probabilities.argmax(axis=1) == labels, weights=weight)),
            "log_loss": float(np.average(-np.log(right), weights=weight)),
        }
        present = len(np.unique(labels))
        if self.classes == 2:
            curve = roc_curve(labels == 1, probabilities[:, 1], weight)
            if curve is not None:
                found |= {"auc": curve.auc, "ks": curve.ks}
        elif present == self.classes:
            curves = [roc_curve(labels == one, probabilities[:, one], weight) for one in range(self.classes)]
            found["auc"] = float(np.average([curve.auc for curve in curves if curve is not None]))
        return found
