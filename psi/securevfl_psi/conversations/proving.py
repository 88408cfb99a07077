"""Final step of every protocol in which both learn rows: one party proves them, the other answers with a receipt.

The party that compared sends the number of common rows and a proof of each, in the order that both will use. The other
party finds its rows by the proofs and answers with a receipt of these rows in that order. See `proofs`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from securevfl_psi.chunks import split
from securevfl_psi.conversations.scripts import Incoming, Outgoing, as_frames, read_payload, receive_rows
from securevfl_psi.errors import MalformedError, SetSizeError
from securevfl_psi.proofs import PROOF_BYTES, RECEIPT_BYTES, Outputs
from securevfl_psi.wire import Frame, Kind

__all__ = ["Proving", "Receiving", "counts_of"]


def counts_of(frame: Frame, lists: int, limit: int) -> list[int]:
    """Decode the announced number of rows of each list.

    Raises:
        MalformedError: a wrong length.
        SetSizeError: more than `limit` in all.
    """
    counts = list(struct.unpack(f">{lists}Q", read_payload(frame, 8 * lists)))
    if sum(counts) > limit:
        raise SetSizeError(f"the peer announces {sum(counts)} common rows; at most {limit} are possible")
    return counts


class Proving:
    """Scripts of the party that compared.

    Attributes:
        lists: this party's rows to prove, each int64 (k,), in the agreed order; None until they are known.
        done: whether the correct receipt arrived.
    """

    def __init__(self, outputs: Callable[[], Outputs]) -> None:
        self._outputs = outputs
        self.lists: Sequence[np.ndarray] | None = None
        self.done = False

    def send_script(self) -> Outgoing:
        """Counts and proofs, once the rows are known."""
        while self.lists is None:
            yield None
        yield Frame(Kind.COUNT, struct.pack(f">{len(self.lists)}Q", *map(len, self.lists)))
        for rows in self.lists:
            yield from as_frames(Kind.PROOFS, split(self._outputs().prove_rows(rows)))

    def receive_script(self) -> Incoming:
        """The receipt."""
        frame = yield Kind.RECEIPT
        if self.lists is None:
            raise MalformedError("a RECEIPT came before anything was proved")
        self._outputs().require_receipt(self.lists, read_payload(frame, RECEIPT_BYTES))
        self.done = True


class Receiving:
    """Scripts of the other party.

    Attributes:
        lists: this party's rows that the peer proved, in the agreed order; None before that.
        accepted: set it to True if the policy allows them; then the receipt is sent.
    """

    def __init__(self, rows: Callable[[np.ndarray], np.ndarray], outputs: Callable[[], Outputs]) -> None:
        self._rows, self._outputs = rows, outputs
        self.lists: Sequence[np.ndarray] | None = None
        self.accepted = False

    def receive_script(self, lists: int, limit: int, complete: Callable[[], bool]) -> Incoming:
        """Counts and proofs.

        Args:
            lists: number of lists of rows.
            limit: most rows in all lists together.
            complete: whether all tokens were sent to the peer; before that it cannot have compared.
        """
        frame = yield Kind.COUNT
        if not complete():
            raise MalformedError("a COUNT came before the peer had all tokens")
        counts = counts_of(frame, lists, limit)
        parts = []
        for count in counts:
            parts.append((yield from receive_rows(Kind.PROOFS, PROOF_BYTES, count, "the common rows")))
        rows = self._rows(np.concatenate(parts))
        self.lists = np.split(rows, np.cumsum(counts)[:-1])

    def send_script(self) -> Outgoing:
        """The receipt."""
        while not self.accepted or self.lists is None:
            yield None
        yield Frame(Kind.RECEIPT, self._outputs().make_receipt(self.lists))
