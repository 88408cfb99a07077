"""A training budget that fits the table: few rows need many epochs of small batches, many rows few of large ones.

A network needs some thousand steps whatever the number of rows, a boosted model some hundred trees. Training stops
early on the validation rows, so a budget is an upper bound: too large a one costs time, too small a one a model that
was still getting better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Budget", "network_budget", "tree_budget"]

_STEPS = 3000
_BATCHES = 16
"""Batches that an epoch has at least, down to the smallest batch."""
_SMALLEST, _LARGEST = 32, 256
_FEWEST_EPOCHS, _MOST_EPOCHS = 20, 200
_FEWEST_WAITED = 5
_TREES, _TREES_WAITED = 300, 30


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a job trains at most.

    Attributes:
        epochs: passes over the training rows, or trees.
        patience: epochs without a gain on the validation rows after which training stops.
        batch_size: rows in a batch; None where an algorithm takes all rows together.
    """

    epochs: int
    patience: int
    batch_size: int | None


def network_budget(rows: int) -> Budget:
    """The budget of a network: batches of 32 to 256 rows, sixteen in an epoch where the rows allow it, and about 3,000
    steps in 20 to 200 epochs.

    Args:
        rows: that train.
    """
    size = 2 ** math.floor(math.log2(max(rows / _BATCHES, 1)))
    size = min(max(size, _SMALLEST), _LARGEST)
    steps = math.ceil(max(rows, 1) / size)
    epochs = min(max(math.ceil(_STEPS / steps), _FEWEST_EPOCHS), _MOST_EPOCHS)
    return Budget(epochs, max(_FEWEST_WAITED, epochs // 8), size)


def tree_budget(rows: int) -> Budget:
    """The budget of boosted trees: 300 trees, of which training keeps as many as the validation rows ask for.

    Args:
        rows: that train.
    """
    return Budget(_TREES, _TREES_WAITED, None)
