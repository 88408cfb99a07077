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
from typing import Protocol

import numpy as np
import torch

from securevfl.errors import RangeError
from securevfl.party_context import PartyContext
from securevfl.privacy import Noised, NoiseShare
from securevfl.privacy.noise import draw_gaussian
from securevfl.privacy.outcomes import BoundBroken

__all__ = ["ActiveCut", "PassiveCut", "check_block", "initial_weights"]


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
        BoundBroken: the norm, the bound, and who should have shortened the step.
        RangeError: the same of weights that are not finite: training diverged.
    """
    norm = float(np.linalg.norm(weights, 2)) if np.isfinite(weights).all() else math.nan
    if not norm <= bound:
        kind = BoundBroken if math.isfinite(norm) else RangeError
        raise kind(
            f"the block of the cut has norm {norm:.4g}; weight_bound is {bound:.4g}, and ε rests on it: {active!r} did "
            "not shorten its step; nothing more was sent"
        )
