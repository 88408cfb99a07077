"""The active party's side of a cut with an observer on top."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from securevfl.cut.base import ActiveCut
from securevfl.cut.integers import scaled_gradient
from securevfl.cut.opened_weights import HasShares
from securevfl.cut.spec import CutSpec
from securevfl.party_context import PartyContext
from securevfl.privacy import Noised, strip_noise_mark

__all__ = ["ObservedCut", "WrappedCut"]


class WrappedCut:
    """The active party's side of a cut, as it is. Subclasses look at what goes through it.

    Args:
        cut: the side itself.
    """

    def __init__(self, cut: ActiveCut) -> None:
        self.widths: dict[str, int] = {}
        self._cut = cut

    @property
    def step_error(self) -> float:
        """See `ActiveCut.step_error`."""
        return self._cut.step_error

    async def setup(self) -> None:
        """See `ActiveCut.setup`."""
        await self._cut.setup()
        self.widths = self._cut.widths

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """See `ActiveCut.forward`."""
        return await self._cut.forward(rows, train=train)

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """See `ActiveCut.backward`."""
        await self._cut.backward(gradient)

    def snapshot(self) -> object:
        """See `ActiveCut.snapshot`."""
        return self._cut.snapshot()

    def weight_shares(self) -> Mapping[str, np.ndarray]:
        """See `HasShares.weight_shares`; none, where the side itself has none."""
        return self._cut.weight_shares() if isinstance(self._cut, HasShares) else {}

    def restore(self, state: object) -> None:
        """See `ActiveCut.restore`."""
        self._cut.restore(state)


class ObservedCut(WrappedCut):
    """Tells the site's observer what the active party opens and what it hands back.

    Args:
        cut: the side itself.
        site: the active party's.
        spec: of the cut.
    """

    def __init__(self, cut: ActiveCut, site: PartyContext, spec: CutSpec) -> None:
        super().__init__(cut)
        self._site = site
        self._spec = spec
        site.observer.cut_joined(site.name, site.active, spec.lr, spec.momentum, spec.lr * spec.weight_decay)

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """See `ActiveCut.forward`."""
        z = await super().forward(rows, train=train)
        self._site.observer.values_opened(self._site.name, self._site.active, "z", z, train=train)
        return z

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """See `ActiveCut.backward`."""
        point = self._spec.fixed_point
        steps = scaled_gradient(strip_noise_mark(gradient), point) * 2.0**-point.fs
        self._site.observer.steps_handed(self._site.name, self._site.active, steps)
        await super().backward(gradient)
