"""Learn from rows without labels, as SimCLR does (Chen et al. 2020, arXiv 2002.05709). A party can do this alone.

The loss (NT-Xent) pulls the representations of two random views of a row together and pushes those of different rows
apart. Views of images are shifted, partly erased and noisy; views of tables have some columns exchanged with another
row's (SCARF, Bahri et al. 2022, arXiv 2106.15147). Views of images for a perceptron are made like those of tables: a
perceptron does not know which pixels are neighbours, so a shifted image is a different one to it. Nothing is sent.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from securevfl.training.optimizers import Adam
from securevfl.training.seeding import seed_torch

__all__ = ["augment_rows", "nt_xent", "pretrain_bottom"]


def nt_xent(one: torch.Tensor, two: torch.Tensor, temperature: float) -> torch.Tensor:
    """The normalised temperature-scaled cross entropy of SimCLR (its equation 1), averaged over both views.

    Args:
        one: representations of the first views, (n, d).
        two: of the second views, (n, d), row by row.
        temperature: τ.
    """
    z = functional.normalize(torch.cat([one, two]), dim=1)
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(-torch.inf)
    n = len(one)
    partner = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    return functional.cross_entropy(similarity, partner)


def augment_rows(x: torch.Tensor, corruption: float, *, shifted: bool = True) -> torch.Tensor:
    """A random view of rows (n, …).

    Args:
        x: the rows.
        corruption: share of the columns, or pixels, that are exchanged.
        shifted: whether images are shifted and partly erased; False to treat them as tables of pixels.
    """
    if x.ndim > 2 and not shifted:
        return augment_rows(x.flatten(1), corruption).view_as(x)
    if x.ndim == 2:
        swap = torch.rand_like(x) < corruption
        return torch.where(swap, x[torch.randperm(len(x), device=x.device)], x)
    n, _, height, width = x.shape
    shift = max(1, min(height, width) // 8)
    moved = _shift_images(x, torch.randint(-shift, shift + 1, (n, 1)), torch.randint(-shift, shift + 1, (n, 1)))
    top, left = torch.randint(0, height, (n, 1)), torch.randint(0, width, (n, 1))
    rows, columns = torch.arange(height)[None], torch.arange(width)[None]
    erased = ((rows >= top) & (rows < top + height // 4))[:, None, :, None] & (
        (columns >= left) & (columns < left + width // 3)
    )[:, None, None, :]
    return torch.where(erased.to(x.device), torch.zeros_like(x), moved) + 0.1 * torch.randn_like(x)


def _shift_images(x: torch.Tensor, down: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Images (n, channels, height, width), each rolled by its own number of pixels down and right, (n, 1) each."""
    n, channels, height, width = x.shape
    rows = ((torch.arange(height)[None] - down) % height).to(x.device)[:, None, :, None]
    columns = ((torch.arange(width)[None] - right) % width).to(x.device)[:, None, None, :]
    there = x.gather(2, rows.expand(n, channels, height, width))
    return there.gather(3, columns.expand(n, channels, height, width))


def pretrain_bottom(
    bottom: nn.Module,
    width: int,
    x: torch.Tensor,
    *,
    steps: int,
    batch: int,
    seed: int,
    temperature: float = 0.5,
    corruption: float = 0.4,
    shifted: bool = False,
) -> None:
    """Train a network on rows without labels.

    Args:
        bottom: the network, with activations (n, width).
        width: of its activations.
        x: the rows, (n, …); with fewer than two, nothing is learned.
        steps: number of Adam's steps.
        batch: rows per step.
        seed: of the head's initial weights, batches and views.
        temperature: τ of NT-Xent.
        corruption: see `augment_rows`.
        shifted: see `augment_rows`.
    """
    size = min(max(batch, 2), len(x))
    if size < 2 or not steps:
        return
    with seed_torch(seed):
        head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 32)).to(x.device)
        optimizer = Adam([*bottom.parameters(), *head.parameters()], lr=1e-3)
        for _ in range(steps):
            rows = x[torch.randperm(len(x))[:size]]
            one, two = (head(bottom(augment_rows(rows, corruption, shifted=shifted))) for _ in range(2))
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(nt_xent(one, two, temperature))
            optimizer.step()
