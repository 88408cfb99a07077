"""Joint noise on z inside the ciphertext: each passive party adds a share to its part ``a_p W_p`` before sending it.

The active party gets ``z = Σ_p a_p W_p + noise`` and nothing else, so the noise only has to hide one party's row in the
sum, and only the party that adds a share knows that share.

*Sensitivity.* Replacing one party's columns of one row moves a_p, clipped to norm C, by at most 2C, and z by at most
``Δ = 2 C R``, where R bounds the operator norm of every party's block W_p. Replacing the row at all m parties moves z
up to m times as far.

*R is enforced, not measured.* Weights are shared, so nobody can compute their norm. Each party starts with a block of
norm at most R/2, and the active party shortens its steps so that no block can exceed R (`securevfl.cut.bounded`). This
trusts the active party: if it deviates, the weights can grow, and ε with them. It aborts when a z is longer than C m R
plus noise explains; that proves that a passive party broke R, but a shorter z proves nothing.

*Rounding.* A cut of exact integers rounds activations to 12 fractional bits, so rows are clipped to C less what that
can add.

*Given the weights.* ε covers a row's own z, given W: the noise hides the row's contribution to that z. W is trained on
exact activations, even under identity bottoms, and what it carries from a row into the z of other rows is not covered.

*Low bits.* A share is a normal draw of 52 random bits plus an independent uniform one, 2⁻²⁰Δ wide, so that in sizes far
below Δ every value is about as likely as its neighbours; without it, the gaps between normal draws, wide in the tails,
could reveal the value below the noise. Adding it costs no ε. A cut of exact integers rounds the share to its fixed
point and adds integers; a cut of floats (`plain` without ``fixed_point``) adds in float64 and rounds the sum.

*Shares of the noise.* Each party adds N(0, (σΔ)²/k), where k parties are trusted not to reveal their share to the
active party: those shares alone add up to σΔ. With k = m, no passive party may reveal its share.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch

from securevfl.errors import InputError, RangeError
from securevfl.privacy.noise import Entropy, NoiseShare, clip_rows, noise_share
from securevfl.privacy.outcomes import BoundBroken
from securevfl.privacy.rows import GaussianRows

__all__ = ["JointRelease", "check_norms", "largest_norm"]

ROUNDED = 2.0**-13
"""Largest rounding error of an activation in a cut of exact integers: half a unit of 12 fractional bits."""

_FALSE_ALARM = 40 * math.log(2)
"""−log of the probability with which noise alone makes one honest z too long."""


def largest_norm(*, clip: float, weight_bound: float, parties: int, sigma: float, width: int) -> float:
    """Upper bound on ‖z‖ of one row, except with probability 2⁻⁴⁰, if the weights respect the declared bound.

    ``C m R + σΔ (√h + √(2·40·ln 2))``: each party's part has norm at most C R, and a normal vector of h values has norm
    at most √h + √(2t), except with probability e^(−t) (Laurent and Massart 2000, lemma 1).

    Args:
        clip: C.
        weight_bound: R.
        parties: m, passive ones.
        sigma: noise multiplier.
        width: h.
    """
    noise = sigma * 2 * clip * weight_bound * (math.sqrt(width) + math.sqrt(2 * _FALSE_ALARM))
    return clip * parties * weight_bound + noise


def check_norms(z: torch.Tensor, bound: float) -> None:
    """Abort if a row of z (rows, h) is longer than the declared weight bound allows; the active party calls this.

    Args:
        z: the passive parties' part of it.
        bound: from `largest_norm`.

    Raises:
        BoundBroken: a row is too long, so that ε is no longer guaranteed; the message gives the norm and the bound.
        RangeError: the same of a row that is not finite: training diverged.
    """
    longest = float(torch.linalg.vector_norm(z, dim=-1).max()) if z.numel() else 0.0
    # Negated, so that NaN is refused as well.
    if not longest <= bound:
        kind = BoundBroken if math.isfinite(longest) else RangeError
        raise kind(
            f"a row of z has norm {longest:.4g}; with the declared weight_bound it stays below {bound:.4g}: a "
            "passive party's weights or activations exceed what was agreed, and ε is no longer guaranteed; "
            "only the passive parties can fix that"
        )


class JointRelease(GaussianRows):
    """One passive party's share of the noise on z, counted row by row as `RowRelease` counts.

    The weights change between releases, so each release draws new noise, even for fixed features.

    Args:
        rows: number of rows that exist; releases are counted per row number.
        times: planned number of releases of one row; one more is refused.
        sigma: noise multiplier of the whole noise over Δ = 2 · clip · weight_bound.
        clip: C, largest L2 norm of a row's activations.
        weight_bound: R, declared bound on the operator norm of each party's block of the weights.
        parties: k, how many passive parties add noise that the active party does not know. Where the active party
            reads each party's part (no encryption, or ``reduce="none"``) it is 1.
        delta: δ of the accounting.
        entropy: source of random bytes.
    """

    def __init__(
        self,
        *,
        rows: int,
        times: int,
        sigma: float,
        clip: float,
        weight_bound: float,
        parties: int,
        delta: float,
        entropy: Entropy = os.urandom,
    ) -> None:
        if parties < 1:
            raise InputError(f"{parties} parties add noise to z; at least 1 must")
        if not 0 < weight_bound < math.inf:
            raise InputError(f"the weights' bound is {weight_bound}; it must be a positive number")
        super().__init__("z", rows=rows, times=times, sigma=sigma, clip=clip, delta=delta, entropy=entropy)
        self.sensitivity = 2 * clip * weight_bound
        self._parties = parties

    def clip_activations(self, activations: torch.Tensor) -> torch.Tensor:
        """Clip activations (n, d) so that their norm is at most C even after rounding; gradients flow through the clip.

        Raises:
            InputError: C is not larger than what rounding can add.
        """
        added = math.sqrt(activations.shape[1]) * ROUNDED
        if not added < self.clip:
            raise InputError(f"clip is {self.clip:.4g}, but rounding adds up to {added:.2g}: use a larger clip")
        return clip_rows(activations, self.clip - added)

    def draw_share(self, rows: np.ndarray, width: int) -> NoiseShare:
        """Draw this party's share of the noise for these rows of z, (n, width), and count one release of each.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was released.
        """
        self.counts.add(rows)
        return noise_share((len(rows), width), self.sigma, self.sensitivity, self._parties, self._entropy)
