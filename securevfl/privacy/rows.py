"""Releases of rows with Gaussian noise: clip, add noise, count how often each row was released."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from securevfl.errors import PolicyError
from securevfl.privacy.accountant import (
    GaussianRelease,
    epsilon_rdp,
)
from securevfl.privacy.noise import Entropy, Noised, RememberedRows, clip_rows, noised
from securevfl.privacy.repeated import RepeatedNoise
from securevfl.privacy.spent import Spent

__all__ = ["GaussianRows", "RowCounts", "RowRelease"]


class RowCounts:
    """How often each row was released, and how often it may have been besides, in an epoch that nobody remembers.

    Args:
        what: is released, for messages.
        rows: number of rows that exist.
        times: planned number of releases of one row; one more is refused.
    """

    def __init__(self, what: str, rows: int, times: int) -> None:
        self.times = times
        self._what = what
        self._counts = np.zeros(rows, dtype=np.int64)
        self._lost = np.zeros(rows, dtype=np.int64)

    def add(self, rows: np.ndarray) -> None:
        """One more release of each of these rows, (n,); one that is named twice counts twice.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was counted.
        """
        counts = self._counts.copy()
        np.add.at(counts, rows, 1)
        if counts.max(initial=0) > self.times:
            raise PolicyError(
                f"a row's {self._what} would be released {counts.max()} times; the budget was planned for "
                f"{self.times}: plan more epochs (and more noise) before training"
            )
        self._counts = counts

    def lose(self, rows: np.ndarray, times: int) -> None:
        """Count that each of these rows, (n,) without repeats, may have been released up to `times` times more by a run
        that broke off: not more often than was planned for it then, and beside what is planned now."""
        self._lost[rows] += np.minimum(times, self.times - self._counts[rows])

    @property
    def most(self) -> int:
        """Releases of the row that was released most often, those that may have been lost among them."""
        return int((self._counts + self._lost).max(initial=0))

    @property
    def lost(self) -> int:
        """The most that one row may have been released beyond what is remembered."""
        return int(self._lost.max(initial=0))

    def state(self) -> dict[str, object]:
        """Both counts of each row."""
        return {"counts": torch.from_numpy(self._counts.copy()), "lost": torch.from_numpy(self._lost.copy())}

    def load(self, state: Mapping[str, object]) -> None:
        """Go on from a `state`."""
        counts, lost = state.get("counts"), state.get("lost")
        for found in (counts, lost):
            if not isinstance(found, torch.Tensor) or len(found) != len(self._counts):
                raise TypeError("not a state of this release")
        self._counts, self._lost = (torch.as_tensor(found).numpy().copy() for found in (counts, lost))


class GaussianRows:
    """What every release of rows with Gaussian noise counts and tells. See `Counted`.

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
        self.what = what
        self.sigma = sigma
        self.clip = clip
        self.counts = RowCounts(what, rows, times)
        self._delta = delta
        self._entropy = entropy

    def lose(self, rows: np.ndarray, times: int) -> None:
        """See `RowCounts.lose`."""
        self.counts.lose(rows, times)

    def state(self) -> dict[str, object]:
        """How often each row was released."""
        return self.counts.state()

    def load(self, state: Mapping[str, object]) -> None:
        """Go on counting from a `state`."""
        self.counts.load(state)

    @property
    def planned(self) -> GaussianRelease:
        """What one row's releases amount to if all that are planned happen."""
        return GaussianRelease(self.sigma, self.counts.times)

    @property
    def planned_epsilon(self) -> float:
        """ε of one row if every planned release happens, by RDP."""
        return epsilon_rdp(self.planned, self._delta)

    @property
    def spent(self) -> Spent:
        """The price so far, of the row that was released most often."""
        release = GaussianRelease(self.sigma, self.counts.most)
        return Spent.of(self.what, release, self._delta, clip=self.clip)


class RowRelease(GaussianRows):
    """Releases rows with noise, and counts how often each row was released.

    Args:
        what: ``"activations"`` or ``"gradients"``.
        rows: number of rows that exist; releases are counted per row number.
        times: planned number of releases of one row; one more is refused.
        sigma: noise multiplier (standard deviation of the noise over Δ).
        clip: largest L2 norm of a row.
        sensitivity: Δ, how far a row moves at most when its content is replaced; 2·clip unless it is known to be less.
        delta: δ of the accounting.
        once: draw a row's noise once and release the same noisy row every time, at the price of one release;
            right when the rows do not change (identity bottom). It holds for as long as this object, or its state, is
            there: another one draws anew.
        entropy: source of random bytes.
        repeated: makes the same noise for the same row and values, in place of `entropy`; None to draw it.
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
        self.once = once
        self._repeated = repeated
        self._kept = RememberedRows(sigma, self.sensitivity)

    def __call__(
        self, values: torch.Tensor, rows: np.ndarray, *, also: Sequence[np.ndarray] = ()
    ) -> Noised[torch.Tensor]:
        """Clipped and noised `values` (n, d) of the rows numbered `rows` (n,); gradients flow through the clip.

        Args:
            values: what is released.
            rows: whose it is.
            also: further rows, (n,) each, that the values depend on; counted with them.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was released.
        """
        new = self._new(rows) if self.once else np.ones(len(rows), bool)
        fresh = rows[new]
        self.counts.add(np.concatenate([fresh, *also]))
        if not self.once:
            return self._noised(values, rows)
        if new.any():
            chosen = torch.from_numpy(np.flatnonzero(new)).to(values.device)
            self._kept.keep(fresh, self._noised(values[chosen], fresh))
        return self._kept.recall(rows)

    def _new(self, rows: np.ndarray) -> np.ndarray:
        """Where a row comes for the first time, (n,) bool; once in a batch that holds it several times."""
        new = np.zeros(len(rows), bool)
        new[np.unique(rows, return_index=True)[1]] = True
        new &= np.array([row not in self._kept for row in rows.tolist()], bool)
        return new

    def lose(self, rows: np.ndarray, times: int) -> None:
        """See `RowCounts.lose`. Noise that is drawn once and is remembered is not drawn again: nothing is lost."""
        if self.once:
            rows = np.setdiff1d(rows, self._kept.numbers())
        super().lose(rows, times)

    def _noised(self, values: torch.Tensor, rows: np.ndarray) -> Noised[torch.Tensor]:
        """The noisy rows to the last bit, for a sum with what is below the noise would leave the grid by amounts that
        tell of it; gradients come through a difference that is exactly zero."""
        clipped = clip_rows(values, self.clip)
        entropy = self._entropy
        if self._repeated is not None:
            entropy = self._repeated.entropy(f"{self.what} {self.sigma} {self.sensitivity}", rows, clipped)
        noisy = noised(clipped, self.sigma, self.sensitivity, entropy)
        return noisy.map(lambda value: value.to(values.dtype) + (clipped - clipped.detach()))

    def state(self) -> dict[str, object]:
        """How often each row was released, and the noisy rows that are released again."""
        return super().state() | {"kept": self._kept.state()}

    def load(self, state: Mapping[str, object]) -> None:
        """Go on counting from a `state`."""
        super().load(state)
        self._kept.load(state.get("kept"))
