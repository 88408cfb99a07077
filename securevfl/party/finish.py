"""The end of a job: every party signs that it has finished, and stays until all have everybody's statement.

A party that has stored its result signs a *statement* of the attempt, and stores it before any peer learns of it. Each
note contains all statements that its sender has, so a statement reaches a party from whoever still runs, and a note
that contains everybody's also confirms that its sender has them. An orderly goodbye implies both.

A party with everybody's statement needs nobody, and takes part in no further attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from securevfl.errors import ProtocolError

__all__ = ["Finish", "Statement", "decode_statements", "encode_statements"]

_Hex = Annotated[str, Meta(max_length=128, pattern="^[0-9a-f]*$")]
_Mark = Annotated[bytes, Meta(min_length=16, max_length=16)]
_MOST = 64
"""Statements of one note: as many as a job has parties."""


class Statement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A party's signed statement that it has finished.

    Attributes:
        party: whose.
        agreement: SHA-256 of the proposal, hexadecimal; empty in a simulation.
        attempt: number of the attempt in which it finished.
        mark: of the attempt's view: which processes and checkpoints took part.
        head: hash of the last line of the party's ledger chain of the attempt.
        model: SHA-256 of its part of the model; empty without one.
        signature: with the party's signing key, over all other fields; empty in a simulation.
    """

    party: Annotated[str, Meta(max_length=256)]
    agreement: _Hex
    attempt: Annotated[int, Meta(ge=0, lt=1 << 31)]
    mark: _Mark
    head: _Hex = ""
    model: _Hex = ""
    signature: Annotated[str, Meta(max_length=256)] = ""

    @property
    def signed_content(self) -> bytes:
        """The bytes that the signature covers."""
        return _encoder.encode(msgspec.structs.replace(self, signature=""))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Annotated[list[Statement], Meta(max_length=_MOST)])


def encode_statements(statements: Iterable[Statement]) -> bytes:
    """The payload of a note, and the content of a party's file."""
    return _encoder.encode(list(statements))


def decode_statements(payload: bytes) -> list[Statement]:
    """Decode statements that somebody else wrote.

    Raises:
        ValueError: they are malformed, or two are of one party.
    """
    try:
        found: list[Statement] = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if len({one.party for one in found}) < len(found):
        raise ValueError("two statements are of one party")
    return found


class Finish:
    """The statements that one party knows.

    Args:
        me: the party.
        peers: all others.
        check: raises an error if a statement is of another agreement or not signed by its party.
        known: statements that were stored.

    Attributes:
        own: the party's own; None until it has finished, and again once a later attempt begins.
    """

    def __init__(
        self,
        me: str,
        peers: Iterable[str],
        *,
        check: Callable[[Statement], None] = lambda one: None,
        known: Iterable[Statement] = (),
    ) -> None:
        self.me = me
        self.peers = tuple(sorted(peers))
        self._check = check
        self._known = {one.party: one for one in known}
        self.own = self._known.pop(me, None)
        self._confirmed: dict[str, bytes] = {}
        self._left: set[str] = set()

    def drop_peers(self, gone: Iterable[str]) -> None:
        """Go on without these peers, for good: their statements are not needed."""
        self.peers = tuple(peer for peer in self.peers if peer not in set(gone))

    def state_own(self, own: Statement) -> None:
        """This party has finished, and has stored its result."""
        self.own = own

    def withdraw(self) -> None:
        """A later attempt begins: nothing that was stated before counts."""
        self.own = None
        self._left.clear()

    @property
    def statements(self) -> Mapping[str, Statement]:
        """Party → its statement of the attempt in which this party finished; empty before it did."""
        if self.own is None:
            return {}
        mark = self.own.mark
        return {self.me: self.own} | {name: one for name, one in sorted(self._known.items()) if one.mark == mark}

    @property
    def note(self) -> bytes:
        """What peers get to know: all statements of `statements`."""
        return encode_statements(self.statements.values())

    def take_note(self, peer: str, payload: bytes) -> bool:
        """Take a peer's note.

        Returns:
            Whether `statements` has grown.

        Raises:
            ProtocolError: it contains something that is not a statement of this job, or was not signed by its party.
        """
        try:
            found = decode_statements(payload)
            before = len(self.statements)
            for one in found:
                if one.party not in (self.me, *self.peers):
                    raise ValueError(f"{one.party!r} is not a party of this job")
                known = self.own if one.party == self.me else self._known.get(one.party)
                if one != known:
                    self._check(one)
                if one.party != self.me and (known is None or one.attempt >= known.attempt):
                    self._known[one.party] = one
        except ValueError as error:
            raise ProtocolError(f"{peer!r} sent no valid statement of its end: {error}", party=peer) from None
        by_party = {one.party: one for one in found}
        sender = by_party.get(peer)
        if sender is not None and {one.mark for one in found} == {sender.mark} and len(found) == len(self.peers) + 1:
            self._confirmed[peer] = sender.mark
        return len(self.statements) > before

    def find_later(self, payload: bytes, begun: int) -> int:
        """The attempt of this party's own statement in a peer's valid note, if it is later than the last attempt that
        this party has recorded as begun, which no party does that has not lost files; otherwise 0.
        """
        mine = (one.attempt for one in decode_statements(payload) if one.party == self.me)
        return next((attempt for attempt in mine if attempt > begun), 0)

    def take_arrival(self, peer: str) -> None:
        """A peer is connected, perhaps again."""
        self._left.discard(peer)

    def take_goodbye(self, peer: str) -> None:
        """A peer has left in good order: it has its result, and needs nobody."""
        self._left.add(peer)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Peers that neither stated that they finished together with this party nor said goodbye."""
        known = self.statements
        return tuple(peer for peer in self.peers if peer not in known and peer not in self._left)

    @property
    def is_complete(self) -> bool:
        """Whether this party and all its peers have finished."""
        return self.own is not None and not self.unfinished

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Peers that did not confirm that they have everybody's statement."""
        mark = b"" if self.own is None else self.own.mark
        return tuple(peer for peer in self.peers if self._confirmed.get(peer) != mark and peer not in self._left)
