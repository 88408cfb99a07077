"""Differentially private releases of rows: clip, add Gaussian noise, count what each row has spent.

The noise comes from the operating system's random bytes, through the inverse normal distribution function, and its
result is rounded to a grid of 2⁻²⁰ sensitivities: the low bits of a float would otherwise tell about the value
below the noise (Mironov 2012, "On significance of the least significant bits for differential privacy"). The grid keeps
that channel narrow; it does not make the sampler exactly discrete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from securevfl.errors import InputError, PolicyError
from securevfl.privacy.accountant import GaussianRelease, calibrate, epsilon_prv, epsilon_rdp

__all__ = ["DP", "Entropy", "RowRelease", "Spent", "clip_rows", "gaussian"]

Entropy = Callable[[int], bytes]
"""Gives that many random bytes; the operating system's unless a test replaces it."""


@dataclass(frozen=True, kw_only=True)
class DP:
    """Differential privacy on what crosses the cut.

    Two kinds of release, each with its own budget (ε, δ) per row: *activations* protect a passive party's features
    from the active party; *gradients* protect the labels from the passive parties.

    Gradients are noised at the logits, where labels enter: ``∂loss/∂logits`` of each row is clipped and noised, and all
    that follows (the gradient at the cut, the top model itself) is computed from that. Noise at the cut alone would
    not do: a top model trained on exact labels carries them into the gradients of other rows.

    Attributes:
        epsilon: budget of one row for each kind of release, over the whole training.
        delta: probability with which ε may be exceeded; well below one over the number of rows.
        activations: whether activations are noised.
        gradients: whether gradients are noised.
        clip_activations: largest L2 norm of one row's activations; longer rows are scaled down.
        clip_gradients: largest L2 norm of one row's gradient ∂loss/∂logits; with two classes it is below 1 anyway.
        noise_multiplier: σ over the sensitivity, instead of deriving it from `epsilon`.
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    activations: bool = True
    gradients: bool = True
    clip_activations: float = 1.0
    clip_gradients: float = 1.0
    noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "clip_activations", "clip_gradients"):
            if not getattr(self, name) > 0:
                raise InputError(f"dp.{name} is {getattr(self, name)}; it has to be a positive number")
        if not 0 < self.delta < 1:
            raise InputError(f"dp.delta is {self.delta}; it lies between 0 and 1, well below one over the rows")
        if self.noise_multiplier is not None and not self.noise_multiplier >= 0.1:
            raise InputError(
                f"dp.noise_multiplier is {self.noise_multiplier}; it has to be a positive number from 0.1: less noise "
                "protects nothing, and accountants cannot count it"
            )
        if not (self.activations or self.gradients):
            raise InputError("dp protects neither activations nor gradients; switch one on, or leave dp out")

    def sigma(self, times: int) -> float:
        """Noise multiplier with which `times` releases of a row stay within the budget."""
        return self.noise_multiplier or calibrate(self.epsilon, self.delta, times)

    def describe(self) -> str:
        """For titles: ``DP on labels, ε = 8``."""
        what = (
            "features + labels" if self.activations and self.gradients else "features" if self.activations else "labels"
        )
        size = f"σ/Δ = {self.noise_multiplier:g}" if self.noise_multiplier else f"ε = {self.epsilon:g}"
        return f"DP on {what}, {size}"


@dataclass(frozen=True, slots=True)
class Spent:
    """What the releases of the most-released row cost so far."""

    what: str
    epsilon_rdp: float
    epsilon_prv: float
    delta: float
    times: int
    noise_multiplier: float
    clip: float


def clip_rows(rows: torch.Tensor, bound: float) -> torch.Tensor:
    """Scale rows (n, d) that are longer than `bound` in L2 norm down to it; differentiable."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows * torch.clamp(bound / norms.clamp_min(1e-12), max=1.0)


def gaussian(shape: tuple[int, ...], std: float, entropy: Entropy = os.urandom) -> torch.Tensor:
    """Independent N(0, std²), float64, from `entropy` (52 random bits a value, inverse distribution function)."""
    count = int(np.prod(shape))
    words = np.frombuffer(entropy(8 * count), dtype="<u8").reshape(shape) >> np.uint64(12)
    uniform = torch.from_numpy((words.astype(np.float64) + 0.5) * 2.0**-52)  # strictly between 0 and 1
    noise: torch.Tensor = torch.special.ndtri(uniform) * std
    return noise


class RowRelease:
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
            right when the rows do not change (identity bottom).
        entropy: source of random bytes.
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
    ) -> None:
        self.what = what
        self.sigma = sigma
        self.clip = clip
        self.sensitivity = 2 * clip if sensitivity is None else min(sensitivity, 2 * clip)
        self._delta = delta
        self._times = times
        self._counts = np.zeros(rows, dtype=np.int64)
        self._once = once
        self._kept: dict[int, torch.Tensor] = {}
        self._entropy = entropy

    def __call__(self, values: torch.Tensor, rows: np.ndarray, *, also: Sequence[np.ndarray] = ()) -> torch.Tensor:
        """Clipped and noised `values` (n, d) of the rows numbered `rows` (n,); gradients flow through the clip.

        Args:
            values: what is released.
            rows: whose it is.
            also: further rows, (n,) each, that the values depend on; counted with them.

        Raises:
            PolicyError: a row would be released more often than planned; nothing was released.
        """
        new = self._new(rows) if self._once else np.ones(len(rows), bool)
        fresh = rows[new]
        counts = self._counts.copy()
        np.add.at(counts, np.concatenate([fresh, *also]), 1)
        if counts.max(initial=0) > self._times:
            raise PolicyError(
                f"a row's {self.what} would be released {counts.max()} times; the budget was planned for "
                f"{self._times}: plan more epochs (and more noise) before training"
            )
        self._counts = counts
        if not self._once:
            return self._noised(values)
        if new.any():
            chosen = torch.from_numpy(np.flatnonzero(new)).to(values.device)
            for row, value in zip(fresh.tolist(), self._noised(values[chosen]).detach(), strict=True):
                self._kept[row] = value
        return torch.stack([self._kept[row] for row in rows.tolist()])

    def _new(self, rows: np.ndarray) -> np.ndarray:
        """Where a row comes for the first time, (n,) bool; once in a batch that holds it several times."""
        new = np.zeros(len(rows), bool)
        new[np.unique(rows, return_index=True)[1]] = True
        new &= np.array([row not in self._kept for row in rows.tolist()], bool)
        return new

    def _noised(self, values: torch.Tensor) -> torch.Tensor:
        noise = gaussian(tuple(values.shape), self.sigma * self.sensitivity, self._entropy).to(values.device)
        grid = self.sensitivity * 2.0**-20
        clipped = clip_rows(values, self.clip)
        noised = torch.round((clipped.detach().double() + noise) / grid) * grid
        return clipped + (noised.to(values.dtype) - clipped.detach())

    def state(self) -> dict[str, object]:
        """How often each row was released, and the noisy rows that are released again."""
        return {"counts": torch.from_numpy(self._counts.copy()), "kept": [[k, v] for k, v in self._kept.items()]}

    def load(self, state: Mapping[str, object]) -> None:
        """Go on counting from a `state`."""
        counts, kept = state["counts"], state["kept"]
        if not isinstance(counts, torch.Tensor) or not isinstance(kept, list) or len(counts) != len(self._counts):
            raise TypeError("not a state of this release")
        self._counts = counts.numpy().copy()
        self._kept = {int(row): value for row, value in kept}

    @property
    def planned_epsilon(self) -> float:
        """ε of one row if every planned release happens, by RDP."""
        return epsilon_rdp(GaussianRelease(self.sigma, self._times), self._delta)

    @property
    def spent(self) -> Spent:
        """The price so far, of the row that was released most often."""
        times = int(self._counts.max(initial=0))
        release = GaussianRelease(self.sigma, times)
        rdp, prv = epsilon_rdp(release, self._delta), epsilon_prv(release, self._delta)
        return Spent(self.what, rdp, prv, self._delta, times, self.sigma, self.clip)
