"""SSL + VFL: each party first trains its bottom on its own rows without labels, as SimCLR does (Chen et al. 2020, arXiv
2002.05709), then SplitNN on the aligned rows.

Two random views of a row shall have like representations and those of other rows unlike ones (NT-Xent). Views of images
are shifted, partly erased and noisy; views of tables have some columns exchanged with another row's (SCARF, Bahri et
al. 2022, arXiv 2106.15147). Nothing is sent for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from securevfl.algorithms.base import ActiveRole, PassiveRole, Plan, Table, seeded
from securevfl.algorithms.splitnn import Active, Passive, SplitNN
from securevfl.cut import Protection
from securevfl.errors import InputError
from securevfl.site import Site, derive_seed

__all__ = ["SelfSupervised", "nt_xent", "pretrain"]


@dataclass(frozen=True, kw_only=True)
class SelfSupervised(SplitNN):
    """Configuration of SSL + VFL; the bottoms need parameters.

    Attributes:
        pretraining: steps of pretraining at each party.
        temperature: of NT-Xent.
        corruption: share of a table's columns exchanged in a view.
    """

    name: ClassVar[str] = "ssl"
    uses_others: ClassVar[bool] = True
    pretraining: int = 400
    temperature: float = 0.5
    corruption: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bottom:
            raise InputError("ssl.bottom is (); there is nothing to pretrain: give widths, such as [64], or 'cnn'")
        if self.pretraining < 0 or not 0 < self.temperature <= 10 or not 0 <= self.corruption < 1:
            raise InputError(
                f"ssl has pretraining {self.pretraining}, temperature {self.temperature}, corruption "
                f"{self.corruption}; steps from 0, a temperature up to 10, a share below 1"
            )

    @property
    def title(self) -> str:
        return "SSL + VFL"

    def active(self, site: Site, plan: Plan, protection: Protection, table: Table) -> ActiveRole:
        return _Active(self, site, plan, protection, table)

    def passive(self, site: Site, plan: Plan, protection: Protection, table: Table) -> PassiveRole:
        return _Passive(self, site, plan, protection, table)


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


def view(x: torch.Tensor, corruption: float) -> torch.Tensor:
    """A random view of rows (n, …)."""
    if x.ndim == 2:
        swap = torch.rand_like(x) < corruption
        return torch.where(swap, x[torch.randperm(len(x), device=x.device)], x)
    n, _, height, width = x.shape
    shift = max(1, min(height, width) // 8)
    dy, dx = (int(torch.randint(-shift, shift + 1, ())) for _ in range(2))
    moved = torch.roll(x, (dy, dx), dims=(2, 3))
    top, left = torch.randint(0, height, (n, 1)), torch.randint(0, width, (n, 1))
    rows, columns = torch.arange(height)[None], torch.arange(width)[None]
    erased = ((rows >= top) & (rows < top + height // 4))[:, None, :, None] & (
        (columns >= left) & (columns < left + width // 3)
    )[:, None, None, :]
    return torch.where(erased.to(x.device), torch.zeros_like(x), moved) + 0.1 * torch.randn_like(x)


def pretrain(bottom: nn.Module, width: int, x: torch.Tensor, config: SelfSupervised, batch: int, seed: int) -> None:
    """Train `bottom` (with activations (n, width)) on rows `x` without labels."""
    with seeded(seed):
        head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 32)).to(x.device)
        optimizer = torch.optim.Adam([*bottom.parameters(), *head.parameters()], lr=1e-3)
        size = min(max(batch, 2), len(x))
        for _ in range(config.pretraining if size > 1 else 0):
            rows = x[torch.randperm(len(x))[:size]]
            one, two = (head(bottom(view(rows, config.corruption))) for _ in range(2))
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(nt_xent(one, two, config.temperature))
            optimizer.step()


def _own_training_rows(table: Table) -> torch.Tensor:
    rows = np.concatenate([table.split.train, table.others(table.name)])
    return torch.from_numpy(table.own(rows))


class _Active(Active):
    config: SelfSupervised

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            rows = self.x[_own_training_rows(self.table)]
            seed = derive_seed(self.site.private_seed, "ssl")
            pretrain(self.half.bottom, self.half.own_width, rows, self.config, self.nominal_batch, seed)
        return False


class _Passive(Passive):
    config: SelfSupervised

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            rows = self.x[_own_training_rows(self.table)]
            seed = derive_seed(self.site.private_seed, "ssl")
            pretrain(self.half.bottom, self.half.width, rows, self.config, self.nominal_batch, seed)
        return False
