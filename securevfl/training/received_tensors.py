"""Check row numbers and tensors that a peer sent. For algorithms with messages beside the cut's."""

from __future__ import annotations

import numpy as np
import torch

from securevfl.errors import ProtocolError
from securevfl.privacy.outcomes import NumbersNotFinite
from securevfl.transport import Array, to_device

__all__ = ["checked_rows", "read_tensor"]


def checked_rows(array: Array, count: int, sender: str) -> np.ndarray:
    """Check and return the row numbers that a peer sent, (n,) int64.

    Args:
        array: as it arrived.
        count: how many rows are numbered.
        sender: the peer.

    Raises:
        ProtocolError: it is something else, a number does not exist, or a number occurs twice.
    """
    rows = np.asarray(array)
    if rows.dtype != np.int64 or rows.ndim != 1 or not len(rows) or rows.min() < 0 or rows.max() >= count:
        raise ProtocolError(f"{sender!r} sent rows to train on that are not numbers from 0 to {count - 1}")
    if len(np.unique(rows)) != len(rows):
        raise ProtocolError(f"{sender!r} sent a row to train on twice")
    return rows


def read_tensor(array: Array, shape: tuple[int, ...], sender: str, device: str) -> torch.Tensor:
    """Check and return a peer's tensor, float32.

    On the CPU, this finds numbers that are not finite. For other devices `Link.receive` does: a check here would make
    the device wait for each message.

    Args:
        array: as it arrived.
        shape: that it must have.
        sender: the peer.
        device: where it is used.

    Raises:
        ProtocolError: it has another shape or type, or numbers that are not finite.
    """
    value = array if isinstance(array, torch.Tensor) else torch.from_numpy(np.array(array))
    if tuple(value.shape) != shape or not value.is_floating_point():
        raise ProtocolError(
            f"{sender!r} sent {value.dtype} of shape {tuple(value.shape)}; floats {shape} were expected"
        )
    value = to_device(value.detach(), device).to(torch.float32)
    if value.device.type == "cpu" and not bool(torch.isfinite(value).all()):
        raise NumbersNotFinite(f"{sender!r} sent numbers that are not finite; did its training diverge? Lower lr")
    return value
