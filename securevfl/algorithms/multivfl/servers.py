"""Server optimisers of Multi-VFL: what a coordinator makes of the mean change of the label owners' weights.

FedAvg (McMahan et al. 2017), FedAdam and FedYogi (Reddi et al. 2021, arXiv 2003.00295, algorithm 2) and FedDemonAdam
(Multi-VFL, arXiv 2106.05468, algorithm 1, after Chen et al. 2019, arXiv 1910.04952).

Where Multi-VFL prints ``v ← β2 v + (1 − β2) m²`` the square of the change stands here, as in Adam and in Reddi's
algorithm. All but FedAvg divide by the bias-corrected √v, as Multi-VFL's line 7 does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from securevfl.errors import UnknownNameError

__all__ = ["SERVERS", "Server", "ServerName", "demon"]

ServerName = Literal["fedavg", "fedadam", "fedyogi", "feddemonadam"]
SERVERS: tuple[ServerName, ...] = get_args(ServerName)


def demon(beta: float, done: float) -> float:
    """The decaying momentum β_r = β (1 − r/R) / ((1 − β) + β (1 − r/R)): β at first, 0 at the end.

    Args:
        beta: β1.
        done: r/R, from 0 to 1.
    """
    left = 1 - done
    return beta * left / ((1 - beta) + beta * left)


@dataclass
class Server:
    """A server optimiser and what it remembers.

    Attributes:
        kind: one of `SERVERS`.
        rounds: R.
        lr: η_s.
        beta1: decay of the momentum.
        beta2: decay of the second moment.
        tau: τ, which keeps steps finite.
    """

    kind: str
    rounds: int
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        if self.kind not in SERVERS:
            raise UnknownNameError("server optimiser", self.kind, SERVERS)
        self.m: np.ndarray | None = None
        self.v: np.ndarray | None = None
        self.round = 0

    def step(self, weights: np.ndarray, change: np.ndarray) -> np.ndarray:
        """The weights after a round, (d,) float64.

        Args:
            weights: before it.
            change: the mean over label owners of their weights after it, minus `weights`.
        """
        self.round += 1
        if self.kind == "fedavg":
            added: np.ndarray = weights + change
            return added
        m = np.zeros_like(weights) if self.m is None else self.m
        v = np.zeros_like(weights) if self.v is None else self.v
        square = change**2
        if self.kind == "feddemonadam":
            m = demon(self.beta1, (self.round - 1) / self.rounds) * m + change
        else:
            m = self.beta1 * m + (1 - self.beta1) * change
        if self.kind == "fedyogi":
            v = v - (1 - self.beta2) * square * np.sign(v - square)
        else:
            v = self.beta2 * v + (1 - self.beta2) * square
        self.m, self.v = m, v
        root = np.sqrt(v / (1 - self.beta2**self.round))
        first = m if self.kind == "feddemonadam" else m / (1 - self.beta1**self.round)
        stepped: np.ndarray = weights + self.lr * first / (root + self.tau)
        return stepped

    def state(self) -> dict[str, object]:
        """What it remembers."""
        return {"m": self.m, "v": self.v, "round": self.round}

    def load(self, state: dict[str, object]) -> None:
        """Go on from a `state`."""
        self.m, self.v = (None if state[k] is None else np.asarray(state[k]) for k in ("m", "v"))
        self.round = int(str(state["round"]))
