"""Products modulo 2^64 on a torch device, for `securevfl_crypto.ring.large_products`.

The limbs of `securevfl_crypto.ring.limbs`: 22, 22 and 20 bits, multiplied as float64. Sums of 512 products stay below
2^53, so that any device that adds float64 as IEEE 754 says gives the exact words. `large_products` checks that before
it takes one: a library may emulate float64 with less.
"""

from __future__ import annotations

import numpy as np
import torch
from securevfl_crypto.ring import take_large_products

__all__ = ["TorchProduct", "place_products"]

_WIDTH, _LIMBS, _INNER = 22, 3, 512


class TorchProduct:
    """``product(a, b)``: uint64 (m, k) times (k, n) modulo 2^64.

    Args:
        device: where the limbs are multiplied, such as "cuda".
    """

    def __init__(self, device: str | torch.device) -> None:
        self._device = torch.device(device)

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The product. Rows and columns go to the device as words and come back as words."""
        return self.multiply(self.send(a), self.send(b)).cpu().numpy().view(np.uint64)

    def send(self, words: np.ndarray) -> torch.Tensor:
        """Words on the device, int64 of the same bits."""
        return torch.from_numpy(np.array(words).view(np.int64)).to(self._device)

    def multiply(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The product of words that are on the device: int64 (m, k) and (k, n) → (m, n)."""
        out = torch.zeros((a.shape[0], b.shape[1]), dtype=torch.int64, device=self._device)
        for start in range(0, a.shape[1], _INNER):
            rows, columns = _split_limbs(a[:, start : start + _INNER]), _split_limbs(b[start : start + _INNER])
            for shift in range(_LIMBS):
                for i in range(shift + 1):
                    out += (rows[i] @ columns[shift - i]).to(torch.int64) << (_WIDTH * shift)
        return out


def place_products(device: str) -> None:
    """Compute the large products of this process's shares on a device; on "cpu" by the kernels, as at the start.

    Raises:
        EngineError: the device multiplies wrongly.
    """
    if device == "cpu":
        take_large_products(None)
    else:
        take_large_products(TorchProduct(device))


def _split_limbs(words: torch.Tensor) -> list[torch.Tensor]:
    """Three limbs, float64; masks remove the copies of the sign that a shift of signed words brings in."""
    masks = ((1 << _WIDTH) - 1, (1 << _WIDTH) - 1, (1 << (64 - 2 * _WIDTH)) - 1)
    return [((words >> (_WIDTH * i)) & mask).to(torch.float64) for i, mask in enumerate(masks)]
