"""A one-layer model as shares of two parties."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from securevfl_crypto.two.correlations import Linear
from securevfl_crypto.two.curves import CLIPPED_ERROR, SIGMOID
from securevfl_crypto.two.online import StepRule, TwoLinear

from securevfl.errors import InputError
from securevfl.shares.network_ranges import CURVATURE_BITS, NetworkShape, OptimiserConstants
from securevfl.shares.trainee import AddedNoise
from securevfl.shares.two.parties import TwoParty
from securevfl.training.state import State, as_tensor

__all__ = ["TwoNetwork", "step_rule", "with_ones"]

_ONE = 1 << 10


def step_rule(shape: NetworkShape, rule: OptimiserConstants, batch_size: int) -> StepRule:
    """What a step does: plain gradient descent, with the rate that momentum comes to in the long run.

    Args:
        shape: of the model.
        rule: of the optimiser.
        batch_size: nominal rows in a batch.

    Raises:
        InputError: weight decay, which would need a truncation in each step.
        MalformedError: a rate too small or too large for its whole numbers.
    """
    if rule.decay:
        raise InputError(
            f"weight_decay is {rule.decay:g}, and two parties train without: set weight_decay = 0, or let three compute"
        )
    rate = rule.lr / (1 - rule.momentum) / batch_size
    if shape.is_numeric:
        return StepRule(CLIPPED_ERROR, rate * 2.0**-CURVATURE_BITS)
    return StepRule(SIGMOID, rate)


def with_ones(party: TwoParty, rows: np.ndarray) -> np.ndarray:
    """The active party's rows with a column of ones, whose weights are the biases; the other's as they are."""
    if not party.is_active:
        return rows
    return np.concatenate([rows, np.full((len(rows), 1), _ONE, rows.dtype)], axis=1)


class TwoNetwork:
    """This party's summands of the weights of both parties' columns.

    Args:
        party: one of the two.
        shape: of the model, without hidden layers.
        rule: of a step.
        noise: this party's part of the noise on each sum of gradients, or None for none; and how it is drawn.
    """

    def __init__(
        self,
        party: TwoParty,
        shape: NetworkShape,
        rule: StepRule,
        *,
        noise: AddedNoise | None = None,
        draw: Callable[[tuple[int, ...]], np.ndarray] | None = None,
    ) -> None:
        active, passive = shape.inputs
        self.shape, self.rule, self.noise = shape, rule, noise
        self.linear = TwoLinear(party.wire, party.source, (active + 1, passive), shape.outputs, noise=draw)

    async def train_batch(self, rows: np.ndarray, targets: np.ndarray | None) -> None:
        """One step; see `TwoLinear.train_batch`."""
        await self.linear.train_batch(rows, targets, self.rule)

    async def compute_logits(
        self, batches: Sequence[np.ndarray], uses: Sequence[Linear]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """This party's shares of what its own columns and the other party's add to the outputs of some batches: one
        exchange for all of them."""
        await self.linear.begin_epoch(uses)
        return [self.linear.compute_logits(rows) for rows in batches]

    def pack_model(self) -> State:
        """This party's summands."""
        parts = {"own": self.linear.own, "other": self.linear.other}
        return {name: torch.from_numpy(part.view(np.int64).copy()) for name, part in parts.items()}

    def unpack_model(self, state: State) -> None:
        """Go back to a snapshot.

        Raises:
            InputError: shares of another model.
        """
        if set(state) != {"own", "other"}:
            raise InputError(f"the model has shares of {', '.join(state) or 'nothing'}; own and other were expected")
        for name in ("own", "other"):
            words, like = as_tensor(state[name]).numpy(), getattr(self.linear, name)
            if words.dtype != np.int64 or words.shape != like.shape:
                raise InputError(f"the model's shares are {words.dtype} {words.shape}; int64 {like.shape} was expected")
            setattr(self.linear, name, np.ascontiguousarray(words).view(np.uint64).copy())

    def pack_training(self) -> State:
        """The same: plain gradient descent has no other state."""
        return self.pack_model()

    def unpack_training(self, state: State) -> None:
        """See `unpack_model`."""
        self.unpack_model(state)
