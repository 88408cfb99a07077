"""The active party's side of a cut with something on top: gradients perturbed before they leave, a bound on z."""

from __future__ import annotations

import torch

from securevfl.cut import ActiveCut
from securevfl.privacy import Marvell
from securevfl.privacy.joint import check_norms

__all__ = ["BoundedCut", "PerturbedCut", "WatchedCut"]


class WatchedCut:
    """The active party's side of a cut, as it is: subclasses look at what goes through it.

    Args:
        cut: the side itself.
    """

    def __init__(self, cut: ActiveCut) -> None:
        self.widths: dict[str, int] = {}
        self._cut = cut

    async def setup(self) -> None:
        await self._cut.setup()
        self.widths = self._cut.widths

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        return await self._cut.forward(rows, train=train)

    async def backward(self, gradient: torch.Tensor) -> None:
        await self._cut.backward(gradient)

    def snapshot(self) -> object:
        return self._cut.snapshot()

    def restore(self, state: object) -> None:
        self._cut.restore(state)


class PerturbedCut(WatchedCut):
    """With Marvell's noise on the gradients.

    Attributes:
        labels: of the batch whose gradient goes back next, (n,).
    """

    def __init__(self, cut: ActiveCut, marvell: Marvell) -> None:
        super().__init__(cut)
        self.marvell = marvell
        self.labels = torch.empty(0)

    async def backward(self, gradient: torch.Tensor) -> None:
        await super().backward(self.marvell(gradient, self.labels))


class BoundedCut(WatchedCut):
    """Stops where z is longer than the declared bound on the weights allows, see `joint`.

    Args:
        cut: the side itself.
        bound: largest norm of a row of z.
    """

    def __init__(self, cut: ActiveCut, bound: float) -> None:
        super().__init__(cut)
        self._bound = bound

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        z = await super().forward(rows, train=train)
        check_norms(z, self._bound)
        return z
