"""Weights of the cut that a finished model opens to the party whose columns they belong to.

In a plain cut a passive party has its block anyway. In a sealed one nobody has it: an algorithm whose result is a table
of weights, such as a scorecard, hands the active party's share to the passive one, once, as a declared message. No
algorithm may hand a passive party's share to the active one, which sees z.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
import securevfl_crypto as crypto

from securevfl.errors import ProtocolError
from securevfl.transport import Array

__all__ = ["HasShares", "OpensWeights", "read_share", "share_bytes"]

_MOST_BYTES = 64
"""Of one number of a share: those of BFV have 8 to 16 bytes, integers of Paillier about as many."""


@runtime_checkable
class HasShares(Protocol):
    """An active party's side that has shares of the passive parties' weights."""

    def weight_shares(self) -> Mapping[str, np.ndarray]:
        """Passive party → V_p, (d_p, h), an object array of integers."""
        ...


@runtime_checkable
class OpensWeights(Protocol):
    """A passive party's side that can tell its block."""

    def opened_weights(self, other: np.ndarray | None) -> np.ndarray:
        """W_p, (d_p, h) float64.

        Args:
            other: the active party's share V_p, (d_p, h), an object array; None where there are no shares.
        """
        ...


def share_bytes(share: np.ndarray) -> np.ndarray:
    """A share as a message, uint8 (d, h, bytes): as many bytes as its longest number needs."""
    longest = max((int(value).bit_length() for value in share.flat), default=0)
    return crypto.bigints_to_bytes(share, longest // 8 + 1)


def read_share(array: Array, shape: tuple[int, int], sender: str) -> np.ndarray:
    """The share that `share_bytes` wrote, (d, h), an object array.

    Raises:
        ProtocolError: another type or shape, or longer numbers than any share has.
    """
    raw = np.asarray(array)
    if raw.dtype != np.uint8 or raw.shape[:2] != shape or raw.ndim != 3 or not 1 <= raw.shape[2] <= _MOST_BYTES:
        raise ProtocolError(
            f"{sender!r} sent a share as {raw.dtype} {raw.shape}; uint8 {shape} of 1 to {_MOST_BYTES} bytes is possible"
        )
    return crypto.bigints_from_bytes(raw, shape, raw.shape[2])
