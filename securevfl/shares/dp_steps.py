"""DP-SGD on shares: noise on each sum of gradients that nobody sees without it, of a model with one layer.

*Clipping.* The gradient of a row is ``(p − y) (x, 1)ᵀ``. Nobody can clip it, for nobody sees it, and nobody has to:
each party clips its own block of x, so that ``‖x‖ ≤ C`` over all parties, and ``‖p − y‖ ≤ D``. The gradient of a row is
no longer than ``D √(C² + 1)``, and replacing what all parties hold of one row moves the sum over its batch by at most
Δ, twice that. For a number, a quarter of the clipped error stands in the place of p − y. Both bounds hold for the
integers that are computed with: rows are clipped once more than they are rounded, and D is that of the piecewise linear
sigmoid or softmax, rounded by chance. For a hidden layer the same bound would have the norms of all weights above it as
factors, each up to 32: noise of that size leaves nothing.

*Noise.* Each of the three computing parties adds N(0, (σΔ)²/2) to its own summand of the sum of gradients, before that
is masked: it takes no message. A party knows its own draw; those of the two others add up to N(0, (σΔ)²). So ε holds
against each party by itself, as long as no two of the three put together what they hold. What an outsider gets has
half as much variance again.

*Fixed point.* Products on shares are exact, so that the sum of gradients is a whole number of 2⁻³², and noise is
rounded to such numbers: rounding the noise, or its sum with a whole number, gives the same. What follows, the step's
rate, momentum, decay and the truncation with its random last bit, is computed from the noisy sum and the weights before
it, and adds nothing to ε. The random last bits of ``p − y`` are each row's own: D bounds them, too.

*Wraps.* The bound D needs logits that do not wrap. Noise has a largest size, and so has a step, so that the weights
have a largest norm after all steps of a run; a run in which logits could wrap is refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
import torch
from securevfl_crypto.ring import FRACTION, decode, encode

from securevfl.errors import InputError, RangeError
from securevfl.privacy.noise import Entropy, clip_rows, noise_share
from securevfl.shares.network_ranges import CURVATURE_BITS, ERROR_BOUND, NetworkShape, OptimiserConstants

__all__ = ["StepNoise", "check_clipped", "check_logits", "clip_below", "gradient_bound", "row_bounds"]

_OTHERS = 2
"""Computing parties whose noise nobody else knows: their shares alone reach σ."""
_PARTIES = 3

_LOGIT_GAP = {True: 1.0, False: 1.42}
"""Two classes or more → D. The sigmoid of `replicated.fits` lies from 0 to 1; values of its softmax are 0 or more and
add up to 1.006 at most, so that ‖p − y‖ is below √(1.006² + 1)."""

_LARGEST_NORMAL = 8.21
"""No draw of `privacy.noise.gaussian` is larger: −Φ⁻¹(2⁻⁵³)."""

_LARGEST_LOGIT = 2.0**28
"""Differences of two logits stay below 2^29, and below 2^62 with 32 fractional bits and thresholds of the curves."""


def row_bounds(clip: float, widths: Sequence[int]) -> list[float]:
    """C_k, the largest L2 norm of each party's block of a row: ``ΣC_k² = C²``, in proportion to its columns.

    Args:
        clip: C.
        widths: of the parties' blocks.
    """
    return [clip * math.sqrt(width / max(sum(widths), 1)) for width in widths]


def clip_below(rows: torch.Tensor, bound: float) -> torch.Tensor:
    """A party's rows (n, d), float64, of L2 norm `bound` at most, also when they are rounded to fixed point.

    Raises:
        InputError: the bound is no longer than what rounding can add.
    """
    wide = rows.detach().reshape(len(rows), -1).cpu().double()
    added = math.sqrt(wide.shape[1]) * 2.0 ** -(FRACTION + 1)
    if wide.shape[1] and not added < bound:
        raise InputError(f"rows are clipped to {bound:.4g}, and rounding adds up to {added:.2g}: take a larger clip")
    return clip_rows(wide, bound - added)


def check_clipped(party: str, words: np.ndarray, bound: float) -> None:
    """Hold rows in fixed point against their bound, before anything of them is dealt.

    Args:
        party: whose they are.
        words: uint64 (n, d).
        bound: largest L2 norm.

    Raises:
        RangeError: a row is longer; says how long.
    """
    squares = np.square(words.view(np.int64)).sum(axis=1)
    longest = math.sqrt(int(squares.max(initial=0))) * 2.0**-FRACTION
    if longest > bound:
        raise RangeError(
            f"{party!r} would share a row of norm {longest:.6g}, and noise is sized for rows of norm {bound:.6g}: ε "
            "would not hold; nothing of these rows was shared"
        )


def gradient_bound(shape: NetworkShape, clip: float) -> float:
    """``D √(C² + 1)``, the largest L2 norm of one row's gradient over all weights.

    Raises:
        InputError: a network with hidden layers.
    """
    if shape.bottom or shape.hidden:
        raise InputError(
            "the gradient of one row has no small bound in a network with hidden layers, and on shares nobody can clip "
            "it: use logistic_regression"
        )
    gap = ERROR_BOUND * 2.0**-CURVATURE_BITS if shape.is_numeric else _LOGIT_GAP[shape.classes == 2]
    return gap * math.hypot(clip, 1.0)


class StepNoise:
    """One computing party's part of the noise.

    Args:
        sigma: noise multiplier σ, which any two parties' noise reaches.
        sensitivity: Δ.
        entropy: source of random bytes.

    Attributes:
        draws: how often noise was drawn.
        largest: the largest size of all parties' noise on one value.
    """

    def __init__(self, sigma: float, sensitivity: float, entropy: Entropy = os.urandom) -> None:
        self.sigma = sigma
        self.sensitivity = sensitivity
        self.draws = 0
        self.largest = _PARTIES * (_LARGEST_NORMAL * sigma / math.sqrt(_OTHERS) + 1) * sensitivity
        self._entropy = entropy

    def draw_words(self, shape: tuple[int, ...]) -> np.ndarray:
        """Noise for one sum of gradients, uint64, in units of 2⁻³²."""
        self.draws += 1
        share = noise_share(shape, self.sigma, self.sensitivity, _OTHERS, self._entropy)
        return encode(share.noise.numpy(), 2 * FRACTION)


def check_logits(
    shape: NetworkShape, rule: OptimiserConstants, batch_size: int, steps: int, seed: int, *, clip: float, noise: float
) -> float:
    """The largest size of a logit in a run.

    Args:
        shape: of a network with one layer.
        rule: of the optimiser.
        batch_size: rows in a batch, at most and nominal.
        steps: of the whole run.
        seed: the job's, of the first weights.
        clip: C.
        noise: the largest size of the noise on one value.

    Raises:
        InputError: logits could wrap.
    """
    (layer,) = shape.layers()
    values = (layer.inputs + 1) * layer.outputs
    weights = float(np.linalg.norm(decode(shape.first_weights(seed)[layer.name])))
    moving = 0.0
    (step,) = shape.steps(rule, batch_size, noise).values()
    unit = 2.0 ** (FRACTION - step.shift)
    push = step.factor * unit * (batch_size * gradient_bound(shape, clip) + noise * math.sqrt(values))
    keep, decay = step.keep * 2.0**-step.shift, step.decay * 2.0**-step.shift
    for _ in range(steps):
        moving = keep * moving + decay * weights + push + math.sqrt(values) * 2.0**-FRACTION
        weights += moving
        if weights * math.hypot(clip, 1.0) >= _LARGEST_LOGIT:
            raise InputError(
                f"with this noise a logit could reach 2^{math.log2(_LARGEST_LOGIT):.0f} within {steps} steps and wrap, "
                "and ε would not hold: lower lr, momentum or weight_decay in the protection, or take larger batches"
            )
    return weights * math.hypot(clip, 1.0)
