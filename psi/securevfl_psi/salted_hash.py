"""Compare salted hashes: a baseline, and an option for parties that trust each other. It is **not** private.

Each of the two parties knows the salt and the digests, so it can hash all possible identifiers (all telephone numbers
in seconds) and read the other party's complete set. `reverse_digests` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from securevfl_crypto.engine import choose_engine

from securevfl_psi.arrays import match_rows, secret_order
from securevfl_psi.blinding import MAX_SET_SIZE, RowBuffer
from securevfl_psi.chunks import require_rows, split
from securevfl_psi.errors import IdentifierError, PSIError, SetSizeError
from securevfl_psi.group import TOKEN_BYTES
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.proofs import OUTPUT_BYTES, Outputs

__all__ = ["UnsafeSaltedHash", "reverse_digests", "salted_digests"]


def salted_digests(ids: Identifiers, salt: bytes, length: int = TOKEN_BYTES) -> np.ndarray:
    """Hash each identifier and the salt with SHA-512, truncated: uint8 (n, length)."""
    out = np.empty((len(ids), length), dtype=np.uint8)
    for rows in split(np.arange(len(ids))):
        for places, matrix in ids.iter_matrices(rows):
            suffix = np.broadcast_to(np.frombuffer(salt, dtype=np.uint8), (len(places), len(salt)))
            out[rows[places]] = choose_engine().sha512(np.concatenate([matrix, suffix], axis=1))[:, :length]
    return out


class UnsafeSaltedHash:
    """A party in either role. The receiver compares the sender's digests; the sender learns what the receiver proves.

    Args:
        ids: normalised, unique identifiers.
        salt: known to both parties, at least 16 bytes.
        max_set_size: largest set, own or peer's.

    Raises:
        PSIError: a salt that is too short.
        SetSizeError: more identifiers than allowed.
        IdentifierError: duplicate identifiers.
    """

    def __init__(self, ids: Sequence[str], salt: bytes, *, max_set_size: int = MAX_SET_SIZE) -> None:
        if len(salt) < 16:
            raise PSIError(f"a salt of {len(salt)} bytes; at least 16 are needed")
        if len(ids) > max_set_size:
            raise SetSizeError(f"a set of {len(ids)} identifiers; at most {max_set_size}: raise max_set_size")
        self._ids = Identifiers.of_texts(ids)
        if self._ids.find_duplicates():
            raise IdentifierError("identifiers are doubled; call normalise first: its error lists the rows")
        self.outputs = Outputs(salted_digests(self._ids, salt, OUTPUT_BYTES), salt)
        self._theirs = RowBuffer(TOKEN_BYTES, max_set_size, "the sender's digests")
        self.complete = not len(ids)
        """Whether all digests of this party were computed."""

    def digest_chunks(self) -> Iterator[np.ndarray]:
        """Yield the sender's digests in a secret order: chunks of uint8 (k, 16)."""
        self.complete = True
        tokens = self.outputs.cut_tokens()
        for rows in split(secret_order(len(tokens))):
            yield tokens[rows]

    def take_chunk(self, digests: np.ndarray) -> None:
        """At the receiver, take a chunk of the sender's digests.

        Raises:
            MalformedError: wrong type or shape.
            SetSizeError: more than allowed.
        """
        require_rows(digests, TOKEN_BYTES, "the sender's digests")
        self._theirs.add_rows(digests)

    def find_common_rows(self, count: int | None = None) -> np.ndarray:
        """At the receiver, return the common rows, ascending, int64 (k,); `count` is the announced number.

        Raises:
            SetSizeError: another number than announced.
            MalformedError: two equal digests.
        """
        return match_rows(self.outputs.cut_tokens(), self._theirs.take_all(count))[0]

    def find_proven_rows(self, proofs: np.ndarray) -> np.ndarray:
        """At the sender, find the rows that the receiver proved, int64 (k,).

        Raises:
            MalformedError: a proof matches no row of this party, or two proofs are equal.
        """
        return self.outputs.find_proven_rows(proofs)


def reverse_digests(digests: np.ndarray, salt: bytes, candidates: Iterable[str]) -> dict[int, str]:
    """Run the dictionary attack: find the identifier behind each digest.

    Args:
        digests: a party's digests, uint8 (n, 16).
        salt: the salt, which both parties know.
        candidates: all possible identifiers, without duplicates.

    Returns:
        Row of `digests` → identifier.
    """
    column = Identifiers.of_texts(list(candidates))
    rows, places = match_rows(np.ascontiguousarray(digests), salted_digests(column, salt))
    return {int(row): column[int(place)] for row, place in zip(rows, places, strict=True)}
