"""Limbs of long numbers: their width, and the addition of products of limbs to columns."""

from __future__ import annotations

from abc import ABC, abstractmethod

from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.emitter import MASK52, Function, Vec

__all__ = ["MOST_BITS", "Limbs", "Limbs52", "LimbsBy32", "limbs_for"]

MOST_BITS = 16384
"""The most bits of a modulus."""


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

    @abstractmethod
    def add_product(self, f: Function, column: Vec, a: Vec, b: Vec, half: int) -> Vec:
        """The column plus a · b, or plus this half of it."""

    @abstractmethod
    def reduction_digit(self, f: Function, column: Vec, inverse: Vec) -> Vec:
        """column · inverse modulo 2^bits."""


class Limbs52(Limbs):
    """52 bits, by AVX-512 IFMA (Gueron and Krasnov 2016)."""

    def __init__(self, tile: int = 10) -> None:
        super().__init__(52, tile, 2, -(-(MOST_BITS + 2) // 52) + tile - 1)

    @property
    def largest_product(self) -> int:
        """See `Limbs.largest_product`."""
        return MASK52

    def add_product(self, f: Function, column: Vec, a: Vec, b: Vec, half: int) -> Vec:
        """See `Limbs.add_product`."""
        return f.madd_high(column, a, b) if half else f.madd_low(column, a, b)

    def reduction_digit(self, f: Function, column: Vec, inverse: Vec) -> Vec:
        """See `Limbs.reduction_digit`."""
        return f.low52(f.madd_low(f.constant(0), f.low52(column), inverse))


class LimbsBy32(Limbs):
    """Limbs below 32 bits, by products of 32 bits (``vpmuludq``). The fewer bits, the longer the numbers can be."""

    def __init__(self, bits: int, tile: int) -> None:
        # A column of a square holds 3 products for each limb (montgomery.square), and carries.
        super().__init__(bits, tile, 1, min(-(-(MOST_BITS + 2) // bits) + tile - 1, (1 << 64 - 2 * bits) // 3))

    @property
    def largest_product(self) -> int:
        """See `Limbs.largest_product`."""
        return self.top**2

    def add_product(self, f: Function, column: Vec, a: Vec, b: Vec, half: int) -> Vec:
        """See `Limbs.add_product`."""
        return f.add(column, f.mul32(a, b))

    def reduction_digit(self, f: Function, column: Vec, inverse: Vec) -> Vec:
        """See `Limbs.reduction_digit`."""
        return f.mask(f.mul32(f.mask(column, 32), inverse), self.bits)


def limbs_for(path: VectorPath, bits: int) -> Limbs:
    """The widest limbs of a path that a modulus of this many bits allows."""
    if path.radix == 52:
        return Limbs52()
    tile = 8 if path.lanes == 8 else 4
    wide = LimbsBy32(27, tile)
    return wide if wide.bits * wide.most >= bits + 2 else LimbsBy32(26, tile)
