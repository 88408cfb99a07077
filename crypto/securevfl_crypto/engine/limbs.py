"""Limbs of long numbers: their width, and the addition of products of limbs to columns."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.doubles import Doubles, doubles_bits, high_bias, low_bias, multiply_doubles, read_doubles, to_doubles
from securevfl_crypto.engine.emitter import MASK52, Function, Vec

__all__ = ["MOST_BITS", "Factor", "Limbs", "Limbs52", "LimbsByFma", "limbs_for"]

MOST_BITS = 16384
"""The most bits of a modulus."""
Factor = Vec | Doubles


class Limbs(ABC):
    """Limbs of one width. The number of limbs of a number is a multiple of `tile`.

    Args:
        bits: bits of a limb.
        tile: limbs that a kernel holds in registers.
        halves: the parts of a product: 1, or 2 if the upper half goes to the next column.
        most: limbs of the longest number for which overflow is excluded, rounded down to a multiple of `tile`.
    """

    def __init__(self, bits: int, tile: int, halves: int, most: int) -> None:
        self.bits, self.tile, self.halves, self.most = bits, tile, halves, most // tile * tile
        self.top = (1 << bits) - 1
        """The largest limb."""

    @property
    @abstractmethod
    def largest_product(self) -> int:
        """The largest value that one product adds to a column."""

    def column_growth(self, place: int) -> int:
        """The most that the column at this place of a tile has gained since it was loaded, when the next tile begins.

        A column enters at the end of the tile and moves down one place for each limb of the other number.
        """
        return self.largest_product * (self.halves * (self.tile - 1 - place) + self.halves - 1)

    def column_bias(self, place: int) -> int:
        """The bias of the column at this place of a tile, when the next tile begins."""
        return 0

    def left(self, f: Function, limb: Vec) -> Factor:
        """A limb as the left factor of products, in registers for a whole tile."""
        return limb

    def right(self, f: Function, limb: Vec) -> Factor:
        """A limb as the right factor of products."""
        return limb

    def constant_word(self, limb: int) -> int:
        """The word that kernels take for a limb that is the right factor of many products."""
        return limb

    def to_word(self, f: Function, factor: Factor) -> Vec:
        """A right factor as words."""
        return factor

    def read_word(self, f: Function, word: Vec) -> Factor:
        """A right factor from its word."""
        return replace(word, top=self.top)

    @abstractmethod
    def add_row(self, f: Function, window: list[Vec], place: int, many: Sequence[Factor], one: Factor) -> None:
        """Adds products of left and right factors to columns, those of many[k] at `place` + k."""

    @abstractmethod
    def reduction_digit(self, f: Function, column: Vec, inverse: Factor) -> tuple[Vec, Factor]:
        """column · inverse modulo 2^bits, of which the low bits count; and as a left factor."""


class Limbs52(Limbs):
    """52 bits, by AVX-512 IFMA (Gueron and Krasnov 2016)."""

    def __init__(self, tile: int = 10) -> None:
        super().__init__(52, tile, 2, -(-(MOST_BITS + 2) // 52) + tile - 1)

    @property
    def largest_product(self) -> int:
        """See `Limbs.largest_product`."""
        return MASK52

    def add_row(self, f: Function, window: list[Vec], place: int, many: Sequence[Factor], one: Factor) -> None:
        """See `Limbs.add_row`."""
        for k, factor in enumerate(many, place):
            window[k] = f.madd_low(window[k], factor, one)
        for k, factor in enumerate(many, place + 1):
            window[k] = f.madd_high(window[k], factor, one)

    def reduction_digit(self, f: Function, column: Vec, inverse: Factor) -> tuple[Vec, Factor]:
        """See `Limbs.reduction_digit`."""
        digit = f.low52(f.madd_low(f.constant(0), f.low52(column), inverse))
        return digit, digit


class LimbsByFma(Limbs52):
    """52 bits, by products of doubles (`doubles`).

    Left factors are scaled by 2^-77. The two halves of a product then have biases whose sum is 2^63, and a column that
    took all products of a tile of even length has none.
    """

    _SCALE = -77

    def column_bias(self, place: int) -> int:
        """See `Limbs.column_bias`."""
        gone = self.tile - 1 - place
        return (gone * low_bias(self._SCALE) + (gone + 1) * high_bias(self._SCALE)) % (1 << 64)

    def left(self, f: Function, limb: Vec) -> Factor:
        """See `Limbs.left`."""
        return to_doubles(f, limb, self._SCALE)

    def right(self, f: Function, limb: Vec) -> Factor:
        """See `Limbs.right`."""
        return to_doubles(f, limb)

    def constant_word(self, limb: int) -> int:
        """See `Limbs.constant_word`."""
        return int.from_bytes(struct.pack("<d", limb), "little")

    def to_word(self, f: Function, factor: Factor) -> Vec:
        """See `Limbs.to_word`."""
        return doubles_bits(f, factor)

    def read_word(self, f: Function, word: Vec) -> Factor:
        """See `Limbs.read_word`."""
        return read_doubles(f, word, self.top)

    def add_row(self, f: Function, window: list[Vec], place: int, many: Sequence[Factor], one: Factor) -> None:
        """See `Limbs.add_row`."""
        for k, factor in enumerate(many, place):
            high, low, _ = multiply_doubles(f, factor, one)
            window[k] = f.add(window[k], low)
            window[k + 1] = f.add(window[k + 1], high)

    def reduction_digit(self, f: Function, column: Vec, inverse: Factor) -> tuple[Vec, Factor]:
        """See `Limbs.reduction_digit`."""
        _, low, digit = multiply_doubles(f, self.left(f, f.mask(column, 52)), inverse)
        return low, digit


def limbs_for(path: VectorPath, bits: int) -> Limbs:
    """The widest limbs of a path that a modulus of this many bits allows."""
    import os
    if path.radix == 52:
        return Limbs52()
    return LimbsByFma(int(os.environ.get("TILE", "4")))
