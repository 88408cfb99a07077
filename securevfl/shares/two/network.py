"""A one-layer model as shares of two parties."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

import numpy as np
import torch
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.two.correlations import Linear
from securevfl_crypto.two.curves import CLIPPED_ERROR, SIGMOID
from securevfl_crypto.two.online import ROW_BITS, StepRule, TwoLinear
from securevfl_crypto.two.wire import swap

from securevfl.errors import InputError
from securevfl.shares.network_ranges import CURVATURE_BITS, NetworkShape, OptimiserConstants
from securevfl.shares.two.noise import TwoStepNoise
from securevfl.shares.two.parties import TwoParty
from securevfl.training.state import State, as_tensor

__all__ = ["TwoNetwork", "find_scale", "step_rule", "with_ones"]

_ONE = 1 << ROW_BITS
_SCALE, _SHARING = "scale", "sharing"
_NAME_BYTES = 32
_POWERS = 40
_MARGIN = 1.1
_STEADY = 3.0
"""rate · λ of one party's scaled rows: with those of both, rate · λ / 4 is 1.5."""


def step_rule(shape: NetworkShape, rule: OptimiserConstants, batch_size: int) -> StepRule:
    """What a step does: plain gradient descent, with the rate that momentum comes to in the long run.

    Args:
        shape: of the model.
        rule: of the optimiser.
        batch_size: nominal rows in a batch.

    Raises:
        InputError: weight decay, which would need a truncation in each step; or a rate that is too small or too large
            for the whole numbers of a step.
    """
    if rule.decay:
        raise InputError(
            f"weight_decay is {rule.decay:g}, and two parties train without: set weight_decay = 0, or let three compute"
        )
    rate = rule.lr / (1 - rule.momentum) / batch_size
    curve, scale = (CLIPPED_ERROR, 2.0**-CURVATURE_BITS) if shape.is_numeric else (SIGMOID, 1.0)
    try:
        return StepRule(curve, rate * scale)
    except MalformedError as error:
        raise InputError(
            f"lr / (1 - momentum) / batch_size is {rate:.3g}, and two parties compute steps in whole numbers that hold "
            f"2^-17 to 32: change lr = {rule.lr:g} in the protection, or batch_size = {batch_size}"
        ) from error


def with_ones(party: TwoParty, rows: np.ndarray) -> np.ndarray:
    """The active party's rows with a column of ones, whose weights are the biases; the other's as they are."""
    if not party.is_active:
        return rows
    return np.concatenate([rows, np.full((len(rows), 1), _ONE, rows.dtype)], axis=1)


def find_scale(rows: np.ndarray, rate: float) -> float:
    """By how much a party divides its columns, so that steps of this rate cannot make its weights swing.

    Gradient descent on a logistic loss, or on a quarter of a Huber loss, swings where rate · λ / 4 exceeds 2, with λ
    the largest eigenvalue of the mean of x xᵀ: six columns that say nearly the same have one near 6. Each party finds
    it from its own rows and tells nobody: of both together λ is at most twice the larger one.

    Args:
        rows: that train, integers with ten fractional bits, (n, d).
        rate: the learning rate.

    Returns:
        One or more.
    """
    if not rows.size:
        return 1.0
    values = np.ldexp(rows.astype(np.float64), -ROW_BITS)
    direction = np.sqrt(np.arange(1.0, values.shape[1] + 1))  # not at right angles to columns that cancel, as ones are
    largest = 0.0
    for _ in range(_POWERS):
        moved = values.T @ (values @ direction) / len(values)
        largest = float(np.linalg.norm(moved))
        if largest == 0.0:
            return 1.0
        direction = moved / largest
    return max(1.0, float(np.sqrt(rate * largest * _MARGIN / _STEADY)))


class TwoNetwork:
    """This party's summands of the weights of both parties' columns.

    Args:
        party: one of the two.
        shape: of the model, without hidden layers.
        rule: of a step.
        batch_size: nominal rows in a batch.
        noise: this party's noise on each sum of gradients, or None for none.

    Attributes:
        scale: what this party divides its columns by, see `find_scale`; 0 before it is known.
        sharing: names the sharing that the summands are of, the same at both parties.
    """

    def __init__(
        self,
        party: TwoParty,
        shape: NetworkShape,
        rule: StepRule,
        batch_size: int,
        *,
        noise: TwoStepNoise | None = None,
    ) -> None:
        active, passive = shape.inputs
        self.shape, self.rule, self.batch_size, self.noise = shape, rule, batch_size, noise
        self.scale = 0.0
        self.sharing = self._fresh = ""
        columns, draw = (active + 1, passive), None if noise is None else noise.draw_words
        self.linear = TwoLinear(party.wire, party.source, columns, shape.outputs, noise=draw)

    @property
    def rate(self) -> float:
        """The learning rate, whose errors have a slope of at most a quarter: that of the sigmoid, and of a number's."""
        return self.rule.rate * self.batch_size * (2.0**CURVATURE_BITS if self.shape.is_numeric else 1.0)

    async def agree_sharing(self) -> None:
        """Name, with the other party, the sharing that this process begins: one exchange of random numbers."""
        mine = np.frombuffer(secrets.token_bytes(_NAME_BYTES), np.uint8)
        (theirs,) = await swap(self.linear.wire, "step session", [mine])
        both = (mine, theirs) if self.linear.wire.me == 0 else (theirs, mine)
        self._fresh = hashlib.sha256(b"".join(one.tobytes() for one in both)).hexdigest()
        self.sharing = self._fresh

    async def refresh_shares(self) -> None:
        """Replace loaded shares by fresh ones of the same weights.

        Raises:
            DisagreementError: the other party loaded a part of another sharing.
        """
        await self.linear.refresh_shares(self.sharing.encode())
        self.sharing = self._fresh

    async def train_batch(self, rows: np.ndarray, targets: np.ndarray | None) -> None:
        """One step; see `TwoLinear.train_batch`."""
        await self.linear.train_batch(rows, targets, self.rule)
        if self.noise is not None:
            self.noise.count_step()

    async def compute_logits(
        self, batches: Sequence[np.ndarray], uses: Sequence[Linear]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """This party's shares of what its own columns and the other party's add to the outputs of some batches: one
        exchange for all of them."""
        await self.linear.begin_epoch(uses)
        return [self.linear.compute_logits(rows) for rows in batches]

    def pack_model(self) -> State:
        """This party's summands, and the scale of its columns."""
        parts = {"own": self.linear.own, "other": self.linear.other}
        words = {name: torch.from_numpy(part.view(np.int64).copy()) for name, part in parts.items()}
        return words | {_SCALE: self.scale, _SHARING: self.sharing}

    def unpack_model(self, state: State) -> None:
        """Go back to a snapshot.

        Raises:
            InputError: shares of another model.
        """
        wanted = ("own", "other", _SCALE, _SHARING)
        if set(state) != set(wanted):
            raise InputError(f"the model has {', '.join(state) or 'nothing'}; expected {', '.join(wanted)}")
        scale, sharing = state[_SCALE], state[_SHARING]
        if not isinstance(scale, float) or not 0 <= scale < np.inf or not isinstance(sharing, str):
            raise InputError("the model's scale is no number, or its sharing has no name")
        self.scale, self.sharing = scale, sharing
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
