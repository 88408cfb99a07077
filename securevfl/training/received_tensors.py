"""What a peer sends, checked before it is used: row numbers and tensors. For algorithms that send more than the cut
does."""

from __future__ import annotations

import numpy as np
import torch

from securevfl.errors import ProtocolError
from securevfl.transport import Array, to_device

__all__ = ["checked_rows", "read_tensor"]


def checked_rows(array: Array, count: int, sender: str) -> np.ndarray:
    """Numbers of the rows that a peer names, (n,) int64.

    Args:
        array: as it arrived.
        count: how many rows are numbered.
        sender: the peer.

    Raises:
        ProtocolError: something else, numbers that do not exist, or one twice.
    """
    rows = np.asarray(array)
    if rows.dtype != np.int64 or rows.ndim != 1 or not len(rows) or rows.min() < 0 or rows.max() >= count:
        raise ProtocolError(f"{sender!r} names rows to train on that are no numbers from 0 to {count - 1}")
    if len(np.unique(rows)) != len(rows):
        raise ProtocolError(f"{sender!r} names a row to train on twice")
    return rows


def read_tensor(array: Array, shape: tuple[int, ...], sender: str, device: str) -> torch.Tensor:
    """A peer's tensor, float32.

    Numbers that are not finite are found here on the CPU. On another device the link finds them, see `Link.receive`: to
    look at them here would make it wait for each message.

    Args:
        array: as it arrived.
        shape: that it has to have.
        sender: the peer.
        device: where it is used.

    Raises:
        ProtocolError: another shape or type, or numbers that are not finite.
    """
    value = array if isinstance(array, torch.Tensor) else torch.from_numpy(np.array(array))
    if tuple(value.shape) != shape or not value.is_floating_point():
        raise ProtocolError(
            f"{sender!r} sent {value.dtype} of shape {tuple(value.shape)}; floats {shape} were expected"
        )
    value = to_device(value.detach(), device).to(torch.float32)
    if value.device.type == "cpu" and not bool(torch.isfinite(value).all()):
        raise ProtocolError(f"{sender!r} sent numbers that are not finite; did its training diverge? Lower lr")
    return value
