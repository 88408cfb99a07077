"""A product to compute: two shares, the kind of product, the bits to truncate, and a function behind the same mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated.curves import Curve, relu6_curve, relu_curve
from securevfl_crypto.replicated.fits import sigmoid_curve
from securevfl_crypto.replicated.share import U64, Share
from securevfl_crypto.replicated.task import LARGEST_SHIFT, Task
from securevfl_crypto.ring import matmul

__all__ = ["Function", "Product", "Result", "product_summand"]

Function: TypeAlias = Literal["relu", "relu6", "sigmoid"]
_CURVES: dict[str, Callable[[int], Curve]] = {"relu": relu_curve, "relu6": relu6_curve, "sigmoid": sigmoid_curve}
Result: TypeAlias = "Share | tuple[Share, Share]"


@dataclass(frozen=True, eq=False)
class Product:
    """left · right with its last `shift` bits truncated.

    The truncation is exact up to its last bit: the result is the product divided by 2^shift, rounded up with a
    probability equal to the part that is cut off, else down, so it has no bias. The product, as a signed number, and
    its distance to every threshold must lie from −2^62 to 2^62 − 1; the caller's bounds must guarantee this.

    Attributes:
        left: a share; (m, k) for a matrix product.
        right: a share; (k, n), or broadcast with `left` for "times".
        how: "matmul", also stacked, or "times", element by element.
        shift: bits to truncate, 0 to 61.
        then: a function of the truncated product, by comparison behind the same mask. "relu" and "relu6" give the
            function and its derivative, a bit; "sigmoid" gives the function with `SLOPE_BITS` more fractional bits.
        gate: bits, 0 or 1, of the product's shape, that multiply the truncated product; no extra round.
        add: a share to add before the truncation, of the product's shape and scale.
        own: words to add that this party alone knows, of the product's shape and scale. The three parties' words add up
            in the product without a message; nobody sees another's, as each party masks its summand before sending it.

    Raises:
        MalformedError: shapes do not match, the shift is out of range, or both `then` and `gate` are given.
    """

    left: Share = field(repr=False)
    right: Share = field(repr=False)
    how: Literal["matmul", "times"] = "matmul"
    shift: int = 0
    then: Function | None = None
    gate: Share | None = field(default=None, repr=False)
    add: Share | None = field(default=None, repr=False)
    own: U64 | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.how not in {"matmul", "times"}:
            raise MalformedError(f"a product by {self.how!r}; expected 'matmul' or 'times'")
        if self.then not in {None, "relu", "relu6", "sigmoid"}:
            raise MalformedError(f"a product followed by {self.then!r}; expected 'relu', 'relu6' or 'sigmoid'")
        if not 0 <= self.shift <= LARGEST_SHIFT:
            raise MalformedError(f"{self.shift} bits to truncate; expected 0 to {LARGEST_SHIFT}")
        if self.then is not None and self.gate is not None:
            raise MalformedError("a product with both `then` and `gate`; use two products")
        try:
            shape = self.shape
        except ValueError:
            raise MalformedError(
                f"factors of shapes {self.left.shape} and {self.right.shape} do not match for {self.how!r}"
            ) from None
        if self.gate is not None and self.gate.shape != shape:
            raise MalformedError(f"a gate of shape {self.gate.shape}; expected {shape}, the product's")
        if self.add is not None and self.add.shape != shape:
            raise MalformedError(f"a summand of shape {self.add.shape}; expected {shape}, the product's")
        if self.own is not None and (self.own.shape != shape or self.own.dtype != np.uint64):
            raise MalformedError(
                f"this party's summand is {self.own.dtype} {self.own.shape}; expected uint64 {shape}, the product's "
                "shape"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        if self.how == "times":
            return np.broadcast_shapes(self.left.shape, self.right.shape)
        (*_, m, k), (*_, other, n) = self.left.shape, self.right.shape
        if k != other or self.left.shape[:-2] != self.right.shape[:-2]:
            raise ValueError
        return (*self.left.shape[:-2], m, n)

    @property
    def needs_mask(self) -> bool:
        """Whether the product needs an opening behind a mask."""
        return self.shift > 0 or self.then is not None or self.gate is not None

    def following_task(self, summand: U64, fraction: int) -> Task:
        """Build the task that follows the product, from this party's additive summand of it."""
        curve = _CURVES[self.then](fraction) if self.then else None
        return Task(summand, self.shift, curve=curve, gate=self.gate)

    def arrange_result(self, found: Sequence[Share]) -> Result:
        """Arrange the task's shares as `Computing.compute_products` returns them."""
        return (found[0], found[1]) if self.then in {"relu", "relu6"} else found[0]


def product_summand(job: Product, index: int) -> U64:
    """Party `index`'s summand of the product, not yet masked.

    The nine products xᵢ yⱼ are split so that five are computed instead of six (Araki et al., section 2.2): party 0 has
    (x₀ + x₁)(y₀ + y₁), party 1 x₁ y₂ + x₂ (y₁ + y₂), party 2 x₂ y₀ + x₀ y₂. Any split is as secure as theirs, because
    summands are masked before they are sent.
    """
    left, right = job.left, job.right
    multiply = np.multiply if job.how == "times" else matmul
    if index == 0:
        found = multiply(left.mine + left.next, right.mine + right.next)
    else:
        other = right.mine + right.next if index == 1 else right.mine
        if job.how == "times":
            found = left.mine * right.next + left.next * other
        elif job.shape == (1, 1):  # two inner products cost less than copying what they read
            found = matmul(left.mine, right.next) + matmul(left.next, other)
        else:
            found = matmul(np.concatenate([left.mine, left.next], -1), np.concatenate([right.next, other], -2))
    for more in (None if job.add is None else job.add.mine, job.own):
        found = found if more is None else found + more
    return np.asarray(found)
