"""Differentially private releases of rows: clip, add Gaussian noise, count what each row has spent.

`DP` is what a job asks for, `RowRelease` does it, and `Spent` tells what it cost. Where the noise comes from: `noise`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from securevfl.errors import InputError, UnknownNameError
from securevfl.privacy.accountant import (
    FEATURES,
    LABELS,
    GaussianRelease,
    Release,
    calibrate,
    epsilon_prv,
    epsilon_rdp,
)

__all__ = [
    "DP",
    "PROTECTS",
    "Counted",
    "Spent",
    "protects",
]

PROTECTS = {
    "activations": (FEATURES,),
    "representations": (FEATURES,),
    "z": (FEATURES,),
    "gradients": (LABELS,),
    "labels": (LABELS,),
}
"""What of a row each kind of release depends on; a release that is not named here counts against all of it."""


def protects(what: str) -> tuple[str, ...]:
    """What of a row a release of this kind depends on."""
    return PROTECTS.get(what, (FEATURES, LABELS))


@dataclass(frozen=True, kw_only=True)
class DP:
    """Differential privacy on what crosses the cut, on labels, or of a party's own model.

    Each kind of release has its own budget (ε, δ) per row: *activations* protect a passive party's features from the
    active party; *gradients* (or randomised labels) protect the labels from the passive parties; *local* protects the
    rows of a party that trains alone from whoever gets its model.

    Gradients are noised at the logits, where labels enter: ``∂loss/∂logits`` of each row is clipped and noised, and all
    that follows (the gradient at the cut, the top model itself) is computed from that. Noise at the cut alone would
    not do: a top model trained on exact labels carries them into the gradients of other rows.

    Attributes:
        epsilon: budget of one row for each kind of release, over the whole training.
        delta: probability with which ε may be exceeded; well below one over the number of rows.
        activations: whether activations are noised.
        gradients: whether gradients are noised; off where `labels` says how else labels are protected.
        clip_activations: largest L2 norm of one row's activations; longer rows are scaled down.
        clip_gradients: largest L2 norm of one row's gradient ∂loss/∂logits; with two classes it is below 1 anyway.
        noise_multiplier: σ over the sensitivity, instead of deriving it from `epsilon`.
        where: noise of features on the ``"activations"``, or on their sum ``"z"`` inside the ciphertext.
        weight_bound: R, the largest operator norm that the cut's weights are declared to have, for noise on z.
        labels: ``"gradients"`` (as `gradients` says), ``"randomised_response"`` (labels are drawn once, ε each), or
            ``"marvell"`` (no differential privacy: noise at the cut against leaks of labels, two classes only).
        power: of Marvell's noise, over the squared distance of the classes' mean gradients.
        local: DP-SGD for the model of a party that trains alone; nothing else is released then.
        clip_model: largest L2 norm of one row's gradient in DP-SGD.
        on_budget: with a `noise_multiplier`: ``"refuse"`` leaves it to policies to refuse the plan; ``"stop"`` ends
            training with the last epoch that `epsilon` allows.
    """

    epsilon: float = 8.0
    delta: float = 1e-5
    activations: bool = True
    gradients: bool = True
    clip_activations: float = 1.0
    clip_gradients: float = 1.0
    noise_multiplier: float | None = None
    where: str = "activations"
    weight_bound: float = 0.0
    labels: str = "gradients"
    power: float = 4.0
    local: bool = False
    clip_model: float = 1.0
    on_budget: str = "refuse"

    def __post_init__(self) -> None:
        for name in ("epsilon", "clip_activations", "clip_gradients", "clip_model", "power"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"dp.{name} is {getattr(self, name)}; it has to be a positive number")
        if not 0 < self.delta < 1:
            raise InputError(f"dp.delta is {self.delta}; it lies between 0 and 1, well below one over the rows")
        if self.noise_multiplier is not None and not self.noise_multiplier >= 0.1:
            raise InputError(
                f"dp.noise_multiplier is {self.noise_multiplier}; it has to be a positive number from 0.1: less noise "
                "protects nothing, and accountants cannot count it"
            )
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise UnknownNameError(f"dp.{name}", getattr(self, name), known)
        if self.local or self.labels != "gradients":
            object.__setattr__(self, "gradients", False)
        if self.local:
            if self.labels != "gradients":
                raise InputError(f"dp.local releases a model and no labels; dp.labels {self.labels!r} has to go")
            object.__setattr__(self, "activations", False)
        elif not (self.activations or self.gradients or self.labels != "gradients"):
            raise InputError("dp protects neither activations nor gradients; switch one on, or leave dp out")
        if self.where == "z" and not 0 < self.weight_bound < math.inf:
            raise InputError(
                f"dp.where is 'z' and dp.weight_bound is {self.weight_bound}; declare a positive bound on the operator "
                "norm of the cut's weights, for the noise is sized by it"
            )
        if self.on_budget == "stop" and (self.noise_multiplier is None or not self._gaussian):
            raise InputError(
                "dp.on_budget is 'stop' and nothing of a fixed dp.noise_multiplier is released epoch by epoch: set "
                "it, or leave on_budget out: without one the noise is sized so that all epochs fit into epsilon"
            )

    @property
    def _gaussian(self) -> bool:
        return self.activations or self.gradients or self.local

    @property
    def private(self) -> bool:
        """Whether anything is differentially private; Marvell's perturbation is not."""
        return self._gaussian or self.labels == "randomised_response"

    def sigma(self, times: int) -> float:
        """Noise multiplier with which `times` releases of a row stay within the budget."""
        return self.noise_multiplier or calibrate(self.epsilon, self.delta, times)

    def affords(self, times: int) -> bool:
        """Whether `times` releases of a row, with the noise that they would have, cost at most `epsilon`."""
        return epsilon_rdp(GaussianRelease(self.sigma(times), times), self.delta) <= self.epsilon * (1 + 1e-9)

    def describe(self) -> str:
        """For titles: ``DP on labels, ε = 8``."""
        marvell = f"Marvell on labels, power {self.power:g}" if self.labels == "marvell" else ""
        if not self.private:
            return marvell
        features = ["features at z" if self.where == "z" else "features"] if self.activations else []
        noisy = ["labels"] if self.gradients else ["randomised labels"] if self.labels == "randomised_response" else []
        what = "the local model" if self.local else " + ".join(features + noisy)
        size = f"ε = {self.epsilon:g}"
        if self.noise_multiplier and self._gaussian:
            size = f"σ/Δ = {self.noise_multiplier:g}" + (f", {size}" if noisy == ["randomised labels"] else "")
            size += f", up to ε = {self.epsilon:g}" if self.on_budget == "stop" else ""
        return f"DP on {what}, {size}" + (f"; {marvell}" if marvell else "")


_CHOICES = {
    "where": ("activations", "z"),
    "labels": ("gradients", "marvell", "randomised_response"),
    "on_budget": ("refuse", "stop"),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """What the releases of the most-released row cost so far.

    Attributes:
        what: was released: ``"activations"``, ``"z"``, ``"gradients"``, ``"labels"``, ``"model"``, …
        epsilon_rdp: ε of these releases alone, by RDP.
        epsilon_prv: the same, by PRV.
        delta: with which.
        times: releases of that row.
        noise_multiplier: standard deviation of the noise over the sensitivity; 0 for randomised response.
        clip: largest norm; 0 for randomised response.
        release: what the accountant counts.
    """

    what: str
    epsilon_rdp: float
    epsilon_prv: float
    delta: float
    times: int
    noise_multiplier: float
    clip: float
    release: Release

    @property
    def protects(self) -> tuple[str, ...]:
        """What of the row this depends on."""
        return protects(self.what)

    @classmethod
    def of(cls, what: str, release: Release, delta: float, *, clip: float) -> Spent:
        """With both accountants' ε."""
        sigma = release.noise_multiplier if isinstance(release, GaussianRelease) else 0.0
        rdp, prv = epsilon_rdp(release, delta), epsilon_prv(release, delta)
        return cls(what, rdp, prv, delta, release.times, sigma, clip, release)


class Counted(Protocol):
    """A kind of release that a party counts.

    Attributes:
        what: is released, as in `PROTECTS`.
    """

    what: str

    @property
    def planned(self) -> Release:
        """What one row's releases amount to if all that are planned happen."""
        ...

    @property
    def spent(self) -> Spent:
        """The price so far, of the row that was released most often."""
        ...

    def state(self) -> dict[str, object]:
        """What has to be remembered to go on counting."""
        ...

    def load(self, state: Mapping[str, object]) -> None:
        """Go on from a `state`."""
        ...
