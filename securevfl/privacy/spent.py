"""The cost of releases so far, and which part of a row each kind of release depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from securevfl.privacy.accountant import (
    FEATURES,
    LABELS,
    GaussianRelease,
    Release,
    epsilon_exact,
    epsilon_prv,
    epsilon_rdp,
)
from securevfl.privacy.counts import RowCounts

__all__ = ["PROTECTS", "Counted", "Spent", "depends_on"]

PROTECTS = {
    "activations": (FEATURES,),
    "representations": (FEATURES,),
    "z": (FEATURES,),
    "gradients": (LABELS,),
    "labels": (LABELS,),
}
"""Which part of a row each kind of release depends on. A kind not listed here counts towards both."""


def depends_on(what: str) -> tuple[str, ...]:
    """Which part of a row a release of this kind depends on."""
    return PROTECTS.get(what, (FEATURES, LABELS))


@dataclass(frozen=True, slots=True)
class Spent:
    """What the releases of the most-released row cost so far.

    Attributes:
        what: what was released: ``"activations"``, ``"z"``, ``"gradients"``, ``"labels"``, ``"model"``, …
        epsilon_rdp: ε of these releases alone, by RDP.
        epsilon_prv: the same, by PRV.
        delta: δ of both.
        times: releases of that row.
        noise_multiplier: standard deviation of the noise over the sensitivity; 0 for randomised response.
        clip: largest norm; 0 for randomised response.
        release: what the accountant counts.
        exact: whether its noise was sized by the exact formula, so that ε by that formula is the one to state.
    """

    what: str
    epsilon_rdp: float
    epsilon_prv: float
    delta: float
    times: int
    noise_multiplier: float
    clip: float
    release: Release
    exact: bool = False

    @property
    def protects(self) -> tuple[str, ...]:
        """Which part of a row this release depends on."""
        return depends_on(self.what)

    @property
    def epsilon_exact(self) -> float | None:
        """ε by the exact formula of Gaussian noise; None unless the noise was sized by it."""
        return epsilon_exact(self.release, self.delta) if self.exact else None

    @classmethod
    def from_release(cls, what: str, release: Release, delta: float, *, clip: float) -> Spent:
        """Compute both accountants' ε for a release."""
        sigma = release.noise_multiplier if isinstance(release, GaussianRelease) else 0.0
        rdp, prv = epsilon_rdp(release, delta), epsilon_prv(release, delta)
        return cls(what, rdp, prv, delta, release.times, sigma, clip, release)


class Counted(Protocol):
    """A kind of release that a party counts.

    Attributes:
        what: what is released, as in `PROTECTS`.
        counts: how often each row was released.
    """

    what: str
    counts: RowCounts

    @property
    def planned_release(self) -> Release:
        """What one row's releases amount to if all that are planned happen."""
        ...

    @property
    def cost_so_far(self) -> Spent:
        """The price so far, of the row that was released most often."""
        ...

    def get_state(self) -> dict[str, object]:
        """What a checkpoint must store to resume."""
        ...

    def load_state(self, state: Mapping[str, object]) -> None:
        """Restore a `state`."""
        ...
