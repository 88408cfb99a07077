"""The cut layer: the joint linear map ``z = Σ_p a_p W_p`` from the passive parties' activations to the top model's
input.

Shapes: ``B`` rows in a batch, ``d_p`` width of party p's activations, ``h`` width of the cut. The active party's own
block and the bias belong to its own network; it adds them to ``z`` itself.

Algorithms call `forward` and `backward` on their side and know nothing of how: two matrix products or a protocol on
ciphertexts is the job's choice. The rule of the cut's optimiser is the same everywhere, SGD with momentum and weight
decay, ``M ← μ M + η (∂L/∂W + λ W)``, ``W ← W − M``, because it is linear: with shares, each side steps on its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import securevfl_crypto as crypto
import torch

from securevfl.cut.integers import FixedPoint
from securevfl.errors import InputError, RangeError
from securevfl.party_context import PartyContext
from securevfl.privacy import Noised, NoiseShare
from securevfl.privacy.noise import draw_gaussian

__all__ = ["ActiveCut", "CutSpec", "CutUse", "PassiveCut", "check_block", "initial_weights"]


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


class ActiveCut(Protocol):
    """The active party's side.

    Attributes:
        widths: passive party → width d_p of its activations, after `setup`.
    """

    widths: dict[str, int]

    @property
    def step_error(self) -> float:
        """How far one entry of one step of the weights can be off, beside rounding, after `setup`; 0 for exact cuts."""
        ...

    async def setup(self) -> None:
        """Learn the passive parties' widths, exchange keys and initial shares."""
        ...

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """z (rows, h), float32, the sum over the passive parties; or (parties, rows, h), one for each, with
        ``reduce="none"``.

        Args:
            rows: how many rows the passive parties feed.
            train: whether `backward` follows.
        """
        ...

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """Hand back ∂L/∂z of the batch just seen, in the shape of z; the cut steps its weights.

        Args:
            gradient: ∂L/∂z. What leaves is guarded as noised where this is `Noised`, and nowhere else.
        """
        ...

    def snapshot(self) -> object:
        """This side's weights or shares, for `restore`; both sides have to take and restore theirs together."""
        ...

    def restore(self, state: object) -> None:
        """Go back to a snapshot of this cut."""
        ...


class PassiveCut(Protocol):
    """A passive party's side."""

    async def setup(self, width: int, *, trainable: bool) -> None:
        """Announce the width d_p of the activations, and whether the bottom below has parameters."""
        ...

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        """Feed activations (rows, d_p).

        Args:
            activations: of the rows.
            train: whether `backward` follows.
            noise: a share of noise (rows, h), added to this party's part of z before anything leaves.
        """
        ...

    async def backward(self) -> torch.Tensor | None:
        """Step the weights; ∂L/∂a_p (rows, d_p) of the batch just fed, or None where the bottom has no parameters."""
        ...

    def snapshot(self) -> object:
        """See `ActiveCut.snapshot`."""
        ...

    def restore(self, state: object) -> None:
        """See `ActiveCut.restore`."""
        ...


def initial_weights(site: PartyContext, width: int, columns: int, bound: float = math.inf) -> np.ndarray:
    """W_p as training begins, (width, columns) float64, independent N(0, 1/width), or those scaled down to half of the
    bound on their operator norm.

    The passive party draws all of them, from its secret, and the active party's share of a sealed block begins at zero:
    with a part of the weights of its own, the active party could estimate activations from the first z. It is so under
    every protection, so that a sealed run starts where its plain twin does.

    Args:
        site: the passive party's.
        width: d_p of its activations.
        columns: h, the width of the cut.
        bound: R, on the operator norm of the block, or infinity.
    """
    drawn: np.ndarray = draw_gaussian(
        (width, columns), math.sqrt(1 / width), lambda count: site.secret.keystream(count, "cut", "first weights")
    ).numpy()
    return drawn if bound == math.inf else drawn * min(1.0, bound / 2 / float(np.linalg.norm(drawn, 2)))


def check_block(weights: np.ndarray, bound: float, active: str) -> None:
    """Stop where a passive party that has its block (d_p, h) in the clear sees it pass the bound; before more leaves.

    Raises:
        RangeError: the norm, the bound, and who should have shortened the step.
    """
    norm = float(np.linalg.norm(weights, 2)) if np.isfinite(weights).all() else math.nan
    if not norm <= bound:
        raise RangeError(
            f"the block of the cut has norm {norm:.4g}; weight_bound is {bound:.4g}, and ε rests on it: {active!r} did "
            "not shorten its step; nothing more was sent"
        )
