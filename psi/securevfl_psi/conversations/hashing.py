"""Scripts of the two ends that compare salted hashes; a party that can enumerate identifiers can read the other set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from securevfl_psi.chunks import require_chunk
from securevfl_psi.conversations.proving import Proving, Receiving
from securevfl_psi.conversations.scripts import Incoming, Outgoing, as_frames, rows_of
from securevfl_psi.group import TOKEN_BYTES
from securevfl_psi.salted_hash import UnsafeSaltedHash
from securevfl_psi.wire import Frame, Kind

__all__ = ["DigestReceiver", "DigestSender"]


class DigestReceiver:
    """Scripts of the party that compares: it takes the peer's digests and proves the common rows.

    Args:
        party: its digests.
        peer_size: number of digests that the peer announced.
        found: called with this party's common rows, ascending, as soon as they are known.
        prove: whether the peer also learns them.

    Attributes:
        proving: the final step; `found` sets its lists.
    """

    def __init__(
        self, party: UnsafeSaltedHash, peer_size: int, found: Callable[[np.ndarray], None], *, prove: bool = True
    ) -> None:
        self.party, self.peer_size, self.found, self.prove = party, peer_size, found, prove
        self.proving = Proving(lambda: party.outputs)
        self._compared = False

    def send_script(self) -> Outgoing:
        """Proofs of what is common."""
        if self.prove:
            yield from self.proving.send_script()
            return
        while not self._compared:
            yield None
        yield Frame(Kind.FINISHED, b"")

    def receive_script(self) -> Incoming:
        """Digests, and the receipt."""
        done = 0
        while done < self.peer_size:
            rows = rows_of((yield Kind.TOKENS), TOKEN_BYTES)
            require_chunk(rows, TOKEN_BYTES, done, self.peer_size, "the peer's set")
            self.party.take_chunk(rows)
            done += len(rows)
        self.found(self.party.find_common_rows(self.peer_size))
        self._compared = True
        if self.prove:
            yield from self.proving.receive_script()


class DigestSender:
    """Scripts of the party that sends its digests.

    Args:
        party: its digests.
        size: number of its digests.
        lists: number of lists of common rows that the peer proves; 0 if this party learns nothing.
        found: called with this party's rows of each list; raises if the policy forbids them.
    """

    def __init__(
        self, party: UnsafeSaltedHash, size: int, lists: int, found: Callable[[list[np.ndarray]], None]
    ) -> None:
        self.party, self.size, self.lists, self.found = party, size, lists, found
        self.proofs = Receiving(party.find_proven_rows, lambda: party.outputs)

    def send_script(self) -> Outgoing:
        """Digests, and the receipt."""
        yield from as_frames(Kind.TOKENS, self.party.digest_chunks())
        if self.lists:
            yield from self.proofs.send_script()

    def receive_script(self) -> Incoming:
        """Proofs."""
        if not self.lists:
            yield Kind.FINISHED
            self.found([])
            return
        yield from self.proofs.receive_script(self.lists, self.size, lambda: self.party.complete)
        self.found(list(self.proofs.lists or []))
        self.proofs.accepted = True
