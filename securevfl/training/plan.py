"""How training runs, the same at every party, and the messages of the programs that run it: plain data, which a job is
proposed and checked from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from securevfl.training.calibration import FEWEST_TO_CHOOSE
from securevfl.training.objectives import LossOfNumber
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind

__all__ = ["EXCHANGES", "FEWEST_TO_CHOOSE", "Budget", "Keep", "Plan", "network_budget", "tree_budget"]

EXCHANGES = (
    Exchange("train/epoch", Kind.CONTROL, ACTIVE, PASSIVE, "whether to keep, whether to stop"),
    Exchange("train/epoch", Kind.CONTROL, ACTIVE, COORDINATOR, "whether to keep, whether to stop"),
    Exchange("train/epoch", Kind.CONTROL, COORDINATOR, ACTIVE, "whether to keep, whether to stop"),
)
"""The messages that programs send, beside those of their roles."""

Keep = Literal["best", "last", "auto"]
"""Which epoch's weights a run keeps; see `Plan.keep`."""

_STEPS = 3000
_BATCHES = 16
"""Batches that an epoch has at least, down to the smallest batch."""
_SMALLEST, _LARGEST = 32, 256
_FEWEST_EPOCHS, _MOST_EPOCHS = 20, 200
_FEWEST_WAITED = 5
_TREES, _TREES_WAITED = 300, 30


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How training runs, the same at every party.

    Attributes:
        epochs: the maximum number of epochs.
        batch_size: nominal rows in a batch; the loss of a batch is the sum over its rows divided by this.
        patience: epochs without a gain on the validation rows after which training stops, or None for never.
        steps: batches in an epoch; None for one pass over the rows. When the rows are used up, they are shuffled again.
        keep: which epoch's weights are kept: ``"best"`` on the validation rows, ``"last"``, or ``"auto"``: the best if
            there are at least `FEWEST_TO_CHOOSE` validation rows, else the last.
        valid_every: epochs between two validations; the last epoch always validates.
        validates: whether validation rows are scored in training; otherwise no epoch validates.
        eval_rows: rows scored at a time outside training.
        device: where unencrypted tensors are, ``"cpu"`` or ``"cuda"``.
        number: how a numeric target is learned; None for classes.
        several: whether a row can have several labels.
        heaviest: the largest class weight that the job sets; 1 if it sets none.
        weighs_classes: whether the job weights classes.
        judges_alone: whether the validation rows are also scored without the passive parties, for an algorithm that
            weighs such scores.
        calibrates: whether scores are calibrated after training, see `securevfl.training.calibration`.
    """

    epochs: int
    batch_size: int
    patience: int | None
    steps: int | None = None
    keep: Keep = "best"
    valid_every: int = 1
    validates: bool = True
    eval_rows: int = 2048
    device: str = "cpu"
    number: LossOfNumber | None = None
    several: bool = False
    heaviest: float = 1.0
    weighs_classes: bool = False
    judges_alone: bool = False
    calibrates: bool = True

    def validates_after(self, epoch: int) -> bool:
        """Whether the validation rows are scored after `epoch`, from 1."""
        return self.validates and (epoch % self.valid_every == 0 or epoch == self.epochs)

    def chooses_best_epoch(self, valid: int) -> bool:
        """Return True if a run with `valid` validation rows keeps its best epoch, False if it keeps the last."""
        return self.keep == "best" or (self.keep == "auto" and valid >= FEWEST_TO_CHOOSE)


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a job trains at most, to fit its table.

    Few rows need many epochs of small batches, many rows few of large ones: a network needs some thousand steps
    whatever the number of rows, a boosted model some hundred trees. Too large a budget costs time, as training stops
    early on the validation rows; too small a one ends with a model that was still getting better.

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
