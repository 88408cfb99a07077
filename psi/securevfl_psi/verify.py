"""What a comparison of ordered identifiers begins with: one digest for the whole list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from securevfl_psi.column import Identifiers

__all__ = ["list_digest"]


def list_digest(ids: Sequence[str], rows: np.ndarray | None = None) -> bytes:
    """SHA-512 of identifiers in their order, 64 bytes. It stays with its party: whoever gets it can try guesses on it.

    `cpace.Comparison` compares two of them without showing either.

    Args:
        ids: the party's own, normalised; each enters with its length, and so does their number.
        rows: which identifiers, in the agreed order, int64 (k,); all, as they stand, without it.

    Raises:
        IdentifierError: an identifier that is no Unicode text.
    """
    column = Identifiers.of_texts(ids)
    wanted = np.arange(len(column)) if rows is None else rows
    digest = hashlib.sha512(b"securevfl order v2" + len(wanted).to_bytes(8, "big"))
    for framed in column.framed(wanted):
        digest.update(framed)
    return digest.digest()
