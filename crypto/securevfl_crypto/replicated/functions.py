"""Comparisons and smooth functions on shares, the same for a computing party and for the reference in the clear."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated.curves import Curve, bits_of
from securevfl_crypto.replicated.fits import (
    INVERSE_BITS,
    SLOPE_BITS,
    WIDEST,
    exponential_curve,
    logarithm_curve,
    reciprocal_curve,
    sigmoid_curve,
    softplus_curve,
)
from securevfl_crypto.replicated.product import Product, Result
from securevfl_crypto.replicated.share import U64, Share, concatenate
from securevfl_crypto.replicated.task import Task

__all__ = ["Functions"]


class Functions(ABC):
    """Functions built from products and comparisons. `fraction` is the number of bits behind the binary point."""

    def __init__(self, fraction: int) -> None:
        if not 1 <= fraction <= 24:
            raise MalformedError(f"{fraction} bits behind the binary point; expected 1 to 24")
        self.fraction = fraction

    @abstractmethod
    def constant(self, words: np.ndarray) -> Share:
        """Share public words, uint64."""

    @abstractmethod
    def additive_summand(self, x: Share) -> U64:
        """This party's additive summand of x."""

    @abstractmethod
    async def compute_products(self, jobs: Sequence[Product]) -> list[Result]:
        """Compute products, each with its truncation and function; all of them share their rounds."""

    @abstractmethod
    async def run_masked(self, tasks: Sequence[Task]) -> list[list[Share]]:
        """Run tasks of `truncation` in separate rounds."""

    async def multiply_matrices(self, left: Share, right: Share, *, shift: int = 0) -> Share:
        """left @ right, truncated: one round without a shift, two with it."""
        return _only_results(await self.compute_products([Product(left, right, shift=shift)]))

    async def multiply(self, left: Share, right: Share, *, shift: int = 0) -> Share:
        """left · right element by element, truncated: one round without a shift, two with it."""
        return _only_results(await self.compute_products([Product(left, right, "times", shift)]))

    async def truncate(self, x: Share, shift: int) -> Share:
        """x / 2^shift, the last bit rounded at random without bias: two rounds."""
        return (await self.run_masked([Task(self.additive_summand(x), shift)]))[0][0] if shift else x

    async def compare(self, x: Share, thresholds: Sequence[float] = (0.0,)) -> Share:
        """[x ≥ t] for each threshold t, all behind one mask: four rounds.

        Args:
            x: of any shape, |x| below 2^(61 − fraction).
            thresholds: public, in units of x; they are rounded to its last place.

        Returns:
            (thresholds, *shape of x): bits as words 0 and 1.
        """
        words = tuple(round(float(t) * 2**self.fraction) for t in thresholds)
        return (await self.run_masked([Task(self.additive_summand(x), curve=bits_of(words))]))[0][0]

    async def sigmoid(self, x: Share) -> Share:
        """1 / (1 + exp(−x)): error at most 0.0027; six rounds.

        `Product(then="sigmoid")` gives it with more fractional bits in the product's own four.
        """
        return await self._apply_curve(x, sigmoid_curve(self.fraction))

    async def softplus(self, x: Share) -> Share:
        """log(1 + exp(x)): error at most 0.0009; six rounds. The log-loss of logits x, labels y: softplus(x) − y x."""
        return await self._apply_curve(x, softplus_curve(self.fraction))

    async def maximum(self, x: Share) -> Share:
        """The largest of the last axis, (…, 1).

        Up to twelve values are compared in pairs, in 4 + ⌈log₂ K⌉ rounds; more in groups of six first.
        """
        count = x.shape[-1]
        if count == 1:
            return x
        if count > _PAIRED:
            groups = -(-count // _GROUP)
            padded = concatenate([x] + [x[..., -1:]] * (groups * _GROUP - count), -1)
            found = await self.maximum(padded.reshape(*x.shape[:-1], groups, _GROUP))
            return await self.maximum(found[..., 0])
        left, right = np.triu_indices(count, 1)
        bits = (await self.compare(x[..., left] - x[..., right]))[0]
        # Factors of value k: x_k and, for each other value, the bit that x_k wins; the earlier value wins a tie.
        place = {(int(i), int(j)): pair for pair, (i, j) in enumerate(zip(left, right, strict=True))}
        factors = [x]
        for step in range(1, count):
            others = [(k, (k + step) % count) for k in range(count)]
            lost = np.array([i > j for i, j in others])
            won = bits[..., [place[min(pair), max(pair)] for pair in others]]
            one = self.constant(np.broadcast_to(lost.astype(np.uint64), won.shape))
            factors.append(one + won * np.where(lost, -1, 1))
        while len(factors) > 1:
            pairs = [Product(a, b, "times") for a, b in zip(factors[::2], factors[1::2], strict=False)]
            rest = factors[-1:] if len(factors) % 2 else []
            factors = [_first_result(result) for result in await self.compute_products(pairs)] + rest
        return factors[0].sum(-1, keepdims=True)

    async def softmax(self, x: Share) -> Share:
        """exp(x_k) / Σ exp(x) over the last axis of K values, at most 64.

        With 16 fractional bits the error is at most 0.001 + 0.002 K for K up to twelve and 0.013 + 0.0012 K beyond:
        0.005 for two values, 0.025 for twelve, 0.09 for 64. It grows with K because errors of the exponentials add up.
        It comes near the bound only where all values but the largest lie 3 to 6 below it. Results are not negative and
        add up to at most 1.006.

        12 + ⌈log₂ K⌉ rounds up to twelve values: the maximum, exp of what is below it, one over their sum, the product.

        Raises:
            MalformedError: more than 64 values, or more than 16 fractional bits: the last product would not fit.
        """
        _, wide, total = await self._exponential_sums(x)
        bits = self.fraction + SLOPE_BITS
        curve = reciprocal_curve(bits, x.shape[-1])
        (share,), (part,) = await self.run_masked(
            [Task(self.additive_summand(wide), SLOPE_BITS), Task(self.additive_summand(total), curve=curve)]
        )
        return await self.multiply(share, part, shift=bits + INVERSE_BITS)

    async def log_sum_exp(self, x: Share) -> Share:
        """log Σ exp(x) over the last axis of at most 64 values, (…, 1); the error is at most that of `softmax`.

        The log-loss of logits x and one-hot labels y: log_sum_exp(x) − Σ y x.

        Raises:
            MalformedError: as for `softmax`.
        """
        top, _, total = await self._exponential_sums(x)
        bits = self.fraction + SLOPE_BITS
        ((wide,),) = await self.run_masked(
            [Task(self.additive_summand(total), curve=logarithm_curve(bits, x.shape[-1]))]
        )
        return top + await self.truncate(wide, 2 * SLOPE_BITS)

    async def divide(self, a: Share, b: Share, *, least: float = 1.0, most: float = 1024.0) -> Share:
        """a / b for 0 < least ≤ b ≤ most and |a| ≤ most.

        The error is at most 1.2 · 10⁻⁵ + 5 · 2^−fraction of the quotient, which is 9 · 10⁻⁵ of it with 16 fractional
        bits, and three units of the last place.

        b is brought to [1, 2) by a power of two that comparisons find, then two Newton steps; fourteen rounds.

        Args:
            a: of the shape of b, or broadcast with it.
            b: positive; what lies outside its bounds gives a wrong quotient, without notice.
            least: a bound of b; rounded down to a power of two.
            most: a bound of both, 1 at least; rounded up to a power of two.

        Raises:
            MalformedError: the bounds are not in order, or leave no room for the product.
        """
        # The bounds are public and b is not: nothing at run time could show that b lies outside them.
        if not 0 < least < most or most < 1:
            raise MalformedError(f"a divisor from {least} to {most}; 0 < least < most, and most is 1 at least")
        low, high = math.floor(math.log2(least)), math.ceil(math.log2(most))
        if low <= -self.fraction or self.fraction + 1 + high - min(low, 0) > 61:
            raise MalformedError(
                f"a divisor from 2^{low} to 2^{high} with {self.fraction} fractional bits has no room: narrow them"
            )
        powers = range(low + 1, high)
        scale = self.constant(np.full(b.shape, 1 << (high - low), np.uint64))
        if powers:
            bits = await self.compare(b, [2.0**power for power in powers])
            for k, power in enumerate(powers):
                scale = scale - bits[k] * (1 << (high - power))  # halved at each power that b reaches
        f = self.fraction
        normal, part = (
            _first_result(item)
            for item in await self.compute_products(
                [
                    Product(b, scale, "times", shift=high),
                    Product(a, scale.broadcast_to(_product_shape(a, b)), "times", high),
                ]
            )
        )
        # On [1, 2), 24/17 − 8/17 m differs from 1 / m by at most 1/17 of it; each Newton step y (2 − m y) squares that.
        first = self._constant_like(round(24 / 17 * 2 ** (2 * f)), normal) - normal * round(8 / 17 * 2**f)
        miss = self._constant_like(2 << f, normal) - await self.multiply(normal, first, shift=2 * f)
        guess = await self.multiply(first, miss, shift=2 * f)
        # The second step's last product, y (2 − m y), is taken times a: (a y) (2 − m y), with a y beside m y.
        near, quotient = (
            _first_result(item)
            for item in await self.compute_products(
                [Product(normal, guess, "times", f), Product(part, guess.broadcast_to(part.shape), "times", f)]
            )
        )
        miss = self._constant_like(2 << f, normal) - near
        return await self.multiply(quotient, miss.broadcast_to(quotient.shape), shift=f)

    async def reciprocal(self, x: Share, *, least: float = 1.0, most: float = 1024.0) -> Share:
        """1 / x for 0 < least ≤ x ≤ most, as `divide`."""
        return await self.divide(self._constant_like(1 << self.fraction, x), x, least=least, most=most)

    async def _exponential_sums(self, x: Share) -> tuple[Share, Share, Share]:
        """The maximum, exp(x − maximum) with `SLOPE_BITS` more fractional bits, and the sum of these."""
        if x.shape[-1] > WIDEST:
            raise MalformedError(f"a softmax of {x.shape[-1]} values; {WIDEST} at most")
        if self.fraction > _FINEST:
            raise MalformedError(f"a softmax with {self.fraction} fractional bits; {_FINEST} at most")
        top = await self.maximum(x)
        ((wide,),) = await self.run_masked(
            [Task(self.additive_summand(x - top), curve=exponential_curve(self.fraction))]
        )
        return top, wide, wide.sum(-1, keepdims=True)

    async def _apply_curve(self, x: Share, curve: Curve) -> Share:
        ((wide,),) = await self.run_masked([Task(self.additive_summand(x), curve=curve)])
        return await self.truncate(wide, SLOPE_BITS)

    def _constant_like(self, word: int, like: Share) -> Share:
        return self.constant(np.full(like.shape, word, np.uint64))


_PAIRED = 12  # the number of pairs grows with the square of the number of values
_GROUP = 6
_FINEST = 16  # fractional bits; with more, the last product of a softmax would not fit


def _product_shape(a: Share, b: Share) -> tuple[int, ...]:
    return np.broadcast_shapes(a.shape, b.shape)


def _first_result(result: Result) -> Share:
    if not isinstance(result, Share):
        raise MalformedError("a product has two results; expected one")
    return result


def _only_results(results: Sequence[Result]) -> Share:
    (result,) = results
    return _first_result(result)
