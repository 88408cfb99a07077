"""Server optimisers of Multi-VFL: from the mean change of the label owners' weights to the next weights.

FedAvg (McMahan et al. 2017) with a server rate, FedAdam and FedYogi (Reddi et al. 2021, arXiv 2003.00295, algorithm 2,
with Adam's bias correction, which line 7 of Multi-VFL has too), and FedDemonAdam in two readings:

- ``"printed"``: `ServerAggregation` of Multi-VFL (arXiv 2106.05468, algorithm 1), line by line. Its line 2 assigns to
  β1 itself, so the decay compounds: each round multiplies β1/(1 − β1) by 1 − r/R, and momentum is over after about
  √(2 R ln 90) rounds. v is the mean square of the momentum m, and the step is divided by 1 − β1^r.
- ``"closed"``: β_r follows from the first β1 (Chen et al. 2019, arXiv 1910.04952), v is the mean square of the change
  as in Adam, and the step is not divided by 1 − β1^r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from securevfl.errors import UnknownNameError

__all__ = ["RATES", "SERVERS", "DemonReading", "ServerName", "ServerOptimiser", "demon_momentum"]

ServerName = Literal["fedavg", "fedadam", "fedyogi", "feddemonadam"]
SERVERS: tuple[ServerName, ...] = get_args(ServerName)
DemonReading = Literal["printed", "closed"]
RATES: dict[str, float] = {"fedavg": 1.0, "fedadam": 1e-3, "fedyogi": 1e-3, "feddemonadam": 1e-3}
"""Default η_s: 1 for FedAvg, which then takes the mean; for the others the rate of Multi-VFL's Table 2."""


def demon_momentum(beta: float, done: float) -> float:
    """The decaying momentum β (1 − r/R) / ((1 − β) + β (1 − r/R)): β at first, 0 at the end.

    Args:
        beta: β1.
        done: r/R, from 0 to 1.
    """
    left = 1 - done
    return beta * left / ((1 - beta) + beta * left)


@dataclass
class ServerOptimiser:
    """A server optimiser and its state.

    Attributes:
        kind: one of `SERVERS`.
        rounds: R.
        lr: η_s; None for the rate in `RATES`.
        beta1: decay of the momentum.
        beta2: decay of the second moment.
        tau: τ, which keeps steps finite.
        reading: variant of FedDemonAdam.
    """

    kind: str
    rounds: int
    lr: float | None = None
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    reading: DemonReading = "printed"

    def __post_init__(self) -> None:
        if self.kind not in SERVERS:
            raise UnknownNameError("server optimiser", self.kind, SERVERS)
        self.rate = RATES[self.kind] if self.lr is None else self.lr
        self.decay = self.beta1
        self.m: np.ndarray | None = None
        self.v: np.ndarray | None = None
        self.round = 0

    def step_weights(self, weights: np.ndarray, change: np.ndarray) -> np.ndarray:
        """The weights after a round, (d,) float64.

        Args:
            weights: before it.
            change: the mean over label owners of their weights after it, minus `weights`.
        """
        self.round += 1
        if self.kind == "fedavg":
            averaged: np.ndarray = weights + self.rate * change
            return averaged
        m = np.zeros_like(weights) if self.m is None else self.m
        v = np.zeros_like(weights) if self.v is None else self.v
        printed = self.reading == "printed"
        if self.kind != "feddemonadam":
            m = self.beta1 * m + (1 - self.beta1) * change
        else:
            beta = self.decay if printed else self.beta1
            self.decay = demon_momentum(beta, (self.round if printed else self.round - 1) / self.rounds)
            m = self.decay * m + change
        square = m**2 if self.kind == "feddemonadam" and printed else change**2
        if self.kind == "fedyogi":
            v = v - (1 - self.beta2) * square * np.sign(v - square)
        else:
            v = self.beta2 * v + (1 - self.beta2) * square
        self.m, self.v = m, v
        stepped: np.ndarray = weights + self.rate * self._corrected_momentum(m) / self._step_divisor(v)
        return stepped

    def _corrected_momentum(self, m: np.ndarray) -> np.ndarray:
        """The momentum, corrected for its start at zero."""
        if self.kind != "feddemonadam":
            return np.asarray(m / (1 - self.beta1**self.round))
        return np.asarray(m / (1 - self.decay**self.round)) if self.reading == "printed" else m

    def _step_divisor(self, v: np.ndarray) -> np.ndarray:
        """The divisor of a step. Line 7 of the paper adds τ before the bias correction, Adam after it."""
        correction = np.sqrt(1 - self.beta2**self.round)
        if self.kind == "feddemonadam" and self.reading == "printed":
            return np.asarray((np.sqrt(v) + self.tau) / correction)
        return np.asarray(np.sqrt(v) / correction + self.tau)

    def get_state(self) -> dict[str, object]:
        """The state to resume from."""
        return {"m": self.m, "v": self.v, "round": self.round, "decay": self.decay}

    def load_state(self, state: dict[str, object]) -> None:
        """Resume from a `state`."""
        self.m, self.v = (None if state[k] is None else np.asarray(state[k]) for k in ("m", "v"))
        self.round = int(str(state["round"]))
        self.decay = float(str(state["decay"]))
