"""Parties that left a job for good, by the ledgers of those that went on: each attempt without them has a note with the
signed words of all that remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from securevfl.ledger import AGREEMENT, LEFT, Flaw, NoteLine
from securevfl.party.leaving import Departures, LeavingWord, decode_words, verify_word
from securevfl.privacy import LedgerChain
from securevfl.transport import ACTIVE

__all__ = ["find_departures", "find_wrong_departures"]


def find_departures(chains: Sequence[LedgerChain]) -> dict[str, int]:
    """Party that left → the epoch after which the others went on.

    Counts only what all others signed and each of them that is here wrote down: a peer may have kept words that were
    withdrawn.
    """
    found: dict[str, int] = {}
    noted: dict[str, set[str]] = {chain.party: set() for chain in chains}
    keys = _find_keys(chains)
    owners = {chain.party for chain in chains if chain.opening.role == ACTIVE}
    for chain in chains:
        for note in _notes_of(chain):
            try:
                words = _read_words(note, keys, chain)
            except ValueError:
                continue
            known = Departures(chain.party, set(keys) - {chain.party}, owners, known=words)
            for name in known.gone:
                found[name] = min(known.epoch, found.get(name, known.epoch))
                noted[chain.party].add(name)
    remaining = [names for party, names in noted.items() if party not in found]
    return {name: epoch for name, epoch in found.items() if all(name in names for names in remaining)}


def find_wrong_departures(chains: Sequence[LedgerChain]) -> Iterator[Flaw]:
    """Notes whose words were not signed by the parties that they name, or not by all that remain."""
    keys = _find_keys(chains)
    for chain in chains:
        for note in _notes_of(chain):
            try:
                words = _read_words(note, keys, chain)
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


def _read_words(note: NoteLine, keys: Mapping[str, str], chain: LedgerChain) -> list[LeavingWord]:
    words = [one for text in note.values.values() for one in decode_words(bytes.fromhex(str(text)))]
    agreements = {str(other.values.get("agreement")) for other in chain.notes if other.note == AGREEMENT}
    for one in words:
        verify_word(one, keys)
        if one.agreement not in agreements:
            raise ValueError(f"the word of {one.party!r} is of another agreement")
    return words
