"""The sigmoid by chords."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.replicated import Share
from securevfl_crypto.replicated.curves import Curve
from securevfl_crypto.replicated.truncation import Task
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import Engine

__all__ = ["SLOPE_BITS", "sigmoid"]

SLOPE_BITS = 12
_KNOTS = np.array([-6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6.0])


def _curve() -> Curve:
    values = 1 / (1 + np.exp(-_KNOTS))
    values[0], values[-1] = 0, 1
    chords = np.diff(values) / np.diff(_KNOTS)
    slopes = np.rint(np.array([0, *chords, 0]) * (1 << SLOPE_BITS)).astype(int)
    return Curve(tuple(int(k * (1 << FRACTION)) for k in _KNOTS), tuple(int(one) for one in np.diff(slopes)))


async def sigmoid(engine: Engine, z: Share) -> Share:
    """The sigmoid with `SLOPE_BITS` more fractional bits."""
    return (await engine.behind([Task(engine.summand(z), curve=_curve())]))[0][0]
