"""Several labels of a row, each there or not: a sigmoid for each, and metrics over all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from securevfl.privacy.loss import EachLabel, Loss
from securevfl.training.task import Task

__all__ = ["HALF", "Labels"]

HALF = 0.5
"""A label is given from this probability on."""


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

    def targets(self, labels: torch.Tensor) -> torch.Tensor:
        return labels.float()

    def probabilities(self, logits: torch.Tensor) -> np.ndarray:
        """(n, labels) float64, each label's by itself."""
        found: np.ndarray = torch.sigmoid(logits.double()).cpu().numpy()
        return found

    def metrics(
        self, probabilities: np.ndarray, labels: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """AUC and F1 of each label, averaged (`auc`, `macro_f1`); F1 of all answers together (`micro_f1`); the share of
        answers that are right (`accuracy`, one minus the Hamming loss); the mean log-loss of an answer. Rows count by
        their weights; values are scikit-learn's.

        The AUC is left out where a label is the same in all rows.

        Raises:
            ValueError: no row, or a probability that is not finite.
        """
        from sklearn.metrics import f1_score, roc_auc_score

        if not (len(labels) and np.isfinite(probabilities).all()):
            raise ValueError(f"metrics of {len(labels)} rows: at least one is needed, and finite probabilities")
        edge = np.finfo(probabilities.dtype).eps
        given = (probabilities >= HALF).astype(np.int64)
        right = np.clip(np.where(labels == 1, probabilities, 1 - probabilities), edge, 1 - edge)
        found = {
            "accuracy": float(np.average((given == labels).mean(axis=1), weights=weight)),
            "log_loss": float(np.average(-np.log(right).mean(axis=1), weights=weight)),
        }
        for average in ("macro", "micro"):
            figure = f1_score(labels, given, average=average, sample_weight=weight, zero_division=0.0)
            found[f"{average}_f1"] = float(figure)
        if (labels.min(axis=0) < labels.max(axis=0)).all():
            found["auc"] = float(roc_auc_score(labels, probabilities, average="macro", sample_weight=weight))
        return found
