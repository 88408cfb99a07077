"""Tokens to compare, proofs of common rows and receipts: three parts of one OPRF output per identifier.

The output of 2HashDH's outer hash at an identifier, ``H2(x, k·H1(x))`` (see `oprf`), has 48 bytes here:

| bytes | name | who sends it | when |
|---|---|---|---|
| 0 to 15 | token T(x) | the party with the key k | for its whole set, in a secret order |
| 16 to 31 | proof D(x) | the other party | for each common row, once it has found the token |
| 32 to 47 | receipt R(x) | the party with the key k | one digest over all common rows, in the order of their proofs |

Each has 128 bits of a random function of the *identifier* and the point. So a token can match only at a party that has
the same identifier; only a party that has the identifier and had its point evaluated can compute a proof; and a party
without the points cannot test any of the three on guessed identifiers.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import numpy as np
from securevfl_crypto.engine import Engine, choose_engine

from securevfl_psi.arrays import count_duplicates, match_rows
from securevfl_psi.chunks import split
from securevfl_psi.errors import MalformedError, RowsDifferError

__all__ = ["OUTPUT_BYTES", "PROOF_BYTES", "RECEIPT_BYTES", "Outputs"]

OUTPUT_BYTES = 48
PROOF_BYTES = 16
RECEIPT_BYTES = 32
_PROOF = slice(16, 32)
_RECEIPT = slice(32, 48)


class Outputs:
    """The OPRF outputs of a party's identifiers, one per row.

    Args:
        table: uint8 (n, 48).
        tag: the session's tag, which every receipt includes.
    """

    def __init__(self, table: np.ndarray, tag: bytes) -> None:
        self._table = table
        self._tag = tag

    @classmethod
    def from_published(cls, rest: np.ndarray, tag: bytes, by: Engine | None = None) -> Outputs:
        """Derive one run's proofs and receipts from those of a key that serves several runs.

        They are SHA-512 of the run's tag and the published ones, cut to 32 bytes. Tokens stay zero: they are not sent
        again.

        Args:
            rest: bytes 16 to 47 of the outputs, uint8 (n, 32).
            tag: the run's tag.
            by: the engine.
        """
        # Without the tag, a peer could replay the proofs of an earlier run under the same key.
        table = np.zeros((len(rest), OUTPUT_BYTES), dtype=np.uint8)
        head = np.frombuffer(tag, dtype=np.uint8)
        for rows in split(np.arange(len(rest))):
            block = np.concatenate([np.broadcast_to(head, (len(rows), len(head))), rest[rows]], axis=1)
            table[rows, _PROOF.start :] = (by or choose_engine()).sha512(block)[:, : OUTPUT_BYTES - _PROOF.start]
        return cls(table, tag)

    def bind_to_run(self, tag: bytes, by: Engine | None = None) -> Outputs:
        """Bind these outputs, of a key that serves several runs, to one run; see `from_published`."""
        return Outputs.from_published(self._table[:, _PROOF.start :], tag, by)

    def cut_tokens(self) -> np.ndarray:
        """The tokens that the parties compare, uint8 (n, 16)."""
        return np.ascontiguousarray(self._table[:, : _PROOF.start])

    def prove_rows(self, rows: np.ndarray) -> np.ndarray:
        """The proofs of common rows, in the order of `rows`: uint8 (k, 16)."""
        return np.ascontiguousarray(self._table[rows, _PROOF])

    def find_proven_rows(self, proofs: np.ndarray) -> np.ndarray:
        """Find the rows that the peer proved to have, in the order of its proofs: int64 (k,).

        Args:
            proofs: uint8 (k, 16).

        Raises:
            MalformedError: a proof matches no row of this party, or two proofs are equal.
        """
        if count_duplicates(proofs):
            raise MalformedError("a proof appears twice; a row can be common only once")
        found, where = match_rows(proofs, np.ascontiguousarray(self._table[:, _PROOF]))
        if len(found) != len(proofs):
            raise MalformedError(
                f"{len(proofs) - len(found)} of {len(proofs)} proofs belong to no row of this party; "
                "the peer does not follow the protocol"
            )
        return where

    def make_receipt(self, lists: Sequence[np.ndarray]) -> bytes:
        """Digest rows to 32 bytes that only a party with these rows, in this order, can compute.

        Args:
            lists: this party's rows, each int64 (k,).
        """
        digest = hashlib.sha512(b"securevfl-psi receipt" + self._tag)
        for rows in lists:
            # The length keeps two splits of the same rows into lists apart.
            digest.update(len(rows).to_bytes(8, "big"))
            digest.update(np.ascontiguousarray(self._table[rows, _RECEIPT]).tobytes())
        return digest.digest()[:RECEIPT_BYTES]

    def require_receipt(self, lists: Sequence[np.ndarray], receipt: bytes) -> None:
        """Raise unless the receipt matches these rows in this order.

        Raises:
            RowsDifferError: the receipt does not match.
        """
        if not hmac.compare_digest(self.make_receipt(lists), receipt):
            raise RowsDifferError("the parties do not have the same common rows in the same order; no row is used")
