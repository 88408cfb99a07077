"""Losses with their sensitivity: how far replacing a label moves the gradient, which sizes the noise on labels.

Each loss class defines its sensitivity next to its formula. A subclass that overrides `__call__` does not inherit
`sensitivity`, because the bound was derived for another formula; it must define it again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch.nn import functional

from securevfl.errors import InputError

__all__ = ["CURVATURE", "CrossEntropy", "EachLabel", "Loss", "NumberLoss"]

CURVATURE = 0.25
"""Losses of numbers are multiplied by this, the largest curvature of the logistic loss, so that one SGD learning rate
at the cut suits both.
"""

_STEEPEST = 50.0
"""Exponents are clamped here; training has diverged long before."""


class Loss(ABC):
    """A loss per row. Subclasses define `__call__` and, if it is known, `sensitivity`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        states = next(i for i, kind in enumerate(order) if "sensitivity" in vars(kind))
        computes = next(i for i, kind in enumerate(order) if "__call__" in vars(kind))
        # A sensitivity inherited past an overridden formula would size the noise for another loss.
        if computes < states:
            cls.sensitivity = None  # type: ignore[assignment, method-assign]

    @abstractmethod
    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Loss of each row, (n,); a row's loss may depend on that row only.

        Args:
            logits: (n, outputs).
            targets: classes (n,) int64, or probabilities of the classes (n, classes) float.
        """

    def accepts_targets(self, targets: torch.Tensor) -> bool:
        """Return True if `sensitivity` is valid for these targets: classes, or probabilities of them."""
        return not targets.is_floating_point() or _are_probabilities(targets)

    @property
    def sensitivity(self) -> float | None:
        """How far ``∂loss/∂logits`` of a row moves at most, in L2 norm, when its label is replaced. None if no bound is
        derived: noise is then sized by twice the clipping norm.
        """
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
            raise InputError(f"{classes} classes leave nothing to distinguish; give at least 2")
        self.classes = classes

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if targets.dtype == torch.int64:
            if self.classes == 2:
                target = targets.to(logits.dtype)
                return functional.binary_cross_entropy_with_logits(logits.squeeze(1), target, reduction="none")
            return functional.cross_entropy(logits, targets, reduction="none")
        if targets.shape != (len(logits), self.classes):
            raise InputError(
                f"targets of a batch of {len(logits)} rows are {type(targets).__name__} of {targets.dtype} with shape "
                f"{tuple(targets.shape)}; expected a Tensor: classes, torch.int64 with shape ({len(logits)},), or "
                f"probabilities of the classes, floats with shape ({len(logits)}, {self.classes})"
            )
        if self.classes == 2:
            return functional.binary_cross_entropy_with_logits(logits.squeeze(1), targets[:, 1], reduction="none")
        return functional.cross_entropy(logits, targets, reduction="none")

    @property
    def sensitivity(self) -> float | None:
        return 1.0 if self.classes == 2 else math.sqrt(2.0)


class EachLabel(Loss):
    """Cross entropy of the sigmoid of each label's logit, added up over the labels of a row.

    ``∂loss/∂logits = p − y``, for each label separately, so that replacing all labels of a row moves it by ‖y − y'‖, at
    most the square root of their number.

    Args:
        labels: how many.
    """

    def __init__(self, labels: int) -> None:
        self.labels = labels

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        each = functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
        return each.sum(dim=1)

    def accepts_targets(self, targets: torch.Tensor) -> bool:
        return bool(((targets >= 0) & (targets <= 1)).all())

    @property
    def sensitivity(self) -> float | None:
        return math.sqrt(self.labels)


class NumberLoss(Loss):
    """A loss of a scaled number, times `CURVATURE`; see `securevfl.training.objectives`, the same losses in numpy.

    ``∂loss/∂f`` of two targets whose difference is ``span`` at most differs by `CURVATURE` times: ``span`` (squared,
    Poisson: the gradient is f − y, e^f − y), the smaller of ``span`` and 2δ (Huber). Tweedie's has a factor
    e^((1−p) f), which nothing bounds.

    Args:
        name: ``"squared"``, ``"huber"``, ``"poisson"`` or ``"tweedie"``.
        delta: δ of Huber.
        power: p of Tweedie.
        span: the largest difference of two targets, where targets are clipped to a range; None where they are not.
    """

    def __init__(self, name: str, *, delta: float = 1.0, power: float = 1.5, span: float | None = None) -> None:
        self.name, self.delta, self.power, self.span = name, delta, power, span

    def __call__(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        f, y = logits.squeeze(1), targets.to(logits.dtype)
        if self.name == "squared":
            return CURVATURE * (f - y) ** 2 / 2
        if self.name == "huber":
            return CURVATURE * functional.huber_loss(f, y, reduction="none", delta=self.delta)
        if self.name == "poisson":
            return CURVATURE * (_capped_exp(f) - y * f)
        p = self.power
        return CURVATURE * (_capped_exp((2 - p) * f) / (2 - p) - y * _capped_exp((1 - p) * f) / (1 - p))

    def accepts_targets(self, targets: torch.Tensor) -> bool:
        return self.span is None or bool((targets.max() - targets.min()) <= self.span * (1 + 1e-6))

    @property
    def sensitivity(self) -> float | None:
        bounds = {"huber": 2 * self.delta}
        if self.span is not None and self.name != "tweedie":
            bounds[self.name] = min(self.span, bounds.get(self.name, self.span))
        bound = bounds.get(self.name)
        return None if bound is None else CURVATURE * bound


def _capped_exp(f: torch.Tensor) -> torch.Tensor:
    return f.clamp(max=_STEEPEST).exp()


def _are_probabilities(targets: torch.Tensor) -> bool:
    sums = targets.sum(dim=-1)
    return bool((targets >= 0).all()) and bool(((sums - 1).abs() < 1e-4).all())
