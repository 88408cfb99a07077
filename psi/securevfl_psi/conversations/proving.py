"""The end of every protocol in which both learn rows: one party proves them, the other finds them and gives a receipt.

The party that compared sends how many rows are common and a proof of each, in the order that both will use. The other
finds its own rows by the proofs, and answers with a receipt that only they, in that order, give. See `proofs`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from securevfl_psi.chunks import split
from securevfl_psi.conversations.scripts import Incoming, Outgoing, framed, hear_rows, payload
from securevfl_psi.errors import MalformedError, SetSizeError
from securevfl_psi.proofs import PROOF_BYTES, RECEIPT_BYTES, Outputs
from securevfl_psi.wire import Frame, Kind

__all__ = ["Proving", "Receiving", "counts_of"]


def counts_of(frame: Frame, lists: int, limit: int) -> list[int]:
    """How many rows are announced, in each of so many lists.

    Raises:
        MalformedError: another length.
        SetSizeError: more than `limit` together.
    """
    counts = list(struct.unpack(f">{lists}Q", payload(frame, 8 * lists)))
    if sum(counts) > limit:
        raise SetSizeError(f"the peer says that {sum(counts)} rows are common; this party has {limit}")
    return counts


class Proving:
    """At the party that compared.

    Attributes:
        lists: own rows to prove, each int64 (k,), in the agreed order; None until they are known.
        done: whether the receipt was right.
    """

    def __init__(self, outputs: Callable[[], Outputs]) -> None:
        self._outputs = outputs
        self.lists: Sequence[np.ndarray] | None = None
        self.done = False

    def sending(self) -> Outgoing:
        """Counts and proofs, once the rows are known."""
        while self.lists is None:
            yield None
        yield Frame(Kind.COUNT, struct.pack(f">{len(self.lists)}Q", *map(len, self.lists)))
        for rows in self.lists:
            yield from framed(Kind.PROOFS, split(self._outputs().proofs(rows)))

    def hearing(self) -> Incoming:
        """The receipt."""
        frame = yield Kind.RECEIPT
        if self.lists is None:
            raise MalformedError("a RECEIPT came before anything was proved")
        self._outputs().require_receipt(self.lists, payload(frame, RECEIPT_BYTES))
        self.done = True


class Receiving:
    """At the other party.

    Attributes:
        lists: own rows that the peer proved, in the agreed order; None until it did.
        accepted: set to True where they are allowed; the receipt leaves then.
    """

    def __init__(self, rows: Callable[[np.ndarray], np.ndarray], outputs: Callable[[], Outputs]) -> None:
        self._rows, self._outputs = rows, outputs
        self.lists: Sequence[np.ndarray] | None = None
        self.accepted = False

    def hearing(self, lists: int, limit: int, complete: Callable[[], bool]) -> Incoming:
        """Counts and proofs.

        Args:
            lists: how many lists of rows are proved.
            limit: most rows of all together.
            complete: whether the peer has had all tokens, without which it cannot have compared.
        """
        frame = yield Kind.COUNT
        if not complete():
            raise MalformedError("a COUNT came before the peer had all tokens")
        counts = counts_of(frame, lists, limit)
        parts = []
        for count in counts:
            parts.append((yield from hear_rows(Kind.PROOFS, PROOF_BYTES, count, "the common rows")))
        rows = self._rows(np.concatenate(parts))
        self.lists = np.split(rows, np.cumsum(counts)[:-1])

    def sending(self) -> Outgoing:
        """The receipt."""
        while not self.accepted or self.lists is None:
            yield None
        yield Frame(Kind.RECEIPT, self._outputs().receipt(self.lists))
