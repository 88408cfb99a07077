"""Noise on z inside the ciphertext: each passive party adds its share to its own part ``a_p W_p`` before it leaves.

The active party gets ``z = Σ_p a_p W_p + noise`` and nothing else, so the noise needs to hide one party's row in the
sum only, and no party but the one that adds a share knows it.

*Sensitivity.* Replacing what one party holds of one row moves a_p, clipped to norm C, by at most 2C, and z by at most
``Δ = 2 C R``, where R bounds the operator norm of every party's block W_p. If what all m parties hold of the row is
replaced at once, it is m times as far.

*R is held, not measured.* Weights are shared, and nobody can look at their norm. Each party begins with a block of norm
R/2 at most, and the active party shortens its steps so that no block can pass R (`securevfl.cut.bounded`). That rests
on the active party: one that deviates can let the weights grow, and ε with them. It stops when a z is longer than
C m R and noise can make it; that proves that a passive party did not keep to R, and staying below proves nothing.

*Rounding.* A cut of exact integers rounds activations to 12 fractional bits, so rows are clipped to C less what that
can add.

*Given the weights.* ε is of a row's own z, given W: the noise hides what the row adds to its own z. W itself is trained
on exact activations, of identity bottoms too, and what it carries of a row into the z of other rows is not covered.

*Low bits.* A share is a normal draw of 52 random bits plus an independent uniform one, 2⁻²⁰Δ wide, so that in sizes
far below Δ every value is about as likely as its neighbours; without it the gaps between normal draws, wide in the
tails, could tell what the noise was added to. Adding it costs no ε. A cut of exact integers rounds the share to its
fixed point and adds integers; a cut of floats (`plain` without ``fixed_point``) adds in float64 and rounds the sum.

*Shares of the noise.* Each party adds N(0, (σΔ)²/k), where k parties are trusted not to tell their share to the active
party: their shares alone add up to σΔ. With k = m nobody may tell.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch

from securevfl.errors import InputError, RangeError
from securevfl.privacy.noise import Entropy, NoiseShare, clip_rows, noise_share
from securevfl.privacy.rows import GaussianRows

__all__ = ["JointRelease", "check_norms", "largest_norm"]

ROUNDED = 2.0**-13
"""How far a cut of exact integers moves an activation."""

_FALSE_ALARM = 40 * math.log(2)
"""−log of the probability with which noise alone makes one honest z too long."""


def largest_norm(*, clip: float, weight_bound: float, parties: int, sigma: float, width: int) -> float:
    """What ‖z‖ of one row stays below, but for 2⁻⁴⁰, if the declared bound holds.

    ``C m R + σΔ (√h + √(2·40·ln 2))``: each party's part is no longer than C R, and a normal vector of h values is no
    longer than √h + √(2t) but for e^(−t) (Laurent and Massart 2000, lemma 1).

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
    """Stop where a row of z (rows, h) is longer than the declared weights allow; for the active party.

    Args:
        z: the passive parties' part of it.
        bound: from `largest_norm`.

    Raises:
        RangeError: the norm, the bound, and that ε does not hold.
    """
    longest = float(torch.linalg.vector_norm(z, dim=-1).max()) if z.numel() else 0.0
    if not longest <= bound:
        raise RangeError(
            f"a row of z is {longest:.4g} long, and with the declared weight_bound it stays below {bound:.4g}: a "
            "passive party's weights or activations are past what was agreed, and ε does not hold; nobody but they can "
            "mend that"
        )


class JointRelease(GaussianRows):
    """One passive party's share of the noise on z, counted row by row as `RowRelease` counts.

    The weights change between releases, so noise is drawn anew each time, for fixed features too.

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
            raise InputError(f"{parties} parties add noise to z; at least 1 has to")
        if not 0 < weight_bound < math.inf:
            raise InputError(f"the weights' bound is {weight_bound}; it has to be a positive number")
        super().__init__("z", rows=rows, times=times, sigma=sigma, clip=clip, delta=delta, entropy=entropy)
        self.sensitivity = 2 * clip * weight_bound
        self._parties = parties

    def clipped(self, activations: torch.Tensor) -> torch.Tensor:
        """Activations (n, d) of norm C at most, once they are rounded, too; gradients flow through the clip.

        Raises:
            InputError: C is no longer than what rounding can add.
        """
        added = math.sqrt(activations.shape[1]) * ROUNDED
        if not added < self.clip:
            raise InputError(f"clip is {self.clip:.4g}, and rounding adds up to {added:.2g}: take a larger clip")
        return clip_rows(activations, self.clip - added)

    def noise(self, rows: np.ndarray, width: int) -> NoiseShare:
        """This party's share of the noise for these rows of z, (n, width), and one release of each counted.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was released.
        """
        self.counts.add(rows)
        return noise_share((len(rows), width), self.sigma, self.sensitivity, self._parties, self._entropy)
