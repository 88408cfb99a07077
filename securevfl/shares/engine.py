"""The engine of a computation on shares: one of the three parties, or a reference in the clear with the same calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from securevfl_crypto.replicated import Clear, Computing, Product, Share, concatenate

__all__ = [
    "ONE",
    "Engine",
    "compute_products",
    "excess_of_quarters",
    "find_outside",
    "quarter_job",
    "scaling_job",
]

Engine: TypeAlias = Computing | Clear

ONE = 1 << 16
"""The number one in fixed point."""

_NARROW = 2
"""Bits by which words are truncated before they are compared, where nothing is known of their size."""


async def compute_products(engine: Engine, jobs: Sequence[Product]) -> list[Share]:
    """Compute products that no function follows: one share each.

    Raises:
        TypeError: a function follows one of them, which gives two shares.
    """
    found = []
    for done in await engine.compute_products(jobs):
        if not isinstance(done, Share):
            raise TypeError("a product returned a gate besides its value; one share was expected")
        found.append(done)
    return found


def scaling_job(engine: Engine, x: Share, factor: int, shift: int) -> Product:
    """Make the product of x and a public integer, truncated by `shift` bits."""
    one = engine.constant(np.ones((1,) * x.ndim, dtype=np.uint64))
    return Product(x * factor, one, "times", shift=shift)


async def find_outside(engine: Engine, x: Share, bounds: np.ndarray) -> Share:
    """Bits, two for each word of x, that are all zero where −bound ≤ x ≤ bound up to eight units of the last place.

    A comparison cannot tell x from x + 2^63, so that a word far outside could pass. A quarter of x can be told: of any
    64 bits, truncated by two, the result is right modulo 2^62 and lies within the range of comparisons.

    Args:
        engine: computes on shares.
        x: (n,).
        bounds: in units of the last place, below 2^60, int64 (n,).
    """
    (quarter,) = await compute_products(engine, [quarter_job(engine, x)])
    return (await engine.compare(excess_of_quarters(engine, quarter, bounds))).reshape(-1)


def quarter_job(engine: Engine, x: Share) -> Product:
    """Make the product that is a quarter of x; see `find_outside`."""
    return scaling_job(engine, x, 1, _NARROW)


def excess_of_quarters(engine: Engine, quarter: Share, bounds: np.ndarray) -> Share:
    """Words, two for each quarter, that are all negative within the bounds; see `find_outside`."""
    edge = engine.constant(((bounds >> _NARROW) + 2).astype(np.uint64))
    return concatenate([quarter - edge, -quarter - edge])
