"""Local training without labels: k-means groups, augmentation, FixMatch (Sohn et al. 2020, arXiv 2001.07685).

The augmentation of tables is that of few-shot VFL (Sun et al. 2023, arXiv 2303.16270).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

__all__ = ["augment_strongly", "augment_weakly", "cluster_directions", "cluster_purity", "fixmatch_loss"]

_ROUNDS, _STARTS = 50, 8


def cluster_directions(points: torch.Tensor, groups: int, seed: int) -> torch.Tensor:
    """Cluster points by their directions (k-means of points divided by their lengths).

    Gradients of rows of one class have similar directions and different lengths.

    Args:
        points: (n, d).
        groups: number of groups; fewer if there are fewer points.
        seed: seed of the eight starts, of which the best is kept.

    Returns:
        The group of each point, (n,) int64.
    """
    x = functional.normalize(points.detach().double(), dim=1)
    generator = np.random.default_rng(seed)
    best, kept = np.inf, torch.zeros(len(x), dtype=torch.int64, device=x.device)
    for _ in range(_STARTS):
        centres = _choose_centres(x, min(groups, len(x)), generator)
        group = kept
        for _ in range(_ROUNDS):
            distances = torch.cdist(x, centres)
            group = distances.argmin(dim=1)
            member = functional.one_hot(group, len(centres)).to(x)
            count = member.sum(dim=0)[:, None]
            moved = torch.where(count > 0, member.T @ x / count.clamp_min(1), centres)
            if torch.equal(moved, centres):
                break
            centres = moved
        spread = float((x - centres[group]).square().sum())
        if spread < best:
            best, kept = spread, group
    return kept


def _choose_centres(x: torch.Tensor, groups: int, generator: np.random.Generator) -> torch.Tensor:
    """Choose distant first centres (k-means++)."""
    chosen = [int(generator.integers(len(x)))]
    while len(chosen) < groups:
        far = torch.cdist(x, x[chosen]).amin(dim=1).square().cpu().numpy()
        total = far.sum()
        chosen.append(int(generator.choice(len(x), p=far / total)) if total > 0 else int(generator.integers(len(x))))
    return x[chosen]


def cluster_purity(group: torch.Tensor, y: torch.Tensor) -> float:
    """Share of rows that have the most frequent class of their group.

    Args:
        group: of each row, (n,).
        y: class of each row, (n,).
    """
    if not len(y):
        return 0.0
    table = torch.zeros(int(group.max()) + 1, int(y.max()) + 1)
    table.index_put_((group.cpu(), y.cpu()), torch.ones(len(y)), accumulate=True)
    return float(table.amax(dim=1).sum() / len(y))


def augment_weakly(x: torch.Tensor, mean: torch.Tensor, masked: float) -> torch.Tensor:
    """Augment rows (n, …) weakly.

    Rows of a table become ``m ⊗ x + (1 − m) ⊗ x̄`` with a random binary mask m; each image is shifted by up to an eighth
    of its size.

    Args:
        x: rows.
        mean: x̄, the mean of the party's rows, (1, …).
        masked: share of columns that the mask replaces.
    """
    if x.ndim == 2:
        return torch.where(torch.rand_like(x) < masked, mean, x)
    n, _, height, width = x.shape
    down = torch.arange(height)[None] + _draw_shifts(n, height)
    across = torch.arange(width)[None] + _draw_shifts(n, width)
    rows = down.clamp(0, height - 1).to(x.device)[:, None, :, None]
    columns = across.clamp(0, width - 1).to(x.device)[:, None, None, :]
    return x[torch.arange(n)[:, None, None, None], torch.arange(x.shape[1])[None, :, None, None], rows, columns]


def _draw_shifts(n: int, size: int) -> torch.Tensor:
    most = max(1, size // 8)
    return torch.randint(-most, most + 1, (n, 1))


def augment_strongly(x: torch.Tensor, mean: torch.Tensor, masked: float, noise: float) -> torch.Tensor:
    """Augment rows weakly, then add normal noise; for the other arguments see `augment_weakly`.

    Args:
        noise: its standard deviation, in units of standardised columns.
    """
    moved = augment_weakly(x, mean, masked)
    return moved + noise * torch.randn_like(moved)


def fixmatch_loss(
    model: nn.Module,
    labelled: tuple[torch.Tensor, torch.Tensor],
    unlabelled: tuple[torch.Tensor, torch.Tensor],
    *,
    confidence: float,
    weight: float,
) -> torch.Tensor:
    """``l_s + λ_u l_u``: cross entropy on labelled rows and on strongly augmented unlabelled ones.

    The target of an unlabelled row is the class that the model gives to its weak augmentation, if it is confident.

    Args:
        model: rows → logits (n, k).
        labelled: weakly augmented rows (n, …) and their classes (n,).
        unlabelled: the same m rows twice, weakly and strongly augmented.
        confidence: τ, least probability of a class that counts.
        weight: λ_u.
    """
    x, y = labelled
    loss = functional.cross_entropy(model(x), y)
    lightly, heavily = unlabelled
    if not len(lightly) or not weight:
        return loss
    with torch.no_grad():
        sure, guess = torch.softmax(model(lightly), dim=1).max(dim=1)
    errors = functional.cross_entropy(model(heavily), guess, reduction="none")
    return loss + weight * (errors * (sure >= confidence)).mean()
