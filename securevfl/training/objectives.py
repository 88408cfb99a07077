"""Losses by name with their first and second derivatives, in numpy: trees are grown on them, networks tested by them.

A model outputs a raw score f; a link function turns it into a number or probabilities. Losses of one row:

============  ==================================================  =========================
name          loss                                                prediction
============  ==================================================  =========================
``squared``   ½ (f − y)²                                          f
``huber``     ½ r² where |r| ≤ δ, else δ (|r| − ½ δ); r = f − y    f
``poisson``   e^f − y f                                           e^f
``tweedie``   e^((2−p) f) / (2−p) − y e^((1−p) f) / (1−p)          e^f
``logistic``  log(1 + e^f) − y f                                  (1 − σ(f), σ(f))
``softmax``   log Σ_k e^(f_k) − f_y                               softmax(f)
============  ==================================================  =========================

Huber 1964; Poisson and Tweedie: Jørgensen, The Theory of Dispersion Models, 1997, chapter 4, up to terms that do not
depend on f. Callers multiply the loss and both derivatives by the row's
weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from securevfl.errors import InputError, UnknownNameError

__all__ = ["NUMBER_LOSSES", "LossOfNumber", "Objective", "check_numbers_fit", "find_objective"]

NUMBER_LOSSES = ("squared", "huber", "poisson", "tweedie")
"""Losses of a numeric target."""

_POSITIVE = ("poisson", "tweedie")
_STEEPEST = 50.0
"""Exponents are clipped here: e^50 exceeds any amount, and its square is still finite in float64."""


@dataclass(frozen=True, slots=True)
class LossOfNumber:
    """The loss of a numeric target and its parameters; all parties of a job have the same.

    Attributes:
        name: one of `NUMBER_LOSSES`.
        delta: δ of `huber`, in standard deviations of the target.
        power: p of `tweedie`.
        range: the lowest and the highest target, in its units; None if the active party scales by its training rows.
            Noise on labels needs it.
    """

    name: str = "squared"
    delta: float = 1.0
    power: float = 1.5
    range: tuple[float, float] | None = None


class Objective(ABC):
    """One loss.

    Attributes:
        name: as in job files.
        outputs: width of a raw score.
        counts_rows: whether a row's second derivative is 1, or not far from it.
    """

    name: ClassVar[str]
    outputs: int = 1
    counts_rows: ClassVar[bool] = False

    @abstractmethod
    def initial_score(self, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """The constant raw score with the least loss on rows, (outputs,) float64.

        Args:
            y: targets (n,): numbers, or classes from 0.
            weight: of the rows, (n,); equal unless given.
        """

    @abstractmethod
    def compute_losses(self, raw: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Loss of each row, (n,), of raw scores (n, outputs)."""

    @abstractmethod
    def compute_derivatives(self, raw: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivative of each row's loss by its raw scores, (n, outputs) each; for several outputs, the
        second is the diagonal of the Hessian."""

    @abstractmethod
    def to_predictions(self, raw: np.ndarray) -> np.ndarray:
        """Numbers (n, 1), or probabilities of the classes (n, classes)."""


def find_objective(name: str, *, classes: int = 0, delta: float = 1.0, power: float = 1.5) -> Objective:
    """Build the loss of this name.

    Args:
        name: one of the table above.
        classes: of `softmax`.
        delta: δ of `huber`, in units of the target.
        power: p of `tweedie`, between 1 and 2.

    Raises:
        UnknownNameError: no such loss.
        InputError: a parameter out of range.
    """
    if name == "squared":
        return _Squared()
    if name == "huber":
        return _Huber(delta)
    if name == "poisson":
        return _Poisson()
    if name == "tweedie":
        return _Tweedie(power)
    if name == "logistic":
        return _Logistic()
    if name == "softmax":
        return _Softmax(classes)
    raise UnknownNameError("loss", name, (*NUMBER_LOSSES, "logistic", "softmax"))


def check_numbers_fit(name: str, y: np.ndarray, where: str) -> None:
    """Refuse targets that a loss is not defined for, or that leave nothing to learn.

    Args:
        name: of the loss.
        y: targets (n,), finite.
        where: the owner of the targets, for the message.

    Raises:
        InputError: a negative amount, or none above zero, with a loss that learns the logarithm of the mean; or targets
            that are all the same.
    """
    if not len(y):
        return
    if name in _POSITIVE and y.min() < 0:
        raise InputError(
            f"{where}: the target goes down to {y.min():.6g}, and the loss {name!r} is for counts and amounts from 0 "
            "up: use loss 'squared' or 'huber', or correct the table"
        )
    if y.min() == y.max():
        raise InputError(
            f"{where}: all {len(y):,} rows have the target {y[0]:.6g}, so there is nothing to learn: find "
            "more common rows, or name another column"
        )


def _weighted_mean(y: np.ndarray, weight: np.ndarray | None) -> float:
    return float(np.average(y, weights=weight))


def _capped_exp(raw: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.exp(np.minimum(raw, _STEEPEST))
    return found


class _Squared(Objective):
    name: ClassVar[str] = "squared"
    counts_rows: ClassVar[bool] = True

    def initial_score(self, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        return np.array([_weighted_mean(y, weight)])

    def compute_losses(self, raw: np.ndarray, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = (raw[:, 0] - y) ** 2 / 2
        return found

    def compute_derivatives(self, raw: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return raw - y[:, None], np.ones_like(raw)

    def to_predictions(self, raw: np.ndarray) -> np.ndarray:
        return raw


class _Huber(_Squared):
    """Uses min(1, δ/|r|) as second derivative, that of the parabola that touches the loss from above. The true one is
    zero for |r| > δ, and a Newton step by it would be infinite."""

    name: ClassVar[str] = "huber"

    def __init__(self, delta: float) -> None:
        if not 0 < delta < np.inf:
            raise InputError(f"delta is {delta}; a positive number was expected")
        self.delta = delta

    def initial_score(self, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        low, high = float(y.min()), float(y.max())
        each = np.ones(len(y)) if weight is None else weight
        for _ in range(100):  # bisection: the sum of the gradients grows with f
            middle = (low + high) / 2
            total = float((each * np.clip(middle - y, -self.delta, self.delta)).sum())
            low, high = (low, middle) if total > 0 else (middle, high)
        return np.array([(low + high) / 2])

    def compute_losses(self, raw: np.ndarray, y: np.ndarray) -> np.ndarray:
        r = np.abs(raw[:, 0] - y)
        found: np.ndarray = np.where(r <= self.delta, r**2 / 2, self.delta * (r - self.delta / 2))
        return found

    def compute_derivatives(self, raw: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r = raw - y[:, None]
        return np.clip(r, -self.delta, self.delta), self.delta / np.maximum(np.abs(r), self.delta)


class _Poisson(Objective):
    name: ClassVar[str] = "poisson"

    def initial_score(self, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        return np.log([max(_weighted_mean(y, weight), np.finfo(float).tiny)])

    def compute_losses(self, raw: np.ndarray, y: np.ndarray) -> np.ndarray:
        f = raw[:, 0]
        found: np.ndarray = _capped_exp(f) - y * f
        return found

    def compute_derivatives(self, raw: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = _capped_exp(raw)
        return mean - y[:, None], mean

    def to_predictions(self, raw: np.ndarray) -> np.ndarray:
        return _capped_exp(raw)


class _Tweedie(_Poisson):
    name: ClassVar[str] = "tweedie"

    def __init__(self, power: float) -> None:
        if not 1 < power < 2:
            raise InputError(
                f"power is {power}; Tweedie's lies between 1 and 2 (at 1: loss 'poisson'; at 2 no amount may be 0)"
            )
        self.power = power

    def compute_losses(self, raw: np.ndarray, y: np.ndarray) -> np.ndarray:
        f, p = raw[:, 0], self.power
        found: np.ndarray = _capped_exp((2 - p) * f) / (2 - p) - y * _capped_exp((1 - p) * f) / (1 - p)
        return found

    def compute_derivatives(self, raw: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = self.power
        up, down = _capped_exp((2 - p) * raw), y[:, None] * _capped_exp((1 - p) * raw)
        return up - down, (2 - p) * up + (p - 1) * down


class _Logistic(Objective):
    name: ClassVar[str] = "logistic"

    def initial_score(self, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        tiny = np.finfo(float).eps
        share = min(max(_weighted_mean(y, weight), tiny), 1 - tiny)
        return np.log([share / (1 - share)])

    def compute_losses(self, raw: np.ndarray, y: np.ndarray) -> np.ndarray:
        f = raw[:, 0]
        found: np.ndarray = np.logaddexp(0, f) - y * f
        return found

    def compute_derivatives(self, raw: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = _sigmoid(raw)
        return p - y[:, None], p * (1 - p)

    def to_predictions(self, raw: np.ndarray) -> np.ndarray:
        p = _sigmoid(raw)
        return np.concatenate([1 - p, p], axis=1)


class _Softmax(Objective):
    name: ClassVar[str] = "softmax"

    def __init__(self, classes: int) -> None:
        if classes < 2:
            raise InputError(f"{classes} classes leave nothing to learn; give 2 or more")
        self.outputs = classes

    def initial_score(self, y: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        shares = np.bincount(y, weights=weight, minlength=self.outputs)
        logs: np.ndarray = np.log(np.maximum(shares / shares.sum(), np.finfo(float).eps))
        return logs

    def compute_losses(self, raw: np.ndarray, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.logaddexp.reduce(raw, axis=1) - raw[np.arange(len(y)), y]
        return found

    def compute_derivatives(self, raw: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = self.to_predictions(raw)
        g = p.copy()
        g[np.arange(len(y)), y] -= 1
        return g, p * (1 - p)

    def to_predictions(self, raw: np.ndarray) -> np.ndarray:
        wide = np.exp(raw - raw.max(axis=1, keepdims=True))
        found: np.ndarray = wide / wide.sum(axis=1, keepdims=True)
        return found


def _sigmoid(raw: np.ndarray) -> np.ndarray:
    half: np.ndarray = 0.5 * (1 + np.tanh(0.5 * raw))
    return half
