"""Digest an ordered list of identifiers, so that parties can compare their lists."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from securevfl_psi.column import Identifiers

__all__ = ["list_digest"]


def list_digest(ids: Sequence[str], rows: np.ndarray | None = None) -> bytes:
    """Hash identifiers in their order with SHA-512, 64 bytes. Never send it: whoever has it can test guesses on it.

    `cpace.Comparison` compares two such digests without showing either.

    Args:
        ids: the party's normalised identifiers; the digest covers each one's length, and their number.
        rows: which identifiers, in the agreed order, int64 (k,); by default all, in their order.

    Raises:
        IdentifierError: an identifier is not Unicode text.
    """
    column = Identifiers.of_texts(ids)
    wanted = np.arange(len(column)) if rows is None else rows
    digest = hashlib.sha512(b"securevfl order v2" + len(wanted).to_bytes(8, "big"))
    for framed in column.iter_framed(wanted):
        digest.update(framed)
    return digest.digest()
