"""The layout of a block, which owner and holder derive without a message: moduli, tiles and message formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from securevfl_crypto.block import Block
from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.rlwe.encoding import Encoding
from securevfl_crypto.rlwe.envelopes import Content, Envelope
from securevfl_crypto.rlwe.keys import RlwePublicKey
from securevfl_crypto.rlwe.noise import Noise
from securevfl_crypto.rlwe.parameters import Chain
from securevfl_crypto.rlwe.seal import X_BITS
from securevfl_crypto.rlwe.tiling import PolynomialPlaces, Tiling
from securevfl_crypto.scheme import Ring

__all__ = ["Demand", "EncodingChoice", "Plan", "Tile", "check_batch", "check_integers", "tile_length"]

Tile = tuple[slice, slice, PolynomialPlaces]
"""Rows and columns of a matrix, and their places in a ring element."""


@dataclass(frozen=True)
class Demand:
    """The parameters of the noise that do not depend on the moduli; `Noise` explains them."""

    x_bits: int
    terms: int
    sigma: int

    def noise_bounds(self, chain: Chain) -> Noise:
        """The noise bounds on this chain."""
        return Noise(chain, self.x_bits, self.terms, self.sigma)


EncodingChoice = Callable[[Block, Demand, Demand], tuple[Encoding, Encoding]]
"""Chooses a scheme's encodings of products and of gradients for a block: `RlweScheme.choose_encodings`."""


class Plan:
    """The layout of a block.

    Args:
        encodings: chooses the encodings.
        key: the owner's public key.
        block: the sizes of the integers.

    Attributes:
        tiling: the sizes of tiles.
        products, gradients: the encodings of both.
        ring: the ring of the shares.

    Raises:
        OverflowRefused: the values of the block and their noise do not fit.
    """

    def __init__(self, encodings: EncodingChoice, key: RlwePublicKey, block: Block) -> None:
        if block.x_bits > X_BITS:
            raise OverflowRefused(
                f"rows of {block.x_bits} bits; {X_BITS} can be multiplied: bound them more tightly, with less "
                "noise, or use Paillier"
            )
        widest = max(block.width_in, block.widest)
        self.block, self.key = block, key
        self.tiling = Tiling.plan(block.batch, widest, block.width_out)
        self.products, self.gradients = encodings(
            block,
            Demand(block.x_bits, self.tiling.rows * widest, block.sigma),
            Demand(block.x_bits, self.tiling.features * block.batch, block.sigma),
        )
        self.ring = Ring(None if block.integer_shares else self.products.modulus)

    def create_envelope(self, content: Content, encoding: Encoding, rows: int = 0) -> Envelope:
        """The envelope of messages with this content; rows is 0 where messages do not depend on it."""
        chain = self.key.chains.index(encoding.noise.chain)
        return Envelope(content, self.key.scheme, chain, self.key.tag, self.tiling, rows, encoding.seal)

    def cut_tiles(self, length: int, size: int) -> list[slice]:
        """Cut an axis of this length into tiles of this size; the last one may be smaller."""
        return [slice(start, min(start + size, length)) for start in range(0, length, size)]

    @property
    def input_tiles(self) -> list[slice]:
        """The tiles of the features."""
        return self.column_tiles(self.block.width_in)

    def column_tiles(self, count: int) -> list[slice]:
        """The tiles of `count` features."""
        return self.cut_tiles(count, self.tiling.features)

    @property
    def output_tiles(self) -> list[slice]:
        """The tiles of the columns of z."""
        return self.cut_tiles(self.block.width_out, self.tiling.outputs)

    def row_tiles(self, count: int) -> list[slice]:
        """The tiles of `count` rows."""
        return self.cut_tiles(count, self.tiling.rows)

    def product_tiles(self, rows: int) -> Iterator[Tile]:
        """The tiles of a product, in the order of the message."""
        for down in self.row_tiles(rows):
            for out in self.output_tiles:
                yield down, out, self.tiling.product_places(tile_length(down), tile_length(out))

    def gradient_tiles(self, columns: int) -> Iterator[Tile]:
        """The tiles of a gradient with so many features, in the order of the message."""
        for across in self.column_tiles(columns):
            for out in self.output_tiles:
                yield across, out, self.tiling.gradient_places(tile_length(across), tile_length(out))


def tile_length(tile: slice) -> int:
    """The number of rows or columns in a tile."""
    return int(tile.stop - tile.start)


def check_integers(array: np.ndarray, columns: int, bits: int, what: str) -> None:
    """Check that an array is int64, (1 or more rows, columns), with entries below 2^bits.

    Raises:
        MalformedError: the type or shape differs.
        OverflowRefused: an entry is too large.
    """
    if array.dtype != np.int64 or array.ndim != 2 or array.shape[1] != columns or not len(array):
        raise MalformedError(f"{what} is {array.dtype} {array.shape}; expected int64 (rows, {columns})")
    # −min as a Python integer: numpy's abs of the smallest int64 is negative and would pass.
    largest = max(int(array.max()), -int(array.min()))
    if largest >> bits:
        raise OverflowRefused(
            f"{what} reaches {largest.bit_length()} bits; {bits} fit: lower the learning rates or the clip"
        )


def check_batch(rows: int, most: int) -> None:
    """Check that a batch has at most the planned number of rows.

    Raises:
        MalformedError: it has more.
    """
    if rows > most:
        raise MalformedError(f"a batch of {rows} rows; the plan has 1 to {most}")
