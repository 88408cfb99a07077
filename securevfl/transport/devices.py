"""Asynchronous copies between the host and an accelerator: nobody waits until the numbers are needed.

A program on the host runs ahead of the device that computes for it. Reading a number of the device (a loss, a digest, a
check that all are finite) makes the host wait until the device has caught up. So copies go through pinned memory, which
the device reads and writes on its own, and are read later. PyTorch's notes on CUDA semantics, "Asynchronous execution"
and "Use pinned memory buffers", describe both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["HostCopy", "fits_device", "on_host", "to_device", "wait_for_device"]

_NUMPY = (np.ndarray, np.generic)
_SHARE = 0.5
"""Largest share of a device's free memory for one table."""


def on_host(array: np.ndarray | torch.Tensor) -> bool:
    """Whether an array is in this machine's main memory."""
    return isinstance(array, _NUMPY) or array.is_cpu


class HostCopy:
    """A copy of a device's tensor in the host's memory; begun at once, in the order of what the device was asked for.

    Args:
        tensor: not on the host; what is written to it later does not show.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        import torch

        detached = tensor.detach()
        self._event: torch.cuda.Event | None = None
        if tensor.device.type != "cuda":
            self._copy = detached.cpu()
            return
        self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._copy.copy_(detached, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(tensor.device))

    def wait_array(self) -> np.ndarray:
        """The numbers; waits until they are there."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None
        found: np.ndarray = self._copy.numpy()
        return found


def to_device(array: np.ndarray | torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """An array of the host on a device, without waiting for the copy; by reference where it is there already and can be
    written to."""
    import torch

    if isinstance(array, np.ndarray):
        host = torch.from_numpy(array if array.flags.writeable else array.copy())  # torch has no tensors to read only
    else:
        host = array
    if host.is_cpu and (device == "cpu" or torch.device(device).type == "cpu"):
        return host  # asking torch takes longer
    if torch.device(device).type == "cuda" and host.device.type == "cpu":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)


def fits_device(tensor: torch.Tensor, device: str | torch.device) -> bool:
    """Whether a whole table may stay on a device; otherwise its batches are copied one at a time."""
    import torch

    if torch.device(device).type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return tensor.nbytes <= _SHARE * free


def wait_for_device(device: str | torch.device) -> None:
    """Return when the device has done all that it was asked for: before a clock is read."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
