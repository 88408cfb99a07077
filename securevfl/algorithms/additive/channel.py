"""How the sums of an epoch are made: the seam between the additive model and a protection.

A channel is one party's end. It gets the party's contrasts and its part of each row, and returns the sums of the
party's own columns: of contrasts times ``r = part of the active party − Σ parts of the passive parties``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from securevfl.algorithms.additive.units import PART_ONE
from securevfl.errors import ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.transport import Kind

__all__ = ["PART", "RESIDUAL", "ActivePlainSums", "PassivePlainSums", "SumsChannel", "check_part", "sum_contrasts"]

PART = "additive/part"
RESIDUAL = "additive/rest"
_LARGEST = 2 * PART_ONE
"""Parts and residuals with the largest slack."""


class SumsChannel(Protocol):
    """One party's end of an epoch's sums.

    Attributes:
        loss: the sum of squared residuals of the last epoch, at the active party; NaN where nobody learns it.
    """

    loss: float

    async def exchange(self, epoch: int, contrasts: np.ndarray, part: np.ndarray) -> np.ndarray:
        """The sums of this party's columns, int64 (columns, outputs), in units of 2⁻²⁰.

        Args:
            epoch: from 1.
            contrasts: of this party's columns, int64 (n, columns), in units of 2⁻⁸. At the active party the first
                column is the intercept's.
            part: int64 (n, outputs), in units of 2⁻¹²: targets less its own part at the active party, its part at a
                passive one.
        """
        ...


def sum_contrasts(contrasts: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """``contrastsᵀ residual``, int64 (columns, outputs). Exact: below 2⁵³ for up to 2³² rows."""
    return (contrasts.T.astype(np.float64) @ residual.astype(np.float64)).astype(np.int64)


def check_part(part: np.ndarray, shape: tuple[int, ...], peer: str) -> np.ndarray:
    """Check what a peer sent as its part, or as residuals.

    Raises:
        ProtocolError: another shape, or numbers beyond one.
    """
    if part.dtype != np.int64 or part.shape != shape or (part.size and np.abs(part).max() > _LARGEST):
        raise ProtocolError(f"{peer!r} sent {part.dtype} {part.shape} as parts of {shape}, or numbers beyond one")
    return part


class ActivePlainSums:
    """The active party's end without protection: it reads each party's part and tells all of them the residuals.

    Args:
        links: to the passive parties.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self.loss = math.nan

    async def exchange(self, epoch: int, contrasts: np.ndarray, part: np.ndarray) -> np.ndarray:
        """See `SumsChannel.exchange`."""
        residual = part.copy()
        for link in self._links:
            message = await link.receive(Kind.ACTIVATION, PART, "part")
            residual -= check_part(np.asarray(message.arrays["part"]), part.shape, link.peer)
        await fan_out(self._links, lambda link: link.send(Kind.GRADIENT, RESIDUAL, residual=residual))
        self.loss = float(np.square(residual / PART_ONE).sum())
        return sum_contrasts(contrasts, residual)


class PassivePlainSums:
    """A passive party's end without protection.

    Args:
        link: to the active party.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.loss = math.nan

    async def exchange(self, epoch: int, contrasts: np.ndarray, part: np.ndarray) -> np.ndarray:
        """See `SumsChannel.exchange`."""
        await self._link.send(Kind.ACTIVATION, PART, part=part)
        message = await self._link.receive(Kind.GRADIENT, RESIDUAL, "residual")
        return sum_contrasts(contrasts, check_part(np.asarray(message.arrays["residual"]), part.shape, self._link.peer))
