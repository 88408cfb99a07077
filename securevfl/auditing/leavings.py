"""Parties that left a job for good, by the ledgers of those that went on: each attempt without them has a note with the
signed words of all that remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from securevfl.ledger import LEFT, Flaw, NoteLine
from securevfl.party.leaving import Departures, LeavingWord, decode_words, verify_word
from securevfl.privacy import LedgerChain
from securevfl.transport import ACTIVE

__all__ = ["find_departures", "find_wrong_departures"]


def find_departures(chains: Sequence[LedgerChain]) -> dict[str, int]:
    """Party that left → the epoch after which the others went on. Counts only what all others signed."""
    found: dict[str, int] = {}
    keys = _find_keys(chains)
    owners = {chain.party for chain in chains if chain.opening.role == ACTIVE}
    for chain in chains:
        for note in _notes_of(chain):
            try:
                words = _read_words(note, keys)
            except ValueError:
                continue
            known = Departures(chain.party, set(keys) - {chain.party}, owners, known=words)
            for name in known.gone:
                found[name] = min(known.epoch, found.get(name, known.epoch))
    return found


def find_wrong_departures(chains: Sequence[LedgerChain]) -> Iterator[Flaw]:
    """Notes whose words were not signed by the parties that they name, or not by all that remain."""
    keys = _find_keys(chains)
    for chain in chains:
        for note in _notes_of(chain):
            try:
                words = _read_words(note, keys)
                if missing := {*chain.peers, chain.party} - {one.party for one in words}:
                    raise ValueError(f"the word of {', '.join(sorted(missing))} is missing")
            except ValueError as error:
                text = f"it went on without a party, and its note of that is wrong: {error}"
                yield Flaw(chain.file, chain.first, chain.party, text)


def _notes_of(chain: LedgerChain) -> list[NoteLine]:
    return [note for note in chain.notes if note.note == LEFT]


def _find_keys(chains: Sequence[LedgerChain]) -> dict[str, str]:
    """Party → its public key, as its own ledger or a peer's names it."""
    met = {name: peer.key for chain in chains for name, peer in chain.peers.items()}
    return met | {chain.party: chain.opening.key for chain in chains}


def _read_words(note: NoteLine, keys: Mapping[str, str]) -> list[LeavingWord]:
    words = [one for text in note.values.values() for one in decode_words(bytes.fromhex(str(text)))]
    for one in words:
        verify_word(one, keys)
    return words
