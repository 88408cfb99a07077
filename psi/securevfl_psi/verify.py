"""After the intersection: do both sides hold the same rows in the same order?"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import numpy as np

from securevfl_psi.column import Identifiers
from securevfl_psi.errors import PSIError

__all__ = ["digests_equal", "order_digest"]


def order_digest(ids: Sequence[str], key: bytes, context: str = "", rows: np.ndarray | None = None) -> bytes:
    """HMAC-SHA-256 of the identifiers in their order, 32 bytes.

    Args:
        ids: the party's own, normalised, in the agreed order; each enters with its length, and so does their number.
        key: 32 bytes known to the parties only: without it a digest of guessable identifiers could be tried.
        context: what the digest belongs to, for example a job.
        rows: which identifiers, in the agreed order, int64 (k,); all, as they stand, without it.

    Raises:
        PSIError: a key of another length.
        IdentifierError: an identifier that is no Unicode text.
    """
    if len(key) != 32:
        raise PSIError(f"a digest key of {len(key)} bytes; 32 are needed")
    column = Identifiers.of_texts(ids)
    wanted = np.arange(len(column)) if rows is None else rows
    mac = hmac.new(key, b"securevfl order v1", hashlib.sha256)
    for part in (context.encode(), len(wanted).to_bytes(8, "big")):
        mac.update(len(part).to_bytes(4, "big") + part)
    for framed in column.framed(wanted):
        mac.update(framed)
    return mac.digest()


def digests_equal(one: bytes, other: bytes) -> bool:
    """Whether two digests are equal, in constant time."""
    return hmac.compare_digest(one, other)
