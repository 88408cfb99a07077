"""Views made here, with a planted secret, for attacks to find."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.attacks import CutRule, Observation, Observations, PartyView

ROWS, TRAIN = 500, 400


def classes(seed: int = 0, share: float = 0.25) -> np.ndarray:
    """Coin labels: nothing but a gradient tells them."""
    return (np.random.default_rng(seed).random(ROWS) < share).astype(np.int64)


def passive(y: np.ndarray, *, noise: float, epochs: int = 6, width: int = 5, seed: int = 0) -> PartyView:
    """A passive party's view: gradients (p − y) along a direction that turns, and fresh noise in each observation."""
    draw = np.random.default_rng(seed)
    train, looks = np.arange(TRAIN), []
    for epoch in range(1, epochs + 1):
        toward = np.array([1.0, 0.5, 0.0, -0.5, 0.2][:width]) + 0.2 * draw.normal(size=width)
        for rows in np.split(draw.permutation(train), 4):
            p = 0.25 + 0.1 * draw.random(len(rows))
            values = (p - y[rows])[:, None] * toward + noise * draw.normal(size=(len(rows), width))
            looks.append(Observation(rows, values / 64, epoch))
    observations = {("gradient at the cut", "shop"): Observations(looks)}
    return view("shop", observations=observations, x=draw.normal(size=(ROWS, 3)))


def view(party: str, *, observations: Any, x: np.ndarray, **more: Any) -> PartyView:
    """A view in a federation of a bank, which owns labels, with a shop."""
    known: dict[str, Any] = {"y": None, "widths": {"shop": x.shape[1]}, "classes": 2} | more
    return PartyView(
        party=party,
        owner="bank",
        passive=("shop",),
        aligned=ROWS,
        x=x,
        train=np.arange(TRAIN),
        valid=np.arange(TRAIN, ROWS),
        test=np.arange(0),
        observations=observations,
        **known,
    )


def linear(
    *, momentum: float = 0.0, decay: float = 0.0, batch: int = 100, epochs: int = 6, width: int = 6, h: int = 4
) -> tuple[PartyView, np.ndarray]:
    """An active party's view of a linear cut with random gradients, and the features behind it, (ROWS, width)."""
    lr, draw = 0.2, np.random.default_rng(0)
    x = draw.normal(size=(ROWS, width)) * np.linspace(0.5, 2.0, width)
    w, velocity = draw.normal(size=(width, h)), np.zeros((width, h))
    seen, steps = [], []
    for epoch in range(1, epochs + 1):
        for rows in np.split(draw.permutation(TRAIN), TRAIN // batch):
            z = x[rows] @ w
            step = lr * np.tanh(z + draw.normal(size=z.shape)) / batch
            seen.append(Observation(rows, z, epoch))
            steps.append(Observation(rows, step, epoch))
            velocity = momentum * velocity + x[rows].T @ step + decay * w
            w = w - velocity
        held = np.arange(TRAIN, ROWS)
        seen.append(Observation(held, x[held] @ w, 0))
    found = view(
        "bank",
        observations={("z", "shop"): Observations(seen)},
        x=draw.normal(size=(ROWS, 2)),
        y=classes(),
        widths={"shop": width},
        steps={"shop": Observations(steps)},
        rule=CutRule(lr, momentum, decay),
    )
    return found, x
