"""A party leaves for good, and the job goes on: the signed words by which all remaining parties decide the same.

A *word* says who, by its signer, is gone. A party signs one about a peer that was away for longer than the agreement
says, or that signed a word about itself: it leaves. The job goes on without a set of parties once every other party has
signed the same set, with the same alignment; nobody trains without them before. A party with labels is never in such a
set, so it signs every decision. A word is withdrawn only by an attempt that all
begin together, so no two groups of parties go on apart from each other.

The class does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from securevfl.errors import AuditError, PeerRefused, ProtocolError
from securevfl.privacy import PublicSigningKey

__all__ = ["LEAVING", "Departures", "LeavingWord", "WentOn", "decode_words", "encode_words", "verify_word"]

_Name = Annotated[str, Meta(max_length=256)]
_Hex = Annotated[str, Meta(max_length=128, pattern="^[0-9a-f]*$")]
_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
LEAVING = "leaving"
"""The type of content under which a party signs a word."""
_MOST = 64 * 65
"""Words of one note or file: those of each party name more and more others, and one names itself."""
LEAVES_FEWEST = 1
"""Passive parties that have to remain."""


class WentOn(PeerRefused):
    """The other parties decided to go on without this one; the code is ``"went-on"``."""

    def __init__(self, words: str) -> None:
        super().__init__("went-on", words)


class LeavingWord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A party's signed word on who is gone.

    Attributes:
        party: who signs.
        agreement: SHA-256 of the proposal, hexadecimal.
        gone: without whom the signer goes on, sorted; the signer alone where it leaves itself.
        alignment: mark of the signer's stored alignment, hexadecimal; empty where the signer leaves.
        epoch: of the signer's newest checkpoint; 0 without one.
        attempt: the newest one to which the signer had agreed. Once a later one begins, the word is void.
        signature: with the signer's key, over all other fields.
    """

    party: _Name
    agreement: _Hex
    gone: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=64)]
    alignment: _Hex = ""
    epoch: _Count = 0
    attempt: _Count = 0
    signature: Annotated[str, Meta(max_length=256)] = ""

    @property
    def signed_content(self) -> bytes:
        """The bytes that the signature covers."""
        return _encoder.encode(msgspec.structs.replace(self, signature=""))

    @property
    def is_farewell(self) -> bool:
        """Whether the signer leaves itself."""
        return self.gone == (self.party,)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Annotated[list[LeavingWord], Meta(max_length=_MOST)])


def encode_words(words: Iterable[LeavingWord]) -> bytes:
    """The payload of a note, and the content of a party's file."""
    return _encoder.encode(list(words))


def decode_words(payload: bytes) -> list[LeavingWord]:
    """Decode words that somebody else wrote; verifies no signature.

    Raises:
        ValueError: they are malformed.
    """
    try:
        found: list[LeavingWord] = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    for one in found:
        if list(one.gone) != sorted(set(one.gone)) or (one.party in one.gone) != one.is_farewell:
            raise ValueError(f"{one.party!r} names {', '.join(one.gone)[:200]} as gone, in no order that a word has")
    return found


def verify_word(one: LeavingWord, keys: Mapping[str, str]) -> None:
    """Verify a word's signature.

    Args:
        one: the word.
        keys: party → its public signing key, hexadecimal.

    Raises:
        ValueError: its party did not sign it.
    """
    try:
        PublicSigningKey.from_hex(keys.get(one.party, "")).verify(LEAVING, one.signed_content, one.signature)
    except (AuditError, ValueError) as error:
        raise ValueError(f"the word of {one.party!r}: {error}") from None


class Departures:
    """The words that one party knows.

    Args:
        me: the party.
        peers: all others of the agreement.
        owners: parties with labels, or a coordinator: without them the job does not go on.
        check: raises an error if a word is of another agreement or not signed by its party.
        known: words that were stored.
        begun: the newest attempt that this party began.
    """

    def __init__(
        self,
        me: str,
        peers: Iterable[str],
        owners: Collection[str],
        *,
        check: Callable[[LeavingWord], None] = lambda one: None,
        known: Iterable[LeavingWord] = (),
        begun: int = 0,
    ) -> None:
        self.me = me
        self.parties = tuple(sorted((me, *peers)))
        self._owners = frozenset(owners)
        self._check = check
        self._words: dict[tuple[str, tuple[str, ...]], LeavingWord] = {(one.party, one.gone): one for one in known}
        self._begun = 0
        self.forget_undecided(begun)

    @property
    def words(self) -> tuple[LeavingWord, ...]:
        """All words, in an order that does not depend on when they came."""
        return tuple(self._words[key] for key in sorted(self._words))

    @property
    def note(self) -> bytes:
        """What peers get to know: the newest word of each party, and who leaves itself."""
        newest = {one.party: one for one in sorted(self.words, key=lambda one: len(one.gone)) if not one.is_farewell}
        decision = {(one.party, one.gone): one for one in (*newest.values(), *self.decision)}
        return encode_words([*decision.values(), *(one for one in self.words if one.is_farewell)])

    def take_note(self, peer: str, payload: bytes) -> bool:
        """Take a peer's note. Words from before an attempt that began are passed over: a peer may have kept them. What
        is decided stays as it is.

        Returns:
            Whether it told anything new.

        Raises:
            ProtocolError: it contains something that is not a word of this job, or was not signed by its party.
        """
        try:
            new = {(one.party, one.gone): one for one in decode_words(payload)}
            new = {key: one for key, one in new.items() if self._words.get(key) != one}
            for one in new.values():
                if strangers := {one.party, *one.gone} - set(self.parties):
                    raise ValueError(f"{', '.join(sorted(strangers))[:200]} is not a party of this job")
                self._check(one)
            decided = {(one.party, one.gone) for one in self.decision}
            new = {key: one for key, one in new.items() if self._is_valid(one) and key not in decided}
        except ValueError as error:
            raise ProtocolError(f"{peer!r} sent no valid word on who left: {error}", party=peer) from None
        for one in new.values():
            self._drop_contrary(one)
            self._words[one.party, one.gone] = one
        return bool(new)

    def _is_valid(self, word: LeavingWord) -> bool:
        return word.is_farewell or word.attempt >= self._begun

    def _drop_contrary(self, word: LeavingWord) -> None:
        """Drop words of the same party whose names are neither among these nor around them: it withdrew those."""
        decided, named = self.decision, set(word.gone)
        for key, one in list(self._words.items()):
            nested = named <= set(one.gone) or named >= set(one.gone)
            if one.party == word.party and not (nested or one.is_farewell or word.is_farewell or one in decided):
                del self._words[key]

    def add_own(self, word: LeavingWord) -> None:
        """Add this party's own word, which is signed and about to be stored."""
        self._words[word.party, word.gone] = word

    def forget_undecided(self, attempt: int) -> None:
        """Withdraw words about peers that are back: all parties that are needed begin this attempt together."""
        self._begun = max(self._begun, attempt)
        kept = (*self.decision, *(one for one in self.words if self._is_valid(one)))
        self._words = {(one.party, one.gone): one for one in kept}

    def find_due(self, away: Collection[str]) -> tuple[str, ...]:
        """Whom this party's next word has to name; empty if it has nothing new to say, or must not say it.

        Args:
            away: peers that have been away for longer than the agreement says.
        """
        signed = {name for one in self.words if one.party == self.me for name in one.gone}
        named = signed | set(away) | {one.party for one in self.words if one.is_farewell} | set(self.gone)
        left = set(self.parties) - named
        if self.me in named or named & self._owners or len(left - self._owners) < LEAVES_FEWEST:
            return ()
        found = tuple(sorted(named))
        return () if (self.me, found) in self._words else found

    @property
    def decision(self) -> tuple[LeavingWord, ...]:
        """The words of the largest set of parties that all others signed away; empty if there is none."""
        for gone in sorted({one.gone for one in self.words}, key=len, reverse=True):
            remaining = [name for name in self.parties if name not in gone]
            found = [self._words[name, gone] for name in remaining if (name, gone) in self._words]
            agreed = len(found) == len(remaining) and len({one.alignment for one in found}) == 1
            if agreed and found[0].alignment and not self._owners & set(gone) and len(remaining) > len(self._owners):
                return tuple(found)
        return ()

    @property
    def gone(self) -> tuple[str, ...]:
        """Without whom the job goes on; empty while all are needed."""
        decision = self.decision
        return decision[0].gone if decision else ()

    @property
    def epoch(self) -> int:
        """After which epoch the parties of the decision go on at the latest: all of them have its checkpoint."""
        return min((one.epoch for one in self.decision), default=0)

    @property
    def has_farewell(self) -> bool:
        """Whether this party has signed that it leaves."""
        return (self.me, (self.me,)) in self._words
