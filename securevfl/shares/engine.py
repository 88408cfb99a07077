"""The engine of a computation on shares: one of the three parties, or a reference in the clear with the same calls."""

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
