"""Parameters, tiles and messages of products that stay shares: what the two halves of `held` derive without a message.

N = 4096 with two primes below 2^50. The answers need no room for a flood (see `held`), so 100 bits suffice for words of
64 bits and the noise; the Homomorphic Encryption Standard (Albrecht et al., 2018, table 1) allows 109 at N = 4096 and
128 bits of security, ternary secrets.

The tiles are those of `tiling`, but nothing is left empty: rows · features · outputs ≤ N. That suffices. Of x R,
exponents below zero wrap to N − features + 1 and above, and the highest place is N − features. Of xᵀR', exponents
that are not places wrap to A or more beyond a place, where all places lie within A.

Messages are uint8 (bytes,): a header of 28 bytes and ring elements. The header: ``SVHL``, version, content, two bytes
of zero, eight bytes that name key and session, rows, columns and number of ring elements. A pair of residues takes 13
bytes.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.rlwe.residues import Basis
from securevfl_crypto.rlwe.tiling import Tiling, tile_widths

__all__ = [
    "BASIS",
    "DEGREE",
    "LARGEST",
    "PAIR_BYTES",
    "SEED_BYTES",
    "HeldContent",
    "HeldGrid",
    "HeldLayout",
    "read_pairs",
    "write_pairs",
]

DEGREE = 4096
"""N."""
BASIS = Basis(((1 << 50) - (1 << 14) + 1, (1 << 50) - 13 * (1 << 14) + 1))
"""The two largest primes below 2^50 that are 1 modulo 2^14: q is their product, q / 2^64 almost 2^36."""
LARGEST = 1 << 13
"""Entries of x are at most this in size."""
SEED_BYTES = 32
"""Bytes of the seed that replaces the uniform half of an upload."""
PAIR_BYTES = 13
_BITS = 50
_FIRST, _REST = np.uint64(_BITS), np.uint64(64 - _BITS)
_PAIR = np.dtype([("low", "<u8"), ("middle", "<u4"), ("top", "u1")])  # not aligned
_HEAD = struct.Struct("<4sBB2x8s3I")
_MAGIC, _VERSION = b"SVHL", 1
_MOST = 1 << 12  # rows, columns and outputs of a layout

# Microseconds on one core: to seal and load an upload; to mask, send and open an answer; to encode a tile of x; and to
# multiply it for a product and a gradient.
_UPLOAD, _ANSWER, _TILE, _PRODUCT = 220.0, 350.0, 40.0, 40.0


class HeldContent(IntEnum):
    """Contents of a message."""

    KEY = 1
    WEIGHTS = 2
    STEPS = 3
    PRODUCT = 4
    GRADIENT = 5


@dataclass(frozen=True, eq=False)
class HeldGrid:
    """The tiles of one matrix, and where their entries are in ring elements and one after another.

    Attributes:
        tiles: for each tile, its rows and columns in the matrix.
        places: for each tile, the coefficients of its entries, in C order.
        parts: for each tile, where its entries are among those of all tiles.
        negative: of all tiles, which entries are negated in their coefficient.
        shape: of the matrix.
    """

    tiles: tuple[tuple[slice, slice], ...]
    places: tuple[np.ndarray, ...]
    parts: tuple[slice, ...]
    negative: np.ndarray
    shape: tuple[int, int]

    def flatten(self, matrix: np.ndarray) -> np.ndarray:
        """The entries of a matrix, tile by tile."""
        return np.concatenate([matrix[tile].ravel() for tile in self.tiles])

    def unflatten(self, entries: np.ndarray) -> np.ndarray:
        """The inverse of `flatten`."""
        whole = np.empty(self.shape, dtype=entries.dtype)
        for (down, out), part in zip(self.tiles, self.parts, strict=True):
            whole[down, out] = entries[part].reshape(down.stop - down.start, out.stop - out.start)
        return whole


@dataclass(frozen=True)
class HeldLayout:
    """The sizes that both halves agree on.

    An entry of a product has noise Σ x e over (rows of a tile) · d terms, of a gradient over (columns of a tile) · B,
    and that of the encryption of zero, 2 N products. With tiles that are about as wide as high this is at most 0.69 of
    q / 2^64, one unit of the result, up to B = d = 4,096 (a test computes it for all sizes of a grid).

    Attributes:
        batch: B, the most rows of x.
        width: d, the columns of x.
        outputs: E, the columns of R and R'.

    Raises:
        MalformedError: a size is out of range.
    """

    batch: int
    width: int
    outputs: int

    def __post_init__(self) -> None:
        for name in ("batch", "width", "outputs"):
            size = getattr(self, name)
            if not isinstance(size, int) or not 1 <= size <= _MOST:
                raise MalformedError(f"{name} is {size!r}; expected 1 to {_MOST}")

    @property
    def tiling(self) -> Tiling:
        """The sizes of the tiles."""
        return _plan_tiles(self.batch, self.width, self.outputs)

    def check_rows(self, rows: int) -> None:
        """Check the number of rows of a batch.

        Raises:
            MalformedError: it is not from 1 to `batch`.
        """
        if not 1 <= rows <= self.batch:
            raise MalformedError(f"a batch of {rows} rows; the layout has 1 to {self.batch}")

    def row_tiles(self, rows: int) -> list[slice]:
        """The tiles of the rows of x."""
        return _cut(rows, self.tiling.rows)

    @property
    def column_tiles(self) -> list[slice]:
        """The tiles of the columns of x."""
        return _cut(self.width, self.tiling.features)

    @property
    def output_tiles(self) -> list[slice]:
        """The tiles of the columns of R."""
        return _cut(self.outputs, self.tiling.outputs)

    def grid(self, content: HeldContent, rows: int = 0) -> HeldGrid:
        """The tiles of a matrix in the order of its message; `rows` counts for steps and products."""
        return _lay_out(self, content, rows)

    # Messages

    def message_size(self, content: HeldContent, rows: int = 0) -> int:
        """The bytes of a message."""
        if content is HeldContent.KEY:
            return _HEAD.size + DEGREE * PAIR_BYTES
        grid = self.grid(content, rows)
        if content in (HeldContent.WEIGHTS, HeldContent.STEPS):
            return _HEAD.size + len(grid.places) * (SEED_BYTES + DEGREE * PAIR_BYTES)
        return _HEAD.size + (len(grid.negative) + len(grid.places) * DEGREE) * PAIR_BYTES

    def write_message(self, content: HeldContent, tag: bytes, parts: list[bytes], rows: int = 0) -> np.ndarray:
        """A message from its parts, uint8 (bytes,)."""
        return np.frombuffer(b"".join([self._header(content, tag, rows), *parts]), dtype=np.uint8)

    def read_message(self, content: HeldContent, tag: bytes, message: np.ndarray, rows: int = 0) -> memoryview:
        """What follows the header.

        Raises:
            MalformedError: the type, length or header is not that of this content, key, session and layout.
        """
        size = self.message_size(content, rows)
        if not isinstance(message, np.ndarray) or message.dtype != np.uint8 or message.shape != (size,):
            what = f"{message.dtype} {message.shape}" if isinstance(message, np.ndarray) else type(message).__name__
            raise MalformedError(
                f"a message of {what}; expected uint8 ({size},): both parties must have the same sizes and rows"
            )
        raw, head = memoryview(message.tobytes()), self._header(content, tag, rows)
        if raw[: _HEAD.size] != head:
            raise MalformedError(
                f"a message begins with {raw[: _HEAD.size].hex()}; expected {head.hex()}: its content, version, key, "
                "session or sizes differ"
            )
        return raw[_HEAD.size :]

    def _header(self, content: HeldContent, tag: bytes, rows: int) -> bytes:
        return _HEAD.pack(_MAGIC, _VERSION, content, tag, rows, self.width, self.outputs)


def write_pairs(residues: np.ndarray) -> bytes:
    """Residues modulo both primes, uint64 (2, n), in 13 bytes for each pair."""
    first, second = residues
    out = np.empty(len(first), dtype=_PAIR)
    out["low"] = first | second << _FIRST  # 14 bits of the second
    high = second >> _REST
    out["middle"], out["top"] = high.astype(np.uint32), (high >> np.uint64(32)).astype(np.uint8)
    return out.tobytes()


def read_pairs(data: memoryview) -> np.ndarray:
    """Read the residues that `write_pairs` wrote, uint64 (2, n).

    Raises:
        MalformedError: a residue is not below its prime.
    """
    pairs = np.frombuffer(data, dtype=_PAIR)
    found, low = np.empty((2, len(pairs)), dtype=np.uint64), pairs["low"].astype(np.uint64)
    np.bitwise_and(low, np.uint64((1 << _BITS) - 1), out=found[0])
    high = pairs["middle"].astype(np.uint64) | pairs["top"].astype(np.uint64) << np.uint64(32)
    np.bitwise_or(low >> _FIRST, high << _REST, out=found[1])
    # The transforms are only correct below the primes, so unreduced bytes of a peer stop here.
    if found.size and any(int(row.max()) >= prime for row, prime in zip(found, BASIS.primes, strict=True)):
        raise MalformedError("a residue is not below its prime: this is not a ring element")
    return found


@lru_cache(maxsize=128)
def _lay_out(layout: HeldLayout, content: HeldContent, rows: int) -> HeldGrid:
    tiling = layout.tiling
    across = content in (HeldContent.WEIGHTS, HeldContent.GRADIENT)
    place = {
        HeldContent.WEIGHTS: tiling.weight_places,
        HeldContent.STEPS: tiling.step_places,
        HeldContent.PRODUCT: tiling.product_places,
        HeldContent.GRADIENT: tiling.gradient_places,
    }[content]
    downs = layout.column_tiles if across else layout.row_tiles(rows)
    tiles = [(down, out) for down in downs for out in layout.output_tiles]
    places = [place(down.stop - down.start, out.stop - out.start) for down, out in tiles]
    sizes = np.cumsum([0, *(len(one.index) for one in places)]).tolist()
    return HeldGrid(
        tuple(tiles),
        tuple(one.index for one in places),
        tuple(slice(*ends) for ends in itertools.pairwise(sizes)),
        np.concatenate([one.negative for one in places]),
        (downs[-1].stop, layout.outputs),
    )


def _cut(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


@lru_cache(maxsize=256)
def _plan_tiles(batch: int, width: int, outputs: int) -> Tiling:
    """The cheapest tiling. Whichever it is, noise stays below one unit of the result: see `HeldLayout`."""
    best: tuple[float, Tiling] | None = None
    for out in tile_widths(outputs):
        for features in tile_widths(width):
            rows = min(batch, DEGREE // (features * out))
            if not rows:
                continue
            rows = -(-batch // -(-batch // rows))
            down, across, cuts = -(-batch // rows), -(-width // features), -(-outputs // out)
            cost = (_UPLOAD + _ANSWER) * (down + across) * cuts + (_TILE + _PRODUCT * cuts) * down * across
            if best is None or cost < best[0]:
                best = cost, Tiling(rows, features, out, DEGREE)
    if best is None:  # one row, one column and one output always fit
        raise OverflowRefused(f"no tile of {width} × {outputs} has {DEGREE} coefficients or fewer")
    return best[1]
