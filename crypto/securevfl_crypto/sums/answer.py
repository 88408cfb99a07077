"""The holder's answer in sealed sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl_crypto.errors import MalformedError

__all__ = ["SealedSums"]


@dataclass(frozen=True)
class SealedSums:
    """A holder's answer.

    Attributes:
        ciphertexts: the packed sums, uint8 (packs, ciphertext_bytes).
        omitted: the omitted bin of each node and column, int32 (nodes, columns), −1 for none. The owner knows the sum
            over all bins, so it can compute the omitted one.
    """

    ciphertexts: np.ndarray = field(repr=False)
    omitted: np.ndarray = field(repr=False)

    def check_omitted(self, bins: Sequence[int], nodes: int) -> np.ndarray:
        """Check `omitted` against the columns' numbers of bins and return it as int64.

        Raises:
            MalformedError: wrong type or shape, or an unknown bin.
        """
        found = self.omitted
        if not isinstance(found, np.ndarray) or found.dtype != np.int32 or found.shape != (nodes, len(bins)):
            what = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
            raise MalformedError(f"bins left out as {what}; expected int32 ({nodes}, {len(bins)})")
        wide = found.astype(np.int64)
        if (wide < -1).any() or (wide >= np.asarray(bins, dtype=np.int64)).any():
            raise MalformedError(f"a bin left out from {wide.min()} to {wide.max()} that its column does not have")
        return wide
