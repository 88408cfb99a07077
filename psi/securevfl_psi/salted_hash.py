"""Comparing salted hashes: a baseline, and for parties that trust each other. It is **not** private.

Whoever learns the digests and the salt, and so each of the two parties, can hash all identifiers that there could be,
telephone numbers in seconds, and read the other's whole set: `reverse` does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from securevfl_crypto.engine import engine

from securevfl_psi.arrays import match, secret_order
from securevfl_psi.blinding import MAX_SET_SIZE, Gathered
from securevfl_psi.chunks import require_rows, split
from securevfl_psi.errors import IdentifierError, PSIError, SetSizeError
from securevfl_psi.group import TOKEN_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.proofs import OUTPUT_BYTES, Outputs

__all__ = ["UnsafeSaltedHash", "reverse", "salted_digests"]


def salted_digests(ids: Identifiers, salt: bytes, length: int = TOKEN_BYTES) -> np.ndarray:
    """SHA-512 of identifier and salt, truncated: uint8 (n, length)."""
    out = np.empty((len(ids), length), dtype=np.uint8)
    for rows in split(np.arange(len(ids))):
        for places, matrix in ids.matrices(rows):
            suffix = np.broadcast_to(np.frombuffer(salt, dtype=np.uint8), (len(places), len(salt)))
            out[rows[places]] = engine().sha512(np.concatenate([matrix, suffix], axis=1))[:, :length]
    return out


class UnsafeSaltedHash:
    """Either role. The receiver takes the sender's digests and compares; the sender learns nothing but what it is told.

    Args:
        ids: normalised identifiers, none twice.
        salt: known to both parties, at least 16 bytes.
        max_set_size: largest set, own or peer's.

    Raises:
        PSIError: a salt that is too short.
        SetSizeError: more identifiers than allowed.
        IdentifierError: identifiers that are doubled.
    """

    def __init__(self, ids: Sequence[str], salt: bytes, *, max_set_size: int = MAX_SET_SIZE) -> None:
        if len(salt) < 16:
            raise PSIError(f"a salt of {len(salt)} bytes; at least 16 are needed")
        if len(ids) > max_set_size:
            raise SetSizeError(f"a set of {len(ids)} identifiers; at most {max_set_size}: raise max_set_size")
        self._ids = Identifiers.of_texts(ids)
        if self._ids.doubled():
            raise IdentifierError("identifiers are doubled; normalise them first, which says which")
        self.outputs = Outputs(salted_digests(self._ids, salt, OUTPUT_BYTES), salt)
        self._theirs = Gathered(TOKEN_BYTES, max_set_size, "the sender's digests")
        self.complete = not len(ids)
        """Whether all own digests were made."""

    def chunks(self) -> Iterator[np.ndarray]:
        """The sender's digests, in a secret order: parts of uint8 (k, 16)."""
        self.complete = True
        tokens = self.outputs.tokens()
        for rows in split(secret_order(len(tokens))):
            yield tokens[rows]

    def take(self, digests: np.ndarray) -> None:
        """At the receiver, a part of the sender's digests.

        Raises:
            MalformedError: another type or shape.
            SetSizeError: more than allowed.
        """
        require_rows(digests, TOKEN_BYTES, "the sender's digests")
        self._theirs.add(digests)

    def finish(self, count: int | None = None) -> np.ndarray:
        """At the receiver, its own rows that are common, ascending, int64 (k,); `count` is the announced number.

        Raises:
            SetSizeError: another number than announced.
            MalformedError: digests that come twice.
        """
        return match(self.outputs.tokens(), self._theirs.whole(count))[0]

    def rows(self, proofs: np.ndarray) -> np.ndarray:
        """At the sender, its own rows that the receiver found, int64 (k,).

        Raises:
            MalformedError: a proof of no own row, or one that comes twice.
        """
        return self.outputs.rows(proofs)


def reverse(digests: np.ndarray, salt: bytes, candidates: Iterable[str]) -> dict[int, str]:
    """The dictionary attack: which digests are those of which candidates.

    Args:
        digests: what a party sent, uint8 (n, 16).
        salt: which each of the two parties knows.
        candidates: all identifiers that there could be, none twice.

    Returns:
        Row of `digests` → identifier.
    """
    column = Identifiers.of_texts(list(candidates))
    rows, places = match(np.ascontiguousarray(digests), salted_digests(column, salt))
    return {int(row): column[int(place)] for row, place in zip(rows, places, strict=True)}
