"""One side's share of a block of weights, and the linear optimiser that each side runs on its share.

SGD with momentum μ and weight decay λ; the learning rate η is already part of the gradient g:
``M ← μ M + η (g + λ W)``, ``W ← W − M``. The step is linear in (W, M, g), so each side computes it on its shares. With
μ = λ = 0 nothing is rounded, and the sum of the shares is exact in any ring. Otherwise shares are integers, each side
rounds its own, and the sum differs from a step on the whole by at most one unit in the last place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.scheme import Ring

__all__ = ["OptimiserRule", "WeightShare"]

_FRACTION = 30  # fractional bits of μ and ηλ


@dataclass(frozen=True, kw_only=True)
class OptimiserRule:
    """The constants of the optimiser.

    Attributes:
        momentum: μ, from 0 to 0.99.
        decay: η λ, from 0 to below 1.

    Raises:
        MalformedError: a constant is out of range.
    """

    momentum: float = 0.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum <= 0.99:
            raise MalformedError(f"momentum is {self.momentum}; expected 0 to 0.99")
        if not 0 <= self.decay < 1:
            raise MalformedError(f"learning rate times weight decay is {self.decay}; expected 0 to below 1")

    @property
    def rounds(self) -> bool:
        """Whether a step rounds; shares must then be integers that never wrap."""
        return self.momentum > 0 or self.decay > 0


class WeightShare:
    """A share of the weights W and, with momentum, of the velocity M.

    Args:
        ring: the ring of the shares.
        values: (d, h), an object array of Python integers.
        rule: the optimiser's constants.

    Raises:
        MalformedError: the rule rounds and the ring is modular.
    """

    def __init__(self, ring: Ring, values: np.ndarray, rule: OptimiserRule) -> None:
        if rule.rounds and ring.modulus is not None:
            raise MalformedError("momentum and weight decay round shares; build the block with integer_shares=True")
        self.ring = ring
        self.rule = rule
        self.values = ring.reduce(values)
        self.velocity: np.ndarray | None = None

    def step(self, gradient: np.ndarray) -> None:
        """Take one step along this side's share of η g, (d, h), an object array of the ring."""
        change = gradient
        if self.rule.rounds:
            carried = self.values * round(self.rule.decay * 2**_FRACTION)
            if self.velocity is not None:
                carried = carried + self.velocity * round(self.rule.momentum * 2**_FRACTION)
            # Half a unit is added first, so the shift rounds to the nearest integer instead of down.
            change = gradient + ((carried + (1 << (_FRACTION - 1))) >> _FRACTION)
            self.velocity = change if self.rule.momentum else None
        self.values = self.ring.reduce(self.values - change)

    def replace(self, fresh: np.ndarray) -> np.ndarray:
        """Replace this side's share by `fresh`; returns the change, (d, h), that the other side must `add`."""
        change: np.ndarray = self.ring.reduce(self.values - fresh)
        self.values = fresh
        return change

    def add(self, change: np.ndarray) -> None:
        """Add the change that the other side's `replace` returned."""
        self.values = self.ring.reduce(self.values + change)

    def state(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The values and the velocity (None without momentum), for `load`."""
        return self.values, self.velocity

    def load(self, values: np.ndarray, velocity: np.ndarray | None) -> None:
        """Restore a `state`.

        Raises:
            MalformedError: the shape differs, or the numbers belong to a larger ring: none is negative and some reach
                the modulus, so that the two shares would add up to something else. Integers of both signs are shares
                in any ring. Numbers of a smaller ring cannot be detected.
        """
        if values.shape != self.values.shape:
            raise MalformedError(f"a share has shape {values.shape}; expected {self.values.shape}")
        modulus = self.ring.modulus
        if modulus is not None and len(values) and values.min() >= 0 and values.max() >= modulus:
            raise MalformedError(
                f"a share of numbers up to {int(values.max()).bit_length()} bits, where they are modulo one of "
                f"{modulus.bit_length()}: it comes from another scheme or block; name that scheme in the job"
            )
        self.values, self.velocity = self.ring.reduce(values), velocity
