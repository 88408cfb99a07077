"""The rows' cells in few bytes: sums modulo 2^32, sides modulo 2^8, and no product where their own party computes.

A party that owns columns and computes knows its cells: it adds up by bin, and the two others multiply once each, where
a general product costs five times as much over all cells. A lift to 2^64 is exact, because the bits that the truncation
cuts off are zero: a sum is below 2^30 in size (`choose_gradient_bits`, `TreeRule.check_shift`), a side is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from securevfl_crypto.replicated import (
    DealtNarrow,
    DealtOwned,
    NarrowShare,
    NarrowTerm,
    Share,
    Task,
    combine_summand,
    deal_narrow,
    deal_owned,
    dealt_terms,
    owned_term,
    owner_term,
    sum_summand,
)
from securevfl_crypto.ring import OneHotMatrix

from securevfl.errors import InputError
from securevfl.shares.engine import Engine
from securevfl.shares.trees.layout import CellLayout

__all__ = ["CellPart", "NarrowCells", "deal_cells", "score_sides"]

CellPart: TypeAlias = "np.ndarray | DealtOwned | NarrowShare"
"""What a computing party has of a data party's cells: its own codes, what another computing party dealt it, or a share
of what a party that does not compute dealt."""

_HISTOGRAM_SHIFT, _SIDE_SHIFT = 32, 56


def _columns_of(layout: CellLayout, party: int) -> tuple[int, ...]:
    """Cells of each column of a data party."""
    return tuple(size for size, owner in zip(layout.sizes, layout.owners, strict=True) if owner == party)


def deal_cells(
    layout: CellLayout, party: int, codes: np.ndarray, *, computing: int | None, bits: Literal[8, 32] = 32
) -> dict[int, DealtNarrow | DealtOwned]:
    """Share a data party's cells.

    Args:
        layout: columns and their bins.
        party: the data party's index, 0 for the active one.
        codes: the cell of each row within each of its columns, uint8 (columns, n).
        computing: its index among the computing parties, or None if it does not compute.
        bits: 32 for rows that train; 8 for rows that are only scored.

    Returns:
        The messages, by the index of the computing party; none for itself.

    Raises:
        MalformedError: codes of another type or shape, or beyond the cells of their column.
    """
    sizes = _columns_of(layout, party)
    OneHotMatrix(codes, sizes)  # checks the codes
    words = np.zeros((sum(sizes), codes.shape[1]), np.uint32 if bits == 32 else np.uint8)
    rows = np.arange(codes.shape[1])
    for start, row in zip(np.cumsum((0, *sizes))[:-1], codes, strict=True):
        words[start + row.astype(np.intp), rows] = 1
    if computing is None:
        return dict(enumerate(deal_narrow(words)))
    return {dealt.index: dealt for dealt in deal_owned(words, computing)}


class NarrowCells:
    """`Cells` modulo 2^32 and 2^8. In the clear all parts are codes.

    Args:
        layout: columns and their bins.
        parts: of each data party, in order.
        index: of this computing party; 0 in the clear.

    Attributes:
        layout, rows: as in `Cells`.

    Raises:
        InputError: the parts do not fit the layout or each other.
        MalformedError: codes of another type, or beyond the cells of their column.
    """

    histogram_shift = _HISTOGRAM_SHIFT
    side_shift = _SIDE_SHIFT

    def __init__(self, layout: CellLayout, parts: Sequence[CellPart], index: int) -> None:
        if list(layout.owners) != sorted(layout.owners) or max(layout.owners, default=-1) >= len(parts):
            raise InputError(
                f"columns of the parties {layout.owners} and cells of {len(parts)} parties: expected the columns of "
                "each party in turn, and cells of every party"
            )
        self.layout = layout
        self._terms: list[tuple[slice, list[NarrowTerm]]] = []
        rows, start = set(), 0
        for party, part in enumerate(parts):
            sizes = _columns_of(layout, party)
            count = sum(sizes)
            if not isinstance(part, np.ndarray) and (len(part.shape) != 2 or part.shape[0] != count):
                raise InputError(
                    f"data party {party} dealt cells of shape {part.shape}; its columns have {count} cells"
                )
            terms = _make_terms(part, sizes, index)
            rows.add(terms[0].matrix.rows)
            self._terms.append((slice(start, start + count), terms))
            start += count
        if len(rows) != 1:
            raise InputError(f"data parties dealt cells of {sorted(rows)} rows; expected the same rows of all")
        (self.rows,) = rows

    def sum_by_cell(self, values: Share) -> np.ndarray:
        """See `Cells`; the low 32 bits count."""
        out = np.empty((self.layout.cells, values.shape[1]), np.uint64)
        for cells, terms in self._terms:
            out[cells] = sum_summand(terms, values)
        return out

    def choose_sides(self, sides: Share | NarrowShare) -> np.ndarray:
        """See `Cells`; the low 8 bits count. Low bytes of the sides suffice."""
        out = np.zeros((sides.shape[0], self.rows), np.uint8)
        for cells, terms in self._terms:
            out += combine_summand(terms, sides[:, cells])
        return out.astype(np.uint64)


def _make_terms(part: CellPart, sizes: Sequence[int], index: int) -> list[NarrowTerm]:
    if isinstance(part, np.ndarray):
        return [owner_term(OneHotMatrix(part, sizes))]
    if isinstance(part, DealtOwned):
        if part.index != index:
            raise InputError(f"cells that were dealt to computing party {part.index}, at party {index}")
        return [owned_term(part)]
    return dealt_terms(part, index)


async def score_sides(engine: Engine, rows: NarrowShare | NarrowCells, sides: NarrowShare) -> Share:
    """Tell on shares which rows go left at which nodes, in two rounds.

    Args:
        engine: computes on shares.
        rows: the cells of each row, 0 or 1, bytes (n, cells), or `NarrowCells`, which cost less.
        sides: the cells that go left at each node, 0 or 1, bytes (nodes, cells).

    Returns:
        0 or 1, (n, nodes).

    Raises:
        InputError: rows and sides have different numbers of cells, or are not bytes.
    """
    cells = rows.layout.cells if isinstance(rows, NarrowCells) else rows.shape[-1]
    if sides.bits != 8 or sides.shape[-1] != cells or (isinstance(rows, NarrowShare) and rows.bits != 8):
        raise InputError(
            f"sides of {sides.bits} bits and shape {sides.shape} for rows of {cells} cells: expected bytes (nodes, "
            f"{cells})"
        )
    if isinstance(rows, NarrowCells):
        summand = rows.choose_sides(sides)
    else:
        summand = combine_summand(dealt_terms(rows.T, engine.index), sides).astype(np.uint64)
    ((found,),) = await engine.run_masked([Task(summand << np.uint64(_SIDE_SHIFT), _SIDE_SHIFT)])
    return found.T
