"""What a party of two computes with where its columns are cut into bins: some numbers for each bin, in its own rows.

A row has one cell for each bin. In the plain encoding the cell of its own bin would be 1 and all others 0; gradient
descent then learns each bin by itself, and of bins with few rows mostly chance. Here a row's bin fills the cells of its
neighbours, too: the rows of the square root of K = (1 + λ D'D)⁻¹, with D the second differences along the bins. Steps
then move the weights of bins by K times what they would: slopes as fast as before, jumps from bin to bin slowly (a
smoothing spline; Eilers and Marx, "Flexible smoothing with B-splines and penalties", Statistical Science 1996). λ falls
with the rows of a bin, so that many rows may show jumps.

A party encodes its rows as it likes, so none of this takes a message. The weight of a bin is the same linear
combination of the weights of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from securevfl_crypto.two.online import ROW_BITS

from securevfl.errors import PolicyError
from securevfl.training.binned import BinnedRole

__all__ = ["HeldCells", "check_bins", "encode_bins"]

_LARGEST, _SPREAD = 0.25, 3.0
_SMOOTH = 100.0
"""λ times the mean number of rows in a bin. On the credit table, 850 or 12,800 rows, 100 to 300 do about equally."""


def encode_bins(bins: int, columns: int, rows: int) -> np.ndarray:
    """What the cells of a column are, by the bin of the row: int64 (bins, bins) with `ROW_BITS`.

    Their size is half of one, and less from 13 columns on: all columns' weights move at once, and with this, steps at
    the default rate stay stable where columns are copies of each other. Each party computes it from its own columns: it
    is a choice of units, which its weights make up for.

    Args:
        bins: of the column.
        columns: of the party, with two bins or more.
        rows: that trained.
    """
    size = math.sqrt(min(_LARGEST, _SPREAD / columns)) * (1 << ROW_BITS)
    roughness = np.diff(np.eye(bins), 2, axis=0) if bins > 2 else np.zeros((0, bins))
    values, vectors = np.linalg.eigh(np.eye(bins) + _SMOOTH * bins / max(rows, 1) * roughness.T @ roughness)
    found: np.ndarray = np.rint(size * (vectors / np.sqrt(values)) @ vectors.T).astype(np.int64)
    return found


def check_bins(codes: np.ndarray, cuts: Sequence[np.ndarray], least: int, name: str) -> None:
    """Refuse bins with too few training rows. A party counts its own rows, so that no message is needed.

    Args:
        codes: the bin of each training row in each column, int64 (n, columns).
        cuts: of each column.
        least: the fewest rows of a bin.
        name: of the party.

    Raises:
        PolicyError: a bin has fewer.
    """
    counts = [np.bincount(column, minlength=len(cut) + 1) for column, cut in zip(codes.T, cuts, strict=True)]
    fewest = min((int(one.min()) for one in counts), default=least)
    if fewest < least:
        raise PolicyError(
            f"{name!r} refuses to train: one of its bins has {fewest} training rows, and the job says at least "
            f"{least}: predictions could tell single rows' labels. Take fewer bins, or more rows; nothing was computed"
        )


class HeldCells:
    """A party's rows in bins. Columns with one bin have no cells.

    Args:
        binned: the party's role.

    Attributes:
        rows: that trained.
    """

    def __init__(self, binned: BinnedRole) -> None:
        self._binned = binned
        self.rows = 0

    def width(self) -> int:
        """Cells of a row."""
        return sum(len(cut) + 1 for cut in self._binned.cuts if len(cut))

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Cells of numbered rows, int64 (n, cells)."""
        codes, cuts = self._binned.find_bins(rows), self._binned.cuts
        used = [j for j, cut in enumerate(cuts) if len(cut)]
        parts = [encode_bins(len(cuts[j]) + 1, len(used), self.rows)[codes[:, j]] for j in used]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(rows), 0), dtype=np.int64)
