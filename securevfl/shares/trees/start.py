"""The raw score that every row begins with, computed on shares from the targets; nobody learns it."""

from __future__ import annotations

import math

import numpy as np
from securevfl_crypto.replicated import Curve, Share, Task
from securevfl_crypto.ring import FRACTION

from securevfl.shares.engine import Engine, compute_products, scaling_job

__all__ = ["LEAST_RATE", "compute_start"]

LEAST_RATE = 0.02
"""Of two classes, the least share of rows of the rarer one. The thirteen pieces of the sigmoid end at ±6 and are off by
up to 0.0027, so that trees of rarer classes learn from wrong gradients."""

_SLOPE_BITS = 10
_RARE = 2.0**-10
_PIECES = 24
_DIVISOR_BITS = 16


async def compute_start(engine: Engine, targets: Share, classes: int) -> Share:
    """Initial raw scores, (K,), 16 fractional bits: log-odds of two classes, logarithms of the shares of more classes,
    the mean of a number. Nine rounds at most.

    Args:
        engine: computes on shares.
        targets: of the rows that train, (n, K), 16 fractional bits.
        classes: number of classes; 1 for a number.
    """
    rows = len(targets)
    shift = _DIVISOR_BITS + math.ceil(math.log2(max(rows, 2)))
    job = scaling_job(engine, targets.sum(axis=0), round(2.0**shift / rows), shift)
    (mean,) = await compute_products(engine, [job])
    if classes == 1:
        return mean
    knots = _odds_knots() if classes == 2 else _share_knots()
    values = np.log(knots / (1 - knots)) if classes == 2 else np.log(knots)
    ((wide,),) = await engine.run_masked([Task(engine.additive_summand(mean), curve=_curve_through(knots, values))])
    return await engine.truncate(wide, _SLOPE_BITS)


def _odds_knots() -> np.ndarray:
    edge = math.log((1 - LEAST_RATE) / LEAST_RATE) + 1
    found: np.ndarray = 1 / (1 + np.exp(-np.linspace(-edge, edge, _PIECES + 1)))
    return found


def _share_knots() -> np.ndarray:
    found: np.ndarray = np.exp(np.linspace(math.log(_RARE), 0, _PIECES + 1))
    return found


def _curve_through(knots: np.ndarray, values: np.ndarray) -> Curve:
    """Chords between the knots, constant outside; `_SLOPE_BITS` more fractional bits."""
    places = np.rint(knots * (1 << FRACTION)).astype(np.int64)
    slopes = np.rint(np.diff(values) / np.diff(knots) * (1 << _SLOPE_BITS)).astype(np.int64)
    changes = np.diff(np.concatenate([[0], slopes, [0]]))
    start = round(float(values[0]) * (1 << (FRACTION + _SLOPE_BITS)))
    return Curve(tuple(places.tolist()), tuple(changes.tolist()), start=start)
