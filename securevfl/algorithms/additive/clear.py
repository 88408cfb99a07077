"""All parties of an additive model in one place: what protections are compared with, word for word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from securevfl.algorithms.additive.channel import sum_contrasts
from securevfl.algorithms.additive.shapes import OwnShapes

__all__ = ["train_in_clear"]

Noise = Callable[[int, tuple[int, ...]], np.ndarray]
"""Epoch and shape → noise on the sums of a party's columns, int64, in units of 2⁻²⁰."""


def train_in_clear(
    shapes: Sequence[OwnShapes],
    targets: np.ndarray,
    epochs: int,
    noise: Noise | None = None,
    seen: Callable[[int, np.ndarray, list[np.ndarray]], None] | None = None,
) -> None:
    """Train all parties' shapes.

    Args:
        shapes: of each party, the active party's first.
        targets: int64 (n, outputs), from `target_units`.
        epochs: T.
        noise: on each party's sums; None for no noise.
        seen: called with the epoch, the residuals and each party's sums.
    """
    for epoch in range(1, epochs + 1):
        drawn = [one.draw(epoch) for one in shapes]
        residual = targets - sum(one.part() for one in shapes)
        opened = []
        for one, contrasts in zip(shapes, drawn, strict=True):
            sums = sum_contrasts(one.contrast_rows(contrasts), residual)
            opened.append(sums if noise is None else sums + noise(epoch, sums.shape))
        if seen is not None:
            seen(epoch, residual, opened)
        for one, contrasts, sums in zip(shapes, drawn, opened, strict=True):
            one.update(contrasts, sums)
