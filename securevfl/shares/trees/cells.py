"""The rows' cells on shares, a 0/1 matrix: sums over the rows of each cell, and the side of each row by its cells."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from securevfl_crypto.replicated import Product, Share
from securevfl_crypto.ring import matmul

from securevfl.errors import InputError
from securevfl.shares.engine import Engine
from securevfl.shares.trees.layout import CellLayout

__all__ = ["Cells", "SharedCells", "share_summand"]


class Cells(Protocol):
    """One party's part of the matrix Z (cells, rows): Z[c, r] is 1 where row r lies in cell c.

    Its products are additive summands: those of the three parties add up to the result, not yet masked.
    """

    @property
    def layout(self) -> CellLayout:
        """Columns and their bins."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def histogram_shift(self) -> int:
        """Bits by which a sum has to be shifted up, and truncated again: 0 modulo 2^64, 32 modulo 2^32."""
        ...

    @property
    def side_shift(self) -> int:
        """The same for sides: 0, or 56 modulo 2^8."""
        ...

    def sum_by_cell(self, values: Share) -> np.ndarray:
        """Compute this party's summand of Z · values, unsigned (cells, k), from values (rows, k)."""
        ...

    def choose_sides(self, sides: Share) -> np.ndarray:
        """Compute this party's summand of sides · Z, unsigned (k, rows), from 0/1 words (k, cells)."""
        ...


class SharedCells:
    """Cells as data parties dealt them, modulo 2^64. With a share of `Clear` it is the reference in the clear.

    Args:
        layout: columns and their bins.
        share: Z, (cells, rows).
        index: of this party.

    Raises:
        InputError: the share has another number of cells.
    """

    histogram_shift = 0
    side_shift = 0

    def __init__(self, layout: CellLayout, share: Share, index: int) -> None:
        if share.ndim != 2 or len(share) != layout.cells:
            raise InputError(f"cells of shape {share.shape} were dealt; the columns have {layout.cells} cells")
        self.layout, self.rows = layout, share.shape[1]
        self._index = index
        # The split of a product into three summands of `product_summand`, by factors that each party keeps ready.
        self._factors = [share.mine + share.next] if index == 0 else [share.mine, share.next]

    def sum_by_cell(self, values: Share) -> np.ndarray:
        """See `Cells`."""
        pairs = zip(self._factors, self._other_factors(values), strict=True)
        return np.asarray(sum(matmul(cells, part) for cells, part in pairs))

    def choose_sides(self, sides: Share) -> np.ndarray:
        """See `Cells`."""
        pairs = zip(self._factors, self._other_factors(sides), strict=True)
        return np.asarray(sum(matmul(part, cells) for cells, part in pairs))

    def _other_factors(self, y: Share) -> list[np.ndarray]:
        if self._index == 0:
            return [y.mine + y.next]
        return [y.next, y.mine + y.next if self._index == 1 else y.mine]


def share_summand(engine: Engine, summand: np.ndarray, shift: int = 0) -> Product:
    """Make the product that turns summands of the three parties into a share, in one round, or two with a shift.

    Args:
        engine: computes on shares.
        summand: this party's, unsigned.
        shift: if not 0, only the low 64 − shift bits of the sum count, a signed number below 2^(62 − shift). They are
            shifted up, and the exact truncation brings them down again without a rounding.
    """
    zero = engine.constant(np.zeros((1,) * summand.ndim, np.uint64))
    own = summand.astype(np.uint64, copy=False) << np.uint64(shift)
    return Product(zero.broadcast_to(summand.shape), zero, "times", shift, own=own)
