"""What an audit believes of parties that left: what all others signed in this agreement, and each wrote down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from securevfl.auditing.leavings import find_departures, find_wrong_departures
from securevfl.ledger import AGREEMENT, LEFT
from securevfl.ledger.keys import PrivateKey
from securevfl.party.leaving import LEAVING, LeavingWord, encode_words
from securevfl.transport import ACTIVE, PASSIVE

KEYS = {name: PrivateKey.generate() for name in ("bank", "shop1", "shop2")}
PUBLIC = {name: key.public_key.hex for name, key in KEYS.items()}


def word(party: str, agreement: str) -> str:
    one = LeavingWord(party, agreement, ("shop2",), "aa", 1)
    return encode_words([msgspec.structs.replace(one, signature=KEYS[party].sign(LEAVING, one.signed_content))]).hex()


def chain(party: str, *, agreement: str = "", peers: tuple[str, ...] = ("bank", "shop1")) -> Any:
    """A party's chain; with a note that shop2 left if the words are of an agreement."""
    notes = [SimpleNamespace(note=AGREEMENT, values={"agreement": "a1"})]
    if agreement:
        values = {name: word(name, agreement) for name in ("bank", "shop1")}
        notes.append(SimpleNamespace(note=LEFT, values=values))
    opening = SimpleNamespace(key=PUBLIC[party], role=ACTIVE if party == "bank" else PASSIVE)
    met = {name: SimpleNamespace(key=PUBLIC[name]) for name in peers if name != party}
    return SimpleNamespace(party=party, peers=met, notes=notes, opening=opening, file=f"{party}.jsonl", first=1)


EVERYBODY = ("bank", "shop1", "shop2")


def test_a_party_left_if_all_others_wrote_that_down() -> None:
    before = [chain(name, peers=EVERYBODY) for name in ("bank", "shop1")]
    after = [chain(name, agreement="a1") for name in ("bank", "shop1")]
    assert find_departures([*before, *after]) == {"shop2": 1}
    assert list(find_wrong_departures([*before, *after])) == []


def test_words_that_one_party_alone_wrote_down_excuse_nobody() -> None:
    """They may have been withdrawn; shop1 has kept them, so that shop2 need not show its ledger."""
    chains = [chain("bank", peers=EVERYBODY), chain("shop1", peers=EVERYBODY), chain("shop1", agreement="a1")]
    assert find_departures(chains) == {}


def test_words_of_another_agreement_excuse_nobody_and_are_a_flaw() -> None:
    chains = [chain(name, peers=EVERYBODY) for name in ("bank", "shop1")]
    chains += [chain(name, agreement="a2") for name in ("bank", "shop1")]
    assert find_departures(chains) == {}
    assert ["of another agreement" in flaw.text for flaw in find_wrong_departures(chains)] == [True, True]
