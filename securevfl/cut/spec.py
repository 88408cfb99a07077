"""What both sides of a cut agree on, as plain numbers: what an algorithm asks of it, its sizes and rates, its integers.

A job is proposed, checked and declared from these alone; `base` has the sides that compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import securevfl_crypto as crypto

from securevfl.errors import InputError

__all__ = ["CutSpec", "CutUse", "FixedPoint"]


@dataclass(frozen=True, kw_only=True)
class FixedPoint:
    """Fractional bits of the integers at the cut.

    The active party multiplies the learning rate into the gradient before it rounds: ``S = η ∂L/∂z``. Then the step
    ``W ← W − aᵀS`` is exact in integers when W carries as many fractional bits as a and S together.

    Attributes:
        fx: fractional bits of activations; their magnitude stays below 2^x_int_bits.
        fs: fractional bits of S; its integers stay below 2^s_bits.
        lr: η.
    """

    fx: int
    fs: int
    x_int_bits: int
    s_bits: int
    lr: float

    @property
    def weight_fraction_bits(self) -> int:
        """Fractional bits of the weights."""
        return self.fx + self.fs

    @property
    def z_fraction_bits(self) -> int:
        """Fractional bits of z."""
        return self.fx + self.weight_fraction_bits

    @property
    def z_bits(self) -> int:
        """Magnitude of z's integers: 10 bits before the point, or more where activations are large."""
        return self.z_fraction_bits + 10 + max(self.x_int_bits - 3, 0)

    @property
    def back_bits(self) -> int:
        """Magnitude of the integers of S Wᵀ: 4 bits more than steps have before the point."""
        return self.s_bits + self.weight_fraction_bits + 4


@dataclass(frozen=True, kw_only=True, slots=True)
class CutUse:
    """What an algorithm asks of the cut, as far as it is known before any rows are: enough for a protection to declare
    every message of its cut.

    Attributes:
        trainable: whether the passive parties' bottoms have parameters that are trained.
        frozen: whether they are fixed features of each party's own instead of the identity.
        rounds: whether the cut's optimiser has momentum or weight decay, which round.
        integer_shares: see `CutSpec`.
        together: whether the active party gets the sum of the parties' parts (``reduce="sum"``), or each by itself.
        alone: whether some rows are fed by one passive party while the others feed the same for all of them (zeros, a
            mean): z of these rows is that party's part and a constant.
        differing: whether one row is fed by several sets of parties as training goes on: differences of its z are parts
            of single parties.
    """

    trainable: bool
    frozen: bool = False
    rounds: bool = False
    integer_shares: bool = False
    together: bool = True
    alone: bool = False
    differing: bool = False


@dataclass(frozen=True, kw_only=True)
class CutSpec:
    """What both sides of a cut agree on.

    Attributes:
        width: h, the width of the cut.
        lr: η, the learning rate of the cut's weights.
        momentum: μ of the cut's optimiser.
        weight_decay: λ of the cut's optimiser.
        trainable: whether the passive parties' bottoms have parameters, as the job says; None to believe each party.
            A party that claims parameters which the job does not give it would obtain gradients that tell labels.
        batch_size: nominal batch; the loss is the sum over a batch divided by it.
        activation_bound: activations stay below this magnitude (standardised and clipped features, bounded activation
            functions, or clip + noise); the integers at the cut are sized by it.
        gradient_bound: gradients ∂loss/∂z of single rows stay below this magnitude; likewise.
        device: where plain tensors live.
        reduce: ``"sum"``: the active party gets z, summed over the passive parties; ``"none"``: each party's part of
            it, for algorithms that combine the parties in another way than by adding.
        integer_shares: whether a sealed cut's shares have to be integers that never wrap, whatever the rule: for
            whoever takes means of them.
        weight_bound: R, largest operator norm that any passive party's block of the weights may have; infinite unless
            noise on z is sized by it. The parties begin with half of it, see `securevfl.cut.bounded`.
        widest: at the active party, the width of a passive party that is not there and by which shares were sized; 0
            where all are.
    """

    width: int
    lr: float
    batch_size: int
    activation_bound: float = 8.0
    gradient_bound: float = 16.0
    device: str = "cpu"
    reduce: str = "sum"
    momentum: float = 0.0
    weight_decay: float = 0.0
    trainable: bool | None = None
    integer_shares: bool = False
    weight_bound: float = math.inf
    widest: int = 0

    def __post_init__(self) -> None:
        if self.reduce not in ("sum", "none"):
            raise InputError(f"reduce is {self.reduce!r}; 'sum' and 'none' are known")
        if self.width < 1:
            raise InputError(f"the cut is {self.width} wide; it has to be at least 1")
        if not (math.isfinite(self.lr) and 0 < self.lr <= 100):
            raise InputError(f"the cut's learning rate is {self.lr}; it lies between 0 and 100")
        if not 1 <= self.batch_size <= 1 << 24:
            raise InputError(f"the cut's batch is {self.batch_size}; 1 to 2^24 rows are possible")
        for what, bound in (("activations", self.activation_bound), ("gradients", self.gradient_bound)):
            if not 0 < bound < math.inf:
                raise InputError(f"the bound on {what} at the cut is {bound}; it has to be a positive number")
        if not self.weight_bound > 0:
            raise InputError(f"the bound on the cut's weights is {self.weight_bound}; it has to be a positive number")
        if not 0 <= self.momentum <= 0.99:
            raise InputError(f"the cut's momentum is {self.momentum}; it lies from 0 to 0.99")
        if not 0 <= self.lr * self.weight_decay < 1:
            raise InputError(
                f"the cut's weight decay is {self.weight_decay}; times the learning rate {self.lr} it stays below 1"
            )

    @property
    def cut_use(self) -> CutUse:
        """What declarations depend on; a bottom counts as trainable unless the job says that it is not."""
        return CutUse(
            trainable=self.trainable is not False,
            rounds=self.optimiser_rule.rounds,
            integer_shares=self.integer_shares,
            together=self.reduce == "sum",
        )

    @property
    def optimiser_rule(self) -> crypto.OptimiserRule:
        """The optimiser's constants, for shares."""
        return crypto.OptimiserRule(momentum=self.momentum, decay=self.lr * self.weight_decay)

    @property
    def fixed_point(self) -> FixedPoint:
        """12 fractional bits for activations; gradients of single rows are rounded at 2^-14."""
        shrink = math.ceil(math.log2(self.batch_size / self.lr))
        fs = max(14 + shrink, 12)
        return FixedPoint(
            fx=12,
            fs=fs,
            x_int_bits=max(math.ceil(math.log2(self.activation_bound)), 0),
            s_bits=fs - shrink + max(math.ceil(math.log2(self.gradient_bound)), 0) + 1,
            lr=self.lr,
        )
