"""The cut of a protection that trains the whole network on shares: there is none. Roles are made with these sides, and
their programs never let anything through them."""

from __future__ import annotations

from typing import NoReturn

import torch

from securevfl.errors import ProtocolError
from securevfl.privacy import Noised, NoiseShare

__all__ = ["NoActiveCut", "NoPassiveCut"]


def _refuse_use() -> NoReturn:
    raise ProtocolError("a role sent something over the cut, and the job trains on shares: nothing was sent")


class NoActiveCut:
    """The active party's side.

    Attributes:
        widths: see `ActiveCut.widths`; the program fills it in.
        step_error: none.
    """

    step_error = 0.0

    def __init__(self) -> None:
        self.widths: dict[str, int] = {}

    async def setup(self) -> None:
        """Nothing has to be agreed on."""

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """Refused."""
        _refuse_use()

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """Refused."""
        _refuse_use()

    def snapshot(self) -> object:
        """Nothing."""
        return None

    def restore(self, state: object) -> None:
        """Nothing."""


class NoPassiveCut:
    """A passive party's side."""

    async def setup(self, width: int, *, trainable: bool) -> None:
        """Nothing has to be agreed on."""

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        """Refused."""
        _refuse_use()

    async def backward(self) -> torch.Tensor | None:
        """Refused."""
        _refuse_use()

    def snapshot(self) -> object:
        """Nothing."""
        return None

    def restore(self, state: object) -> None:
        """Nothing."""
