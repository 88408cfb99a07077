"""A target of several labels, each present or absent: one sigmoid for each label, and metrics over all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from securevfl.privacy.loss import EachLabel, Loss
from securevfl.training.metrics import measure_labels, roc_curve
from securevfl.training.task import Task

__all__ = ["HALF", "Labels"]

HALF = 0.5
"""A label is predicted if its probability is at least this."""


@dataclass(frozen=True, slots=True)
class Labels(Task):
    """Several labels of a row.

    Attributes:
        classes: how many.
    """

    @property
    def is_multilabel(self) -> bool:
        return True

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def score_name(self) -> str:
        return "auc"

    def build_loss(self) -> Loss:
        return EachLabel(self.classes)

    def drop_unknown(self, labels: np.ndarray) -> np.ndarray:
        found: np.ndarray = labels[(labels >= 0).all(axis=1)]
        return found

    def make_targets(self, labels: torch.Tensor) -> torch.Tensor:
        return labels.float()

    def compute_probabilities(self, logits: torch.Tensor) -> np.ndarray:
        """(n, labels) float64, one independent probability for each label."""
        found: np.ndarray = torch.sigmoid(logits.double()).cpu().numpy()
        return found

    def compute_metrics(
        self, probabilities: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """AUC and F1 of each label, averaged (`auc`, `macro_f1`); F1 over all pairs of row and label (`micro_f1`); the
        share of correct pairs (`accuracy`, one minus the Hamming loss); the mean log-loss of a pair. Rows count by
        their weights; values are scikit-learn's.

        The AUC is left out if a label is the same in all rows.

        Raises:
            ValueError: no row, or a probability that is not finite.
        """
        if not (len(labels) and np.isfinite(probabilities).all()):
            raise ValueError(f"metrics of {len(labels)} rows: need at least one row and finite probabilities")
        edge = np.finfo(probabilities.dtype).eps
        given = (probabilities >= HALF).astype(np.int64)
        right = np.clip(np.where(labels == 1, probabilities, 1 - probabilities), edge, 1 - edge)
        found = {
            "accuracy": float(np.average((given == labels).mean(axis=1), weights=weight)),
            "log_loss": float(np.average(-np.log(right).mean(axis=1), weights=weight)),
        }
        figures = measure_labels(labels, given, weight)
        found |= {name: figures[name] for name in ("macro_f1", "micro_f1")}
        curves = [roc_curve(labels[:, k] == 1, probabilities[:, k], weight) for k in range(labels.shape[1])]
        if all(curve is not None for curve in curves):
            found["auc"] = float(np.average([curve.auc for curve in curves if curve is not None]))
        return found
