"""Comparisons and smooth functions on shares, the same for a computing party and for the reference in the clear."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated.curves import bits_of
from securevfl_crypto.replicated.product import Product, Result
from securevfl_crypto.replicated.share import U64, Share
from securevfl_crypto.replicated.truncation import Task

__all__ = ["Functions"]


class Functions(ABC):
    """Functions built from products and comparisons. `fraction` is the number of bits behind the binary point."""

    def __init__(self, fraction: int) -> None:
        if not 1 <= fraction <= 24:
            raise MalformedError(f"{fraction} bits behind the binary point; 1 to 24 are possible")
        self.fraction = fraction

    @abstractmethod
    def constant(self, words: np.ndarray) -> Share:
        """A share of public words, uint64."""

    @abstractmethod
    def summand(self, x: Share) -> U64:
        """This party's additive summand of x."""

    @abstractmethod
    async def products(self, jobs: Sequence[Product]) -> list[Result]:
        """Products, each truncated and followed by a function as it asks; all of them share their rounds."""

    @abstractmethod
    async def behind(self, tasks: Sequence[Task]) -> list[list[Share]]:
        """Tasks of `truncation`, in their own rounds."""

    async def product(self, left: Share, right: Share, *, shift: int = 0) -> Share:
        """left @ right, truncated: one round without a shift, two with it."""
        return _single(await self.products([Product(left, right, shift=shift)]))

    async def times(self, left: Share, right: Share, *, shift: int = 0) -> Share:
        """left · right element by element, truncated: one round without a shift, two with it."""
        return _single(await self.products([Product(left, right, "times", shift)]))

    async def truncate(self, x: Share, shift: int) -> Share:
        """x / 2^shift, the last bit rounded at random without bias: two rounds."""
        return (await self.behind([Task(self.summand(x), shift)]))[0][0] if shift else x

    async def positive(self, x: Share, thresholds: Sequence[float] = (0.0,)) -> Share:
        """[x ≥ t] for each threshold t, all behind one mask: four rounds.

        Args:
            x: of any shape, |x| below 2^(61 − fraction).
            thresholds: public, in units of x; they are rounded to its last place.

        Returns:
            (thresholds, *shape of x): bits as words 0 and 1.
        """
        words = tuple(round(float(t) * 2**self.fraction) for t in thresholds)
        return (await self.behind([Task(self.summand(x), curve=bits_of(words))]))[0][0]


def _single(results: Sequence[Result]) -> Share:
    (result,) = results
    if not isinstance(result, Share):
        raise MalformedError("a product with two results, where one was expected")
    return result
