"""DP-SGD on shares: noise on each sum of gradients, which nobody sees without it, of a model with one layer.

*Clipping.* The gradient of a row is ``(p − y) (x, 1)ᵀ``. Nobody sees it, so nobody can clip it. Instead each party
clips its own block of x, so that ``‖x‖ ≤ C`` over all parties, and ``‖p − y‖ ≤ D``. The gradient of a row then has norm
at most ``D √(C² + 1)``, and replacing one row at all parties moves the sum over its batch by at most Δ, twice that. For
a numeric target, a quarter of the clipped error replaces p − y. Both bounds are valid for the integers of the
computation: rows are clipped by what rounding can add, and D is the bound of the piecewise linear sigmoid or softmax
with random rounding. With a hidden layer, the bound would have the norms of all weights above as factors, each up to
32, and noise of that size would destroy the model.

*Noise.* Each of the three computing parties adds N(0, (σΔ)²/2) to its own summand of the sum of gradients before
masking; this needs no message. A party knows its own draw; those of the other two add up to N(0, (σΔ)²). So ε bounds
what each single party learns, if no two of the three collude. An outsider faces half as much variance again.

*Fixed point.* Products on shares are exact, so the sum of gradients is an integer multiple of 2⁻³², and noise is
rounded to such multiples: rounding the noise, or its sum with the gradients, gives the same result. The learning rate,
momentum, decay and the truncation with its random last bit are computed from the noisy sum and the previous weights,
so they do not change ε. The random last bits of ``p − y`` belong to single rows; D includes them.

*Wraps.* The bound D requires logits that do not wrap. Noise has a largest size, so a step has one, and the weights have
a largest norm after all steps of a run. A run whose logits could wrap is refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
import torch
from securevfl_crypto.ring import FRACTION, decode_words, encode_words

from securevfl.errors import InputError, RangeError
from securevfl.privacy.noise import Entropy, clip_rows, noise_share
from securevfl.shares.network_ranges import CURVATURE_BITS, ERROR_BOUND, NetworkShape, OptimiserConstants

__all__ = ["StepNoise", "check_clipped", "check_logits", "clip_below", "gradient_bound", "row_bounds"]

_OTHERS = 2
"""Computing parties besides the reader: their noise alone must reach σ."""
_PARTIES = 3

_LOGIT_GAP = {True: 1.0, False: 1.42}
"""Whether there are two classes → D. The sigmoid of `replicated.fits` is between 0 and 1; its softmax values are not
negative and add up to at most 1.006, so ‖p − y‖ is below √(1.006² + 1)."""

_LARGEST_NORMAL = 8.21
"""No draw of `privacy.noise.gaussian` is larger: −Φ⁻¹(2⁻⁵³)."""

_LARGEST_LOGIT = 2.0**28
"""Then differences of two logits stay below 2^29, and below 2^62 with 32 fractional bits and the curves' thresholds."""


def row_bounds(clip: float, widths: Sequence[int]) -> list[float]:
    """Split C into C_k, the largest L2 norm of each party's block of a row: ``ΣC_k² = C²``, in proportion to columns.

    Args:
        clip: C.
        widths: columns of each party's block.
    """
    return [clip * math.sqrt(width / max(sum(widths), 1)) for width in widths]


def clip_below(rows: torch.Tensor, bound: float) -> torch.Tensor:
    """Clip a party's rows (n, d) to L2 norm `bound`, including what rounding to fixed point can add; returns float64.

    Raises:
        InputError: rounding alone can add as much as the bound.
    """
    wide = rows.detach().reshape(len(rows), -1).cpu().double()
    added = math.sqrt(wide.shape[1]) * 2.0 ** -(FRACTION + 1)
    if wide.shape[1] and not added < bound:
        raise InputError(f"rows are clipped to {bound:.4g}, and rounding adds up to {added:.2g}: take a larger clip")
    return clip_rows(wide, bound - added)


def check_clipped(party: str, words: np.ndarray, bound: float) -> None:
    """Check that rows in fixed point are within their bound, before any of them is dealt.

    Args:
        party: the owner of the rows, for the message.
        words: uint64 (n, d).
        bound: largest L2 norm.

    Raises:
        RangeError: a row is longer.
    """
    squares = np.square(words.view(np.int64)).sum(axis=1)
    longest = math.sqrt(int(squares.max(initial=0))) * 2.0**-FRACTION
    if longest > bound:
        raise RangeError(
            f"{party!r} would share a row of norm {longest:.6g}, but the noise is sized for rows of norm {bound:.6g}: "
            "the stated ε would be wrong. None of these rows was shared"
        )


def gradient_bound(shape: NetworkShape, clip: float) -> float:
    """Return ``D √(C² + 1)``, the largest L2 norm of one row's gradient over all weights.

    Raises:
        InputError: a network with hidden layers.
    """
    if shape.bottom or shape.hidden:
        raise InputError(
            "one row's gradient has no small bound in a network with hidden layers, and on shares nobody can clip it: "
            "use logistic_regression"
        )
    gap = ERROR_BOUND * 2.0**-CURVATURE_BITS if shape.is_numeric else _LOGIT_GAP[shape.classes == 2]
    return gap * math.hypot(clip, 1.0)


class StepNoise:
    """One computing party's part of the noise.

    Args:
        sigma: noise multiplier σ that the noise of any two parties reaches.
        sensitivity: Δ.
        entropy: source of random bytes.

    Attributes:
        draws: number of draws so far.
        largest: the largest size of all parties' noise on one value.
    """

    def __init__(self, sigma: float, sensitivity: float, entropy: Entropy = os.urandom) -> None:
        self.sigma = sigma
        self.sensitivity = sensitivity
        self.draws = 0
        self.largest = _PARTIES * (_LARGEST_NORMAL * sigma / math.sqrt(_OTHERS) + 1) * sensitivity
        self._entropy = entropy

    def draw_words(self, shape: tuple[int, ...]) -> np.ndarray:
        """Draw noise for one sum of gradients, uint64, in units of 2⁻³²."""
        self.draws += 1
        share = noise_share(shape, self.sigma, self.sensitivity, _OTHERS, self._entropy)
        return encode_words(share.noise.numpy(), 2 * FRACTION)


def check_logits(
    shape: NetworkShape, rule: OptimiserConstants, batch_size: int, steps: int, seed: int, *, clip: float, noise: float
) -> float:
    """Bound the size of a logit in a run, and refuse noise that could make logits wrap.

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
    (layer,) = shape.all_layers()
    values = (layer.inputs + 1) * layer.outputs
    weights = float(np.linalg.norm(decode_words(shape.first_weights(seed)[layer.name])))
    moving = 0.0
    (step,) = shape.layer_steps(rule, batch_size, noise).values()
    unit = 2.0 ** (FRACTION - step.shift)
    push = step.factor * unit * (batch_size * gradient_bound(shape, clip) + noise * math.sqrt(values))
    keep, decay = step.keep * 2.0**-step.shift, step.decay * 2.0**-step.shift
    for _ in range(steps):
        moving = keep * moving + decay * weights + push + math.sqrt(values) * 2.0**-FRACTION
        weights += moving
        if weights * math.hypot(clip, 1.0) >= _LARGEST_LOGIT:
            raise InputError(
                f"with this noise, a logit could reach 2^{math.log2(_LARGEST_LOGIT):.0f} within {steps} steps and "
                "wrap; the stated ε would be wrong: lower lr, momentum or weight_decay in the protection, or take "
                "larger batches"
            )
    return weights * math.hypot(clip, 1.0)
