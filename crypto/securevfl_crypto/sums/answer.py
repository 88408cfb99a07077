"""The message of sealed sums that the holder sends back."""

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
        omitted: the bin of each node and column that is left out, int32 (nodes, columns), −1 for none. The owner knows
            the sum over all bins.
    """

    ciphertexts: np.ndarray = field(repr=False)
    omitted: np.ndarray = field(repr=False)

    def checked(self, bins: Sequence[int], nodes: int) -> np.ndarray:
        """`omitted` as int64, of columns with so many bins.

        Raises:
            MalformedError: it has another type or shape, or names a bin that does not exist.
        """
        found = self.omitted
        if not isinstance(found, np.ndarray) or found.dtype != np.int32 or found.shape != (nodes, len(bins)):
            what = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
            raise MalformedError(f"bins left out as {what}; int32 ({nodes}, {len(bins)}) is needed")
        wide = found.astype(np.int64)
        if (wide < -1).any() or (wide >= np.asarray(bins, dtype=np.int64)).any():
            raise MalformedError(f"a bin left out from {wide.min()} to {wide.max()} that its column does not have")
        return wide
