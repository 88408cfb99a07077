"""Randomised response: draw labels once; everything computed from the drawn labels may be public.

With k classes a label stays what it is with probability ``p = e^ε / (e^ε + k − 1)`` and becomes each other class with
``q = 1 / (e^ε + k − 1)`` (Warner 1965 for two classes; Kairouz, Oh and Viswanath 2014, arXiv 1407.1338, section 4.1).
One label's content is ε-differentially private, with δ = 0 and however many epochs train on it: the draw happens once.

The loss is corrected for the draw: the model's probabilities pass through the same draw before they are compared with
the drawn labels ("forward correction", Patrini et al. 2017, arXiv 1609.03683, theorem 2), so that its minimum is where
exact labels would have it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

import numpy as np
import torch

from securevfl.errors import InputError
from securevfl.privacy.accountant import PureRelease
from securevfl.privacy.counts import RowCounts
from securevfl.privacy.noise import Entropy, draw_uniform
from securevfl.privacy.spent import Spent

__all__ = ["LabelRelease", "forward_correction", "randomised_response", "response_probabilities"]

_ONE = np.zeros(1, dtype=np.int64)
_MOST = 20.0
"""Largest ε. Beyond it a label practically never changes, and 52 random bits become too coarse."""


def response_probabilities(classes: int, epsilon: float) -> tuple[float, float]:
    """Probabilities (p, q) that a label stays, and that it becomes one particular other class.

    Raises:
        InputError: fewer than two classes, or ε that is not between 0 and 20.
    """
    if classes < 2:
        raise InputError(f"randomised response needs at least 2 classes, got {classes}")
    if not 0 < epsilon <= _MOST:
        raise InputError(
            f"epsilon of randomised response is {epsilon}; it must be above 0 and at most {_MOST:g}: with more, "
            "labels practically never change"
        )
    whole = math.exp(epsilon) + classes - 1
    return math.exp(epsilon) / whole, 1 / whole


def randomised_response(labels: np.ndarray, classes: int, epsilon: float, entropy: Entropy = os.urandom) -> np.ndarray:
    """Draw labels by k-ary randomised response, (n,) int64.

    Args:
        labels: classes (n,) from 0 to `classes` − 1.
        classes: k.
        epsilon: of one label.
        entropy: source of random bytes.

    Raises:
        InputError: labels, classes or ε out of range.
    """
    stay, _ = response_probabilities(classes, epsilon)
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        raise InputError(f"labels range from {labels.min()} to {labels.max()}; allowed are 0 to {classes - 1}")
    kept, other = draw_uniform((2, len(labels)), entropy)
    drawn = np.floor(other * (classes - 1)).astype(np.int64)
    drawn += drawn >= labels  # skips the label itself, so that the k − 1 others are equally likely
    return np.where(kept < stay, labels, drawn).astype(np.int64)


def forward_correction(logits: torch.Tensor, classes: int, epsilon: float) -> torch.Tensor:
    """Convert logits of the true label into logits of the drawn label; both (n, 1) or (n, classes)."""
    stay, swap = response_probabilities(classes, epsilon)
    wide = logits.double()
    if classes == 2 and logits.shape[1] == 1:
        p = torch.sigmoid(wide)
        q = swap + (stay - swap) * p
        return (torch.log(q) - torch.log1p(-q)).to(logits.dtype)
    return torch.log(swap + (stay - swap) * torch.softmax(wide, dim=1)).to(logits.dtype)


class LabelRelease:
    """Labels that a party trains on instead of its true ones: drawn once for each person.

    Args:
        labels: class of each numbered row, (rows,) int64, −1 where it is unknown.
        rows: numbers of the rows to draw for; unknown labels among them stay unknown.
        classes: k.
        epsilon: of one person's label.
        delta: δ it is reported with; the mechanism has δ = 0.
        person: for each numbered row the first number of the same person, or None where all differ.
        entropy: source of random bytes.
    """

    what = "labels"

    # `counts` has one row for all labels, because they are drawn together. A run that starts from scratch draws again.

    def __init__(
        self,
        labels: torch.Tensor,
        rows: np.ndarray,
        *,
        classes: int,
        epsilon: float,
        delta: float,
        person: np.ndarray | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.classes = classes
        self.epsilon = epsilon
        self._delta = delta
        y = labels.cpu().numpy()
        self._rows = rows[y[rows] >= 0]
        people = self._rows if person is None else person[self._rows]
        _, first, which = np.unique(people, return_index=True, return_inverse=True)
        drawn = randomised_response(y[self._rows[first]], classes, epsilon, entropy)
        self._drawn = torch.from_numpy(drawn[which])
        self.counts = RowCounts("labels would be drawn", rows=1, times=1)
        self.counts.add(_ONE)

    def replace_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """A copy of `labels` (rows,) with the drawn ones in their places."""
        found = labels.clone()
        found[torch.from_numpy(self._rows).to(found.device)] = self._drawn.to(found)
        return found

    def correct_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """See `forward_correction`."""
        return forward_correction(logits, self.classes, self.epsilon)

    def draw_counted(self) -> None:
        """Count the draw of an attempt that starts from scratch, after `RowCounts.begin_attempt`."""
        self.counts.add(_ONE)

    def get_state(self) -> dict[str, object]:
        """The drawn labels. Resuming must reuse them, because a second draw would be a second release."""
        return {"drawn": self._drawn.clone()}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Restore the drawn labels from a `state`."""
        drawn = state["drawn"]
        if not isinstance(drawn, torch.Tensor) or len(drawn) != len(self._rows):
            raise TypeError("not a state of these labels")
        self._drawn = drawn.clone()

    @property
    def planned_release(self) -> PureRelease:
        """What is released of one person's label."""
        return PureRelease(self.epsilon, 1, self.classes)

    @property
    def cost_so_far(self) -> Spent:
        """The price: ε for each draw."""
        times = self.counts.max_releases if len(self._rows) else 0
        return Spent.from_release(self.what, PureRelease(self.epsilon, times, self.classes), self._delta, clip=0.0)
