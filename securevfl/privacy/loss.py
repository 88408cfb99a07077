"""Losses, and how far a label moves their gradient: what the noise on labels is sized by.

The object that owns the loss states its sensitivity. Code that changes a loss cannot keep a sensitivity that was
derived for another one: a class that overrides `__call__` loses what it inherits, unless it states its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch.nn import functional

from securevfl.errors import InputError

__all__ = ["CrossEntropy", "Loss"]


class Loss(ABC):
    """A loss of each row. Subclass it with a `__call__`, and state `sensitivity` beside it where it is known."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        states = next(i for i, kind in enumerate(order) if "sensitivity" in vars(kind))
        computes = next(i for i, kind in enumerate(order) if "__call__" in vars(kind))
        if computes < states:
            cls.sensitivity = None  # type: ignore[assignment, method-assign]

    @abstractmethod
    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Loss of each row, (n,); a row's loss may depend on that row only.

        Args:
            logits: (n, outputs).
            targets: classes (n,) int64, or probabilities of the classes (n, classes) float.
        """

    @property
    def sensitivity(self) -> float | None:
        """How far ``∂loss/∂logits`` of a row moves at most, in L2 norm, when its label is replaced; None where nobody
        has derived it: noise is sized by twice the clipping norm then."""
        return None


class CrossEntropy(Loss):
    """Cross entropy of the softmax, or of the sigmoid of one logit for two classes.

    ``∂loss/∂logits = p − y``, so that replacing y by y' moves it by ‖y − y'‖: 1 for two classes, and √2 for more, of
    labels and of probabilities of the classes alike.

    Args:
        classes: number of classes; with two the model has one output, a logit.

    Raises:
        InputError: fewer than two classes.
    """

    def __init__(self, classes: int) -> None:
        if classes < 2:
            raise InputError(f"{classes} classes leave nothing to tell apart; 2 are the least")
        self.classes = classes

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if targets.dtype == torch.int64:
            if self.classes == 2:
                target = targets.to(logits.dtype)
                return functional.binary_cross_entropy_with_logits(logits[:, 0], target, reduction="none")
            return functional.cross_entropy(logits, targets, reduction="none")
        if self.classes == 2:
            return functional.binary_cross_entropy_with_logits(logits[:, 0], targets[:, 1], reduction="none")
        return functional.cross_entropy(logits, targets, reduction="none")

    @property
    def sensitivity(self) -> float | None:
        return 1.0 if self.classes == 2 else math.sqrt(2.0)
