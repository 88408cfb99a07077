"""Means of clipped vectors by group (class means, prototypes) with differential privacy.

Sums and counts are released together as one Gaussian mechanism. With vectors clipped to norm C and counts scaled by C,
replacing one row's content moves the pair by at most Δ = 2C: within a group the sum moves by up to 2C; from one group
to another two sums move by up to C each and two counts by 1 each, together ``√(2C² + 2C²) = 2C``. The means are
computed from these two releases and cost nothing more.
"""

from __future__ import annotations

import os

import numpy as np
import torch

from securevfl.errors import InputError
from securevfl.privacy.accountant import GaussianRelease
from securevfl.privacy.noise import Entropy, Noised, add_noise, clip_rows
from securevfl.privacy.spent import Spent

__all__ = ["group_means"]


def group_means(
    vectors: torch.Tensor,
    groups: np.ndarray,
    count: int,
    *,
    clip: float,
    sigma: float,
    delta: float,
    entropy: Entropy = os.urandom,
) -> tuple[Noised[torch.Tensor], Noised[torch.Tensor], Spent]:
    """Mean vector and size of each group, both noisy, and what they cost.

    Args:
        vectors: (n, d).
        groups: group of each row, (n,) from 0 to `count` − 1.
        count: number of groups, fixed in advance and including empty ones.
        clip: C, largest L2 norm of a vector; longer ones are scaled down.
        sigma: noise multiplier over Δ = 2C: σ·2C on each sum, 2σ on each size.
        delta: δ of the accounting.
        entropy: source of random bytes.

    Returns:
        Means (count, d) of norm C at most, float64; sizes (count,), 1 at least; one release of each row's content
        (vector and group).

    Raises:
        InputError: groups that do not fit the vectors, or a clip that is not positive.
    """
    if vectors.ndim != 2 or groups.shape != (len(vectors),):
        raise InputError(f"vectors {tuple(vectors.shape)} and groups {groups.shape} do not fit; give (n, d) and (n,)")
    if len(groups) and (groups.min() < 0 or groups.max() >= count):
        raise InputError(f"groups go from {groups.min()} to {groups.max()}; allowed are 0 to {count - 1}")
    if not clip > 0:
        raise InputError(f"clip is {clip}; it must be a positive number")
    # A column of C beside the vectors counts the group's rows, so that sums and sizes share one Δ = 2C.
    place = torch.from_numpy(groups.astype(np.int64)).to(vectors.device)
    rows = clip_rows(vectors.detach().double(), clip)
    marked = torch.cat([rows, torch.full((len(rows), 1), clip, dtype=torch.float64, device=rows.device)], dim=1)
    exact = torch.zeros((count, marked.shape[1]), dtype=torch.float64, device=rows.device).index_add_(0, place, marked)
    noisy = add_noise(exact, sigma, 2 * clip, entropy)
    sizes = noisy.map(lambda value: (value[:, -1] / clip).clamp_min(1.0))
    means = noisy.map(lambda value: clip_rows(value[:, :-1] / sizes.value[:, None], clip))
    return means, sizes, Spent.from_release("means", GaussianRelease(sigma, 1), delta, clip=clip)
