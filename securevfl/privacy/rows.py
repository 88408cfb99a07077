"""Releases of rows with Gaussian noise: clip, add noise, count how often each row was released."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from securevfl.privacy.noise import Entropy, Noised, RememberedRows, add_noise, clip_rows
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.privacy.uses import GaussianUses

__all__ = ["GaussianRows", "RowRelease"]


class GaussianRows(GaussianUses):
    """Base of releases of rows with Gaussian noise. See `Counted`.

    Args:
        what: is released, as in `PROTECTS`.
        rows: number of rows that exist; releases are counted per row number.
        times: planned number of releases of one row; one more is refused.
        sigma: noise multiplier (standard deviation of the noise over the sensitivity).
        clip: largest L2 norm of a row.
        delta: δ of the accounting.
        entropy: source of random bytes.
    """

    def __init__(
        self, what: str, *, rows: int, times: int, sigma: float, clip: float, delta: float, entropy: Entropy
    ) -> None:
        words = f"a row's {what} would be released"
        super().__init__(what, words, rows=rows, times=times, sigma=sigma, clip=clip, delta=delta)
        self._entropy = entropy

    def counts_as_release(self, rows: np.ndarray) -> np.ndarray:
        """Where releasing these rows (n,) would be one more release, (n,) bool."""
        return np.ones(len(rows), bool)


class RowRelease(GaussianRows):
    """Releases rows with noise, and counts how often each row was released.

    Args:
        what: ``"activations"`` or ``"gradients"``.
        rows: number of rows that exist; releases are counted per row number.
        times: planned number of releases of one row; one more is refused.
        sigma: noise multiplier (standard deviation of the noise over Δ).
        clip: largest L2 norm of a row.
        sensitivity: Δ, how far a row moves at most when its content is replaced; 2·clip unless a smaller bound is
            known.
        delta: δ of the accounting.
        once: draw a row's noise once and release the same noisy row every time, at the price of one release; right if
            the rows do not change (identity bottom). It lasts as long as this object or its state; another object draws
            new noise.
        entropy: source of random bytes.
        repeated: gives the same noise for the same row and values, instead of `entropy`; None to draw it. It implies
            `once`: the last bits of activations depend on the other rows of the batch, and without `once` so would the
            noise.
    """

    def __init__(
        self,
        what: str,
        *,
        rows: int,
        times: int,
        sigma: float,
        clip: float,
        delta: float,
        sensitivity: float | None = None,
        once: bool = False,
        entropy: Entropy = os.urandom,
        repeated: RepeatedNoise | None = None,
    ) -> None:
        super().__init__(what, rows=rows, times=times, sigma=sigma, clip=clip, delta=delta, entropy=entropy)
        self.sensitivity = 2 * clip if sensitivity is None else min(sensitivity, 2 * clip)
        self.once = once or repeated is not None
        self._repeated = repeated
        self._kept = RememberedRows(sigma, self.sensitivity)

    def __call__(
        self, values: torch.Tensor, rows: np.ndarray, *, also: Sequence[np.ndarray] = ()
    ) -> Noised[torch.Tensor]:
        """Clipped and noised `values` (n, d) of the rows numbered `rows` (n,); gradients flow through the clip.

        Args:
            values: what is released.
            rows: whose it is.
            also: further rows, (n,) each, that the values depend on; they are counted as well.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was released.
        """
        new = self.counts_as_release(rows)
        fresh = rows[new]
        self.counts.add(np.concatenate([fresh, *also]))
        if not self.once or not len(rows):
            return self._add_noise(values, rows)
        if new.any():
            chosen = torch.from_numpy(np.flatnonzero(new)).to(values.device)
            self._kept.keep_rows(fresh, self._add_noise(values[chosen], fresh))
        return self._kept.recall_rows(rows)

    def counts_as_release(self, rows: np.ndarray) -> np.ndarray:
        """Where releasing these rows (n,) would be one more release, (n,) bool: everywhere, or, if noise is drawn once,
        at the first occurrence of each row not released before.
        """
        if not self.once:
            return np.ones(len(rows), bool)
        new = np.zeros(len(rows), bool)
        new[np.unique(rows, return_index=True)[1]] = True
        new &= np.array([row not in self._kept for row in rows.tolist()], bool)
        return new

    def _add_noise(self, values: torch.Tensor, rows: np.ndarray) -> Noised[torch.Tensor]:
        """The noisy rows, exact to the last bit: any arithmetic with the clipped values would leave the grid and reveal
        them. Gradients flow through a difference that is exactly zero.
        """
        clipped = clip_rows(values, self.clip)
        entropy = self._entropy
        if self._repeated is not None:
            entropy = self._repeated.entropy(f"{self.what} {self.sigma} {self.sensitivity}", rows, clipped)
        noisy = add_noise(clipped, self.sigma, self.sensitivity, entropy)
        return noisy.map(lambda value: value.to(values.dtype) + (clipped - clipped.detach()))

    def get_state(self) -> dict[str, object]:
        """The noisy rows to release again."""
        return {"kept": self._kept.get_state()}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Restore the rows of a `state`."""
        self._kept.load_state(state.get("kept"))
