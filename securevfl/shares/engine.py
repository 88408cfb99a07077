"""What computes: one of three parties, or the reference in the clear that makes the same calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from securevfl_crypto.replicated import Clear, Computing, Product, Share

__all__ = ["ONE", "Engine", "compute_products", "scaling_job"]

Engine: TypeAlias = Computing | Clear

ONE = 1 << 16
"""The number one in fixed point."""


async def compute_products(engine: Engine, jobs: Sequence[Product]) -> list[Share]:
    """Products without a function behind them: one share each.

    Raises:
        TypeError: one has a function, and so two shares.
    """
    found = []
    for done in await engine.products(jobs):
        if not isinstance(done, Share):
            raise TypeError("a product with a gate of its own, where one share was expected")
        found.append(done)
    return found


def scaling_job(engine: Engine, x: Share, factor: int, shift: int) -> Product:
    """x times a public whole number, its last `shift` bits cut off."""
    one = engine.constant(np.ones((1,) * x.ndim, dtype=np.uint64))
    return Product(x * factor, one, "times", shift=shift)
