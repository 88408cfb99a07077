"""The active party's role: it owns the labels, chooses the loss, and scores rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from securevfl.errors import InputError
from securevfl.privacy.loss import Loss
from securevfl.training.multilabel import Labels
from securevfl.training.noise import LabelNoise
from securevfl.training.regression import Regression
from securevfl.training.role import Role
from securevfl.training.setting import Configuration, Setting
from securevfl.training.state import State
from securevfl.training.task import Task
from securevfl.transport import to_device

__all__ = ["ActiveRole"]


class ActiveRole(Role):
    """The active party's part: it owns the labels.

    Attributes:
        y: labels to train on. Classes of the numbered rows, int64, -1 where unknown; for a numeric target float64, NaN
            where unknown; for several labels (rows, labels). Under randomised response these are the drawn labels.
        task: what is learned.
        loss: what training minimises, with the sensitivity that noise is sized by.
        label_noise: how labels are protected.

    Raises:
        ValueError: a table without labels.
    """

    def __init__(self, config: Configuration, setting: Setting) -> None:
        super().__init__(config, setting)
        if setting.table.y is None:
            raise ValueError("the active party's table has no labels")
        self.y = setting.table.y.to(setting.plan.device)
        self.task = self._build_task()
        self.loss: Loss
        self.label_noise: LabelNoise
        if self.task.is_numeric:
            self.books.model_facts["target"] = self._target_state

    def plan_and_build(self) -> None:
        self.loss = self.build_loss()
        self.label_noise = LabelNoise(self)
        self.y = self.label_noise.drawn_labels(self.y)
        super().plan_and_build()

    async def begin_from(self, part: Mapping[str, Any]) -> None:
        """See `Role.begin_from`; a number keeps the scale that the weights were trained in."""
        await super().begin_from(part)
        self.task = self.task.with_state(part.get("target"))

    def _target_state(self) -> State:
        """How numbers were scaled, for predictions."""
        return self.task.get_state()

    def _build_task(self) -> Task:
        """The task: classes, several labels, or a number, scaled by the training rows."""
        number, table = self.plan.number, self.table
        if number is None:
            return Labels(table.classes) if self.plan.several else Task(table.classes)
        train = torch.from_numpy(table.split.train)
        weight = None if table.weight is None else table.weight[train].numpy()
        return Regression.fit_scale(number, self.y.cpu()[train].numpy(), weight)

    @property
    def has_loss(self) -> bool:
        """Whether this party learns the loss of a batch that trains; otherwise it is not a number."""
        return True

    def weight_losses(self, losses: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """Losses of numbered rows, (n,), each times how much its row counts.

        Raises:
            InputError: these are not one loss for each row.
        """
        # A loss that averages its batch would train too, with steps that are smaller by the number of rows.
        if losses.shape != (len(rows),):
            raise InputError(
                f"the loss of a batch of {len(rows)} rows has shape {tuple(losses.shape)}; ({len(rows)},) was "
                "expected: the loss that build_loss() returns must give one value for each row and not average them"
            )
        counts = self.table.counts
        return losses if counts is None else losses * to_device(counts[torch.from_numpy(rows)].numpy(), losses.device)

    def build_loss(self) -> Loss:
        """The loss of each row. Noise for one that states no sensitivity is sized by Δ = 2·clip."""
        return self.task.build_loss()

    def labels(self, rows: np.ndarray) -> torch.Tensor:
        """Labels of numbered rows, as in `y`."""
        return self.y.index_select(0, to_device(rows, self.y.device))

    @abstractmethod
    async def train_batch(self, rows: np.ndarray) -> float | torch.Tensor:
        """Train on these rows and return the sum of their losses, which the device may still be computing."""

    @abstractmethod
    async def score(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of these rows, (n, outputs)."""

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits of these rows from the active party's own columns, (n, outputs), without any message.

        Args:
            rows: numbers of rows that the active party has.

        Raises:
            InputError: the algorithm cannot.
        """
        raise InputError(
            "the trained model cannot score rows by the active party's columns alone: predict common rows, or train an "
            "algorithm whose `subsets` is 'alone' or 'any'"
        )
