"""One side's share of a block of weights, and the linear optimiser that both sides run on their shares alone.

SGD with momentum μ and weight decay λ, the learning rate η multiplied into the gradient g beforehand:
``M ← μ M + η (g + λ W)``, ``W ← W − M``. It is linear in (W, M, g), so each side steps its shares by itself. With μ = λ
= 0 nothing is rounded and the sum of the shares is exact, in any ring. Otherwise shares are integers, each side rounds
its own, and the sum is within one unit of the last place of a step on the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.scheme import Ring

__all__ = ["Rule", "Share"]

_FRACTION = 30  # bits of μ and ηλ


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The optimiser's constants.

    Attributes:
        momentum: μ, from 0 to 0.99.
        decay: η λ, from 0 to below 1.

    Raises:
        MalformedError: out of range.
    """

    momentum: float = 0.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum <= 0.99:
            raise MalformedError(f"momentum is {self.momentum}; it lies from 0 to 0.99")
        if not 0 <= self.decay < 1:
            raise MalformedError(f"learning rate times weight decay is {self.decay}; it lies from 0 to below 1")

    @property
    def rounds(self) -> bool:
        """Whether a step rounds, so that shares have to be integers that never wrap."""
        return self.momentum > 0 or self.decay > 0


class Share:
    """A share of W, and of the optimiser's velocity M where there is momentum.

    Args:
        ring: what shares are numbers of.
        values: (d, h), an object array of Python integers.
        rule: of the optimiser.
    """

    def __init__(self, ring: Ring, values: np.ndarray, rule: Rule) -> None:
        if rule.rounds and ring.modulus is not None:
            raise MalformedError("momentum and weight decay round shares, which have to be integers then")
        self.ring = ring
        self.rule = rule
        self.values = ring.reduce(values)
        self.velocity: np.ndarray | None = None

    def step(self, gradient: np.ndarray) -> None:
        """Step on this side's share of η g, (d, h)."""
        change = gradient
        if self.rule.rounds:
            carried = self.values * round(self.rule.decay * 2**_FRACTION)
            if self.velocity is not None:
                carried = carried + self.velocity * round(self.rule.momentum * 2**_FRACTION)
            change = gradient + ((carried + (1 << (_FRACTION - 1))) >> _FRACTION)
            self.velocity = change if self.rule.momentum else None
        self.values = self.ring.reduce(self.values - change)

    def replace(self, fresh: np.ndarray) -> np.ndarray:
        """Take `fresh` as this side's share; what the other side has to add to its own."""
        change: np.ndarray = self.ring.reduce(self.values - fresh)
        self.values = fresh
        return change

    def add(self, change: np.ndarray) -> None:
        """What the other side's `replace` gave."""
        self.values = self.ring.reduce(self.values + change)

    def state(self) -> tuple[np.ndarray, np.ndarray | None]:
        """All of it, for `load`."""
        return self.values, self.velocity

    def load(self, values: np.ndarray, velocity: np.ndarray | None) -> None:
        """Go back to a state.

        Raises:
            MalformedError: another shape; or numbers of a larger ring, all of them from 0 and not all below the
                modulus: modulo another number the two shares add up to something else. Integers of both signs are
                shares in any ring. A smaller ring does not show.
        """
        if values.shape != self.values.shape:
            raise MalformedError(f"a share {values.shape}; {self.values.shape} was expected")
        modulus = self.ring.modulus
        if modulus is not None and len(values) and values.min() >= 0 and values.max() >= modulus:
            raise MalformedError(
                f"a share of numbers up to {int(values.max()).bit_length()} bits, where they are modulo one of "
                f"{modulus.bit_length()}: it was made under another scheme or block; name that scheme in the job"
            )
        self.values, self.velocity = self.ring.reduce(values), velocity
