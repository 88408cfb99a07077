"""Limbs of long numbers, of 52 bits, and the addition of their products to columns."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.emitter import MASK52, Function, Vec
from securevfl_crypto.engine.products52 import (
    Doubles,
    bits_of_doubles,
    high_bias,
    low_bias,
    multiply_doubles,
    read_doubles,
    to_doubles,
)

__all__ = ["MOST_BITS", "FmaLimbs", "IfmaLimbs", "Limbs", "LimbsOf", "limbs_for"]

MOST_BITS = 16384
"""The most bits of a modulus."""
F = TypeVar("F")


class LimbsOf(ABC, Generic[F]):
    """Limbs whose products have factors of type F. The number of limbs of a number is a multiple of `tile`.

    A product is a limb of one number, the left factor, by a limb of another, the right factor. Left factors are made
    from limbs, a tile at a time. Right factors are read again and again, so kernels find them as words.

    Args:
        tile: limbs that a kernel holds in registers.

    Attributes:
        bits: bits of a limb.
        top: the largest limb.
        most: limbs of the longest number for which overflow is excluded, a multiple of `tile`.
        by_doubles: whether words of right factors are doubles; then kernels need a rounding mode (`doubles`).
    """

    bits: ClassVar[int] = 52
    top: ClassVar[int] = MASK52
    by_doubles: ClassVar[bool]

    def __init__(self, tile: int) -> None:
        self.tile = tile
        self.most = -(-(MOST_BITS + 2) // self.bits // tile) * tile

    @property
    def tile_growth(self) -> int:
        """The most that the products of a tile with another add to a column: two halves for each limb."""
        return 2 * self.tile * self.top

    def column_growth(self, place: int) -> int:
        """The most that the column at this place of a tile has gained since it was loaded, when the next tile begins.

        A column enters at the end of the tile and moves down one place for each limb of the other number.
        """
        return self.top * (2 * (self.tile - 1 - place) + 1)

    @abstractmethod
    def column_bias(self, place: int) -> int:
        """The bias of the column at this place of a tile, when the next tile begins."""

    @abstractmethod
    def left(self, f: Function, limb: Vec) -> F:
        """A limb as a left factor."""

    @abstractmethod
    def right_word(self, f: Function, limb: Vec) -> Vec:
        """The word of a limb as a right factor."""

    @abstractmethod
    def constant_word(self, limb: int) -> int:
        """`right_word` of a number."""

    @abstractmethod
    def read_right(self, f: Function, word: Vec) -> F:
        """A right factor from its word."""

    @abstractmethod
    def add_row(self, f: Function, window: list[Vec], place: int, many: Sequence[F], one: F) -> None:
        """Adds products of left and right factors to columns: many[k] · one to those at `place` + k and one more."""

    @abstractmethod
    def reduction_digit(self, f: Function, column: Vec, inverse: F) -> tuple[Vec, F]:
        """column · inverse modulo 2^bits, of which the low bits count; and as a left factor."""


Limbs: TypeAlias = LimbsOf[Any]


class IfmaLimbs(LimbsOf[Vec]):
    """Products by AVX-512 IFMA (Gueron and Krasnov 2016)."""

    by_doubles = False

    def __init__(self, tile: int = 10) -> None:
        super().__init__(tile)

    def column_bias(self, place: int) -> int:
        """See `LimbsOf.column_bias`."""
        return 0

    def left(self, f: Function, limb: Vec) -> Vec:
        """See `LimbsOf.left`."""
        return limb

    def right_word(self, f: Function, limb: Vec) -> Vec:
        """See `LimbsOf.right_word`."""
        return limb

    def constant_word(self, limb: int) -> int:
        """See `LimbsOf.constant_word`."""
        return limb

    def read_right(self, f: Function, word: Vec) -> Vec:
        """See `LimbsOf.read_right`."""
        return replace(word, top=self.top)

    def add_row(self, f: Function, window: list[Vec], place: int, many: Sequence[Vec], one: Vec) -> None:
        """See `LimbsOf.add_row`. Half by half: an addition waits for the one before it to the same column."""
        for k, factor in enumerate(many, place):
            window[k] = f.madd_low(window[k], factor, one)
        for k, factor in enumerate(many, place + 1):
            window[k] = f.madd_high(window[k], factor, one)

    def reduction_digit(self, f: Function, column: Vec, inverse: Vec) -> tuple[Vec, Vec]:
        """See `LimbsOf.reduction_digit`."""
        digit = f.low52(f.madd_low(f.constant(0), f.low52(column), inverse))
        return digit, digit


class FmaLimbs(LimbsOf[Doubles]):
    """Products of doubles (`doubles`), five instructions for both halves.

    Left factors are scaled by 2^-77. The biases of the halves of a product then add up to 2^63, so that a column that
    took all products of a tile of even length has none.
    """

    by_doubles = True
    _SCALE: ClassVar[int] = -77

    def __init__(self, tile: int = 4) -> None:
        super().__init__(tile)

    def column_bias(self, place: int) -> int:
        """See `LimbsOf.column_bias`."""
        gone = self.tile - 1 - place
        return (gone * low_bias(self._SCALE) + (gone + 1) * high_bias(self._SCALE)) % (1 << 64)

    def left(self, f: Function, limb: Vec) -> Doubles:
        """See `LimbsOf.left`."""
        return to_doubles(f, limb, self._SCALE)

    def right_word(self, f: Function, limb: Vec) -> Vec:
        """See `LimbsOf.right_word`."""
        return bits_of_doubles(f, to_doubles(f, limb))

    def constant_word(self, limb: int) -> int:
        """See `LimbsOf.constant_word`."""
        return int.from_bytes(struct.pack("<d", limb), "little")

    def read_right(self, f: Function, word: Vec) -> Doubles:
        """See `LimbsOf.read_right`."""
        return read_doubles(f, word, self.top)

    def add_row(self, f: Function, window: list[Vec], place: int, many: Sequence[Doubles], one: Doubles) -> None:
        """See `LimbsOf.add_row`."""
        for k, factor in enumerate(many, place):
            high, low, _ = multiply_doubles(f, factor, one)
            window[k] = f.add(window[k], low)
            window[k + 1] = f.add(window[k + 1], high)

    def reduction_digit(self, f: Function, column: Vec, inverse: Doubles) -> tuple[Vec, Doubles]:
        """See `LimbsOf.reduction_digit`."""
        _, low, digit = multiply_doubles(f, self.left(f, f.mask(column, self.bits)), inverse)
        return low, digit


def limbs_for(path: VectorPath) -> Limbs:
    """The limbs of a path."""
    return IfmaLimbs() if path.radix == 52 else FmaLimbs()
