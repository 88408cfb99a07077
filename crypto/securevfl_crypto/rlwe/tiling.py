"""Matrix products as products of polynomials: the tiles of a matrix, and the coefficient that holds each entry.

As in the linear layers of Cheetah (Huang, Lu, Hong and Ding, USENIX Security 2022, arXiv 2207.07177, section 3), the
coefficients of a product of polynomials are inner products of the factors' coefficients if these are laid out suitably.
Nothing is encoded into slots and nothing is rotated. The coefficients of x stay small, so noise grows with x and not
with the plaintext modulus.

A tile has ``rows`` rows of x, ``features`` columns of x and ``outputs`` columns of V or S, with ``rows · features ·
outputs + features + CHECKS ≤ N + 1``. With ``A = features · outputs``, exponents modulo X^N + 1:

====================  =====================================
x[i, j]               A i − j
V[j, k]               j + features k
S[i, k]               −A i + features k
(x V)[i, k]           A i + features k
(xᵀS)[j, k]           −j + features k
====================  =====================================

Exponents add: x[i, j] V[j', k] is at A i + features k + (j' − j), a place of x V only if j' = j, because |j' − j| <
features; x[i, j] S[i', k] is at A (i − i') + features k − j, a place of xᵀS only if i = i', because all those places
lie in a window of width A. So one encoding of x serves both products. All other coefficients hold meaningless sums and
are never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from securevfl_crypto.errors import OverflowRefused
from securevfl_crypto.rlwe.parameters import DEGREE

__all__ = ["CHECKS", "PolynomialPlaces", "Tiling", "tile_widths"]

CHECKS = 32
"""Coefficients of each product that hold nothing by the protocol, and that the key's owner looks at: see `owner`."""

# Milliseconds on one core with three primes: to seal and load an upload; to mask, send and open an answer; to multiply;
# to encode a tile of x.
_UPLOAD, _ANSWER, _PRODUCT, _ENCODING = 5.0, 6.0, 0.2, 0.5


@dataclass(frozen=True)
class PolynomialPlaces:
    """Coefficients of a polynomial modulo X^N + 1.

    Attributes:
        index: int64 (n,), from 0 to N − 1.
        negative: bool (n,), true where the coefficient holds the negated value, since X^−e = −X^(N−e).
    """

    index: np.ndarray
    negative: np.ndarray

    @staticmethod
    def from_exponents(exponents: np.ndarray, degree: int = DEGREE) -> PolynomialPlaces:
        """The places of exponents from −N to N − 1, for N = `degree`."""
        flat = exponents.ravel()
        return PolynomialPlaces(flat % degree, flat < 0)

    def and_then(self, other: PolynomialPlaces) -> PolynomialPlaces:
        """These places, followed by others."""
        return PolynomialPlaces(
            np.concatenate([self.index, other.index]), np.concatenate([self.negative, other.negative])
        )


@dataclass(frozen=True)
class Tiling:
    """The sizes of the tiles of a block.

    Attributes:
        rows: rows of x in a tile.
        features: columns of x in a tile.
        outputs: columns of V and S in a tile.
        degree: N.
    """

    rows: int
    features: int
    outputs: int
    degree: int = DEGREE

    @staticmethod
    @lru_cache(maxsize=256)
    def plan(batch: int, width_in: int, width_out: int) -> Tiling:
        """The cheapest tiling for a product and a gradient of `batch` rows.

        Raises:
            OverflowRefused: the block has more than 2^20 columns.
        """
        if max(width_in, width_out) > 1 << 20:
            raise OverflowRefused(f"a block of {width_in} × {width_out}; at most 2^20 columns can be planned")
        best: tuple[float, Tiling] | None = None
        for outputs in tile_widths(width_out):
            for features in tile_widths(width_in):
                rows = min(batch, (DEGREE - CHECKS - features + 1) // (features * outputs))
                if not rows:
                    continue
                rows = -(-batch // -(-batch // rows))
                tiling = Tiling(rows, features, outputs)
                down, across, out = -(-batch // rows), -(-width_in // features), -(-width_out // outputs)
                cost = (_UPLOAD + _ANSWER) * (down + across) * out + (2 * out * _PRODUCT + _ENCODING) * down * across
                if best is None or cost < best[0]:
                    best = cost, tiling
        if best is None:  # one row, one feature and one output always fit
            raise OverflowRefused(f"no tile of {width_in} × {width_out} has {DEGREE} coefficients or fewer")
        return best[1]

    def _grid_exponents(self, a: np.ndarray, b: np.ndarray) -> PolynomialPlaces:
        return PolynomialPlaces.from_exponents(a[:, None] + b[None, :], self.degree)

    def feature_places(self, rows: int, features: int) -> PolynomialPlaces:
        """The places of x[i, j] for i < rows and j < features, in C order."""
        return self._grid_exponents(self.features * self.outputs * np.arange(rows), -np.arange(features))

    def weight_places(self, features: int, outputs: int) -> PolynomialPlaces:
        """The places of V[j, k]."""
        return self._grid_exponents(np.arange(features), self.features * np.arange(outputs))

    def step_places(self, rows: int, outputs: int) -> PolynomialPlaces:
        """The places of S[i, k]."""
        return self._grid_exponents(-self.features * self.outputs * np.arange(rows), self.features * np.arange(outputs))

    def product_places(self, rows: int, outputs: int) -> PolynomialPlaces:
        """The places of (x V)[i, k]."""
        return self._grid_exponents(self.features * self.outputs * np.arange(rows), self.features * np.arange(outputs))

    def check_places(self) -> PolynomialPlaces:
        """Places that are zero in x V: above those of a full tile, from 0 to A rows − 1, and below the wrapped
        exponents from −features + 1 to −1 of the terms with j' < j."""
        return PolynomialPlaces.from_exponents(self.features * self.outputs * self.rows + np.arange(CHECKS))

    def gradient_places(self, features: int, outputs: int) -> PolynomialPlaces:
        """The places of (xᵀS)[j, k]."""
        return self._grid_exponents(-np.arange(features), self.features * np.arange(outputs))


def tile_widths(width: int) -> list[int]:
    """Widths of tiles that cut `width` into equal parts, but for the last: one width for each number of parts."""
    widths: list[int] = []
    parts = 1
    while True:
        size = -(-width // parts)
        widths.append(size)
        if size == 1:
            return widths
        parts = -(-width // (size - 1))  # the fewest parts with a smaller width
