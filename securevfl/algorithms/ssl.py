"""SSL + VFL: each party first trains its bottom on its own rows without labels, as SimCLR does (Chen et al. 2020, arXiv
2002.05709); then SplitNN trains on the aligned rows.

The loss (NT-Xent) pulls the representations of two random views of a row together and pushes those of different rows
apart. Views of images are shifted, partly erased and noisy; views of tables have some columns exchanged with another
row's (SCARF, Bahri et al. 2022, arXiv 2106.15147). So have views of images for a perceptron, to which a shifted image
is another one: it knows no neighbours. Nothing is sent for it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import nn
from torch.nn import functional

from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.training.role import ActiveRole, PassiveRole, Role, Setting, seeded

__all__ = ["SelfSupervised", "nt_xent", "pretrain", "view"]


class SelfSupervised(SplitNN):
    """Configuration of SSL + VFL; the bottoms need parameters.

    Attributes:
        pretraining: steps of pretraining at each party.
        temperature: τ of NT-Xent.
        corruption: share of a table's columns exchanged in a view, or of an image's pixels for a perceptron.
    """

    name: ClassVar[str] = "ssl"
    label: ClassVar[str] = "SSL + VFL"
    uses_others: ClassVar[bool] = True
    pretraining: Annotated[int, Meta(ge=0)] = 1200
    temperature: Annotated[float, Meta(gt=0, le=10)] = 0.5
    corruption: Annotated[float, Meta(ge=0, lt=1)] = 0.4

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.bottom:
            found += ["ssl.bottom is (); there is nothing to pretrain: give widths, such as [64], or 'cnn'"]
        return found

    def active(self, setting: Setting) -> ActiveRole:
        return _Active(self, setting)

    def passive(self, setting: Setting) -> PassiveRole:
        return _Passive(self, setting)


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


def view(x: torch.Tensor, corruption: float, *, shifted: bool = True) -> torch.Tensor:
    """A random view of rows (n, …).

    Args:
        x: the rows.
        corruption: share of the columns, or pixels, that are exchanged.
        shifted: whether images are shifted and partly erased; if not, they are tables of pixels.
    """
    if x.ndim > 2 and not shifted:
        return view(x.flatten(1), corruption).view_as(x)
    if x.ndim == 2:
        swap = torch.rand_like(x) < corruption
        return torch.where(swap, x[torch.randperm(len(x), device=x.device)], x)
    n, _, height, width = x.shape
    shift = max(1, min(height, width) // 8)
    moved = _moved(x, torch.randint(-shift, shift + 1, (n, 1)), torch.randint(-shift, shift + 1, (n, 1)))
    top, left = torch.randint(0, height, (n, 1)), torch.randint(0, width, (n, 1))
    rows, columns = torch.arange(height)[None], torch.arange(width)[None]
    erased = ((rows >= top) & (rows < top + height // 4))[:, None, :, None] & (
        (columns >= left) & (columns < left + width // 3)
    )[:, None, None, :]
    return torch.where(erased.to(x.device), torch.zeros_like(x), moved) + 0.1 * torch.randn_like(x)


def _moved(x: torch.Tensor, down: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Images (n, channels, height, width), each rolled by a number of pixels of its own, (n, 1) both."""
    n, channels, height, width = x.shape
    rows = ((torch.arange(height)[None] - down) % height).to(x.device)[:, None, :, None]
    columns = ((torch.arange(width)[None] - right) % width).to(x.device)[:, None, None, :]
    there = x.gather(2, rows.expand(n, channels, height, width))
    return there.gather(3, columns.expand(n, channels, height, width))


def pretrain(bottom: nn.Module, width: int, x: torch.Tensor, config: SelfSupervised, batch: int, seed: int) -> None:
    """Train `bottom` (with activations (n, width)) on rows `x` without labels."""
    with seeded(seed):
        head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 32)).to(x.device)
        optimizer = torch.optim.Adam([*bottom.parameters(), *head.parameters()], lr=1e-3)
        size, shifted = min(max(batch, 2), len(x)), isinstance(config.bottom, str)
        for _ in range(config.pretraining if size > 1 else 0):
            rows = x[torch.randperm(len(x))[:size]]
            one, two = (head(bottom(view(rows, config.corruption, shifted=shifted))) for _ in range(2))
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(nt_xent(one, two, config.temperature))
            optimizer.step()


def _pretrain(role: Role, config: SelfSupervised, bottom: nn.Module, width: int) -> None:
    """Train a role's bottom on all rows of its party's own that may train."""
    table = role.table
    rows = role.features(np.concatenate([table.split.train, table.others(role.site.name)]))
    pretrain(bottom, width, rows, config, role.nominal_batch, role.seed("ssl"))


class _Active(Active):
    """SplitNN's, with a bottom that is pretrained."""

    config: SelfSupervised

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            _pretrain(self, self.config, self.half.bottom, self.half.own_width)
        return False


class _Passive(Passive):
    """SplitNN's, with a bottom that is pretrained."""

    config: SelfSupervised

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            _pretrain(self, self.config, self.half.bottom, self.half.width)
        return False
