"""Ledger files of parties with processes of their own: attempts that broke off, and what an audit says of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from securevfl.auditing.audit import audit
from securevfl.auditing.tables import summarise_audit
from securevfl.errors import AuditError
from securevfl.privacy import Ledger, OwnLedgers, PrivateKey, read_lines
from securevfl.transport import Kind, Message

NAMES = ("bank", "shop")
KEYS = {name: PrivateKey.generate() for name in NAMES}


class Party:
    """A party whose process can be killed and started again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.path = name, folder / f"{name}.jsonl"
        self.start()

    def start(self) -> None:
        self.own = OwnLedgers(self.name, KEYS[self.name], self.path)

    def kill(self) -> None:
        """What the system does with a killed process's files; a line may be cut off."""
        assert self.ledger._file is not None
        self.ledger._file.close()

    def begin(self, attempt: int) -> Ledger:
        opened = self.own.attempt_opener(attempt, f"{attempt:02}" * 16, epoch=attempt - 1)
        self.ledger = opened.open(
            self.name, run=f"train {attempt}", job="ab", role="active" if self.name == "bank" else "passive"
        )
        return self.ledger


def meet(one: Party, other: Party, attempt: int) -> None:
    for party in (one, other):
        party.begin(attempt)
    for party, peer, role in ((one, other, "passive"), (other, one, "active")):
        party.ledger.record_peers({peer.name: (role, peer.ledger.introduction)})


def say(sender: Party, receiver: Party, value: float, *, arrives: bool = True) -> None:
    message = Message(Kind.CONTROL, "consent/terms", {}, {"value": value})
    sender.ledger.record("sent", receiver.name, message, 10)
    if arrives:
        receiver.ledger.record("received", sender.name, message, 10)


def end(one: Party, other: Party) -> None:
    """As in `exchange_ledger_heads`."""
    words = {party.name: party.ledger.sign_head() for party in (one, other)}
    pairs = ((one, other), (other, one))
    messages = {name: Message(Kind.CONTROL, "ledger/head", {}, word) for name, word in words.items()}
    for sender, receiver in pairs:
        sender.ledger.record("sent", receiver.name, messages[sender.name], 10)
    for sender, receiver in pairs:
        receiver.ledger.record("received", sender.name, messages[sender.name], 10)
        receiver.ledger.take_head(sender.name, words[sender.name])
    for party in (one, other):
        party.ledger.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of two parties: the bank was killed in attempt 1, in the middle of a line, and went on."""
    bank, shop = Party("bank", tmp_path), Party("shop", tmp_path)
    meet(bank, shop, 1)
    say(bank, shop, 1.0)
    say(shop, bank, 2.0)
    for giver, taker in ((bank, shop), (shop, bank)):
        taker.ledger.record_head(giver.name, giver.own.sign_head(giver.ledger))
    say(bank, shop, 3.0)
    say(bank, shop, 4.0, arrives=False)  # it was about to leave
    bank.kill()
    with bank.path.open("ab") as file:
        file.write(b'{"line":"message","time":17')  # killed
    shop.ledger.close("parked: 'bank' was restarted")
    bank.start()
    meet(bank, shop, 2)
    say(bank, shop, 5.0)
    end(bank, shop)
    return tmp_path


def test_an_attempt_that_broke_off_is_told_of(folder: Path) -> None:
    found = audit(folder)
    assert [(chain.party, chain.attempt, chain.broke_off) for chain in found.chains] == [
        ("bank", 1, True),
        ("bank", 2, False),
        ("shop", 1, False),
        ("shop", 2, False),
    ]
    assert not found.incomplete
    assert any("attempt 1 of bank broke off" in line for line in summarise_audit(found))


def test_a_process_that_goes_on(folder: Path) -> None:
    again = OwnLedgers("bank", KEYS["bank"], folder / "bank.jsonl")
    assert again.dropped == 0
    words = [word.head for _, line in read_lines(folder / "shop.jsonl") for word in getattr(line, "words", {}).values()]
    assert len(words) == 2
    assert all(again.has_signed(head) for head in words)
    assert not again.has_signed("00")
    with pytest.raises(AuditError, match="already records attempt 2"):
        again.attempt_opener(2, "02" * 16)
    with pytest.raises(AuditError, match="signed with"):
        OwnLedgers("bank", KEYS["shop"], folder / "bank.jsonl")
    path = folder / "bank.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"train 1"', b'"train 9"', 1))
    with pytest.raises(AuditError, match="was changed"):
        OwnLedgers("bank", KEYS["bank"], path)


def test_an_older_copy_does_not_know_the_word_that_was_given(folder: Path) -> None:
    path = folder / "bank.jsonl"
    word = next(line.words["bank"].head for _, line in read_lines(folder / "shop.jsonl") if hasattr(line, "words"))
    lines = path.read_bytes().splitlines(keepends=True)
    marked = next(i for i, line in enumerate(lines) if b'"line":"mark"' in line)
    path.write_bytes(b"".join(lines[:marked]))
    assert not OwnLedgers("bank", KEYS["bank"], path).has_signed(word)


def _chains(path: Path) -> list[bytes]:
    """The chains of a file, in bytes."""
    start = b'{"line":"open"'
    return [start + part for part in path.read_bytes().split(start)[1:]]


def _drop_first(folder: Path) -> None:
    (folder / "bank.jsonl").write_bytes(_chains(folder / "bank.jsonl")[1])


def _drop_last(folder: Path) -> None:
    (folder / "bank.jsonl").write_bytes(_chains(folder / "bank.jsonl")[0])


def _cut_before_the_word(folder: Path) -> None:
    """What a folder from back-up holds: the attempt was shorter then, and another one went on from there."""
    first = _chains(folder / "bank.jsonl")[0].splitlines(keepends=True)
    marked = next(i for i, line in enumerate(first) if b'"line":"mark"' in line)
    path = folder / "bank.jsonl"
    path.write_bytes(b"".join(first[:marked]))
    bank = Party("bank", folder)
    bank.begin(2)
    bank.ledger.close()


def _other_words(folder: Path) -> None:
    path = folder / "shop.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"line":"words"' not in line))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_drop_first, "a run was removed or added"),
        (_drop_last, "ledger has no chain of it: it was removed"),
        (_cut_before_the_word, "recorded its signed head"),
        (_other_words, "does not follow the line before"),
    ],
)
def test_what_was_taken_away_is_found(folder: Path, change: Callable[[Path], None], found: str) -> None:
    copy = folder / "copy"
    shutil.copytree(folder, copy)
    change(copy)
    with pytest.raises(AuditError, match=found):
        audit(copy)
    audit(folder)


def test_two_attempts_of_one_number_are_no_successors(tmp_path: Path) -> None:
    bank = Party("bank", tmp_path)
    bank.begin(2)
    bank.kill()
    other = Ledger("bank", run="r", job="ab", key=KEYS["bank"], after=bank.ledger.head, path=bank.path)
    other.close()
    with pytest.raises(AuditError, match="has no closing line, but another chain follows"):
        audit(tmp_path)


def test_what_was_dropped_did_not_leave(tmp_path: Path) -> None:
    bank = Party("bank", tmp_path)
    bank.begin(1)
    bank.kill()
    whole = bank.path.read_bytes()
    bank.path.write_bytes(whole + b"x" * 70_000)
    bank.start()
    assert (bank.own.dropped, bank.path.read_bytes()) == (70_000, whole)


def test_the_ledger_of_a_process_that_trains_for_days_is_not_in_memory(tmp_path: Path) -> None:
    """Its lines are read from the file, each attempt's own, also after the next one began."""
    one, other = Party("bank", tmp_path), Party("shop", tmp_path)
    meet(one, other, 1)
    first, kept = one.ledger, []
    for value in range(50):
        say(one, other, value)
        kept.append(first.last_line)
    end(one, other)
    meet(one, other, 2)
    say(other, one, 1.0)
    assert first._lines is None
    assert [line for line in first.lines if line in kept] == kept
    assert (first.message_count, len(first.entries), len(first.lines)) == (52, 52, first.length)
    assert first.lines[-1] == first.last_line
    assert [entry.way for entry in one.ledger.entries] == ["received"]
    assert first.to_jsonl() + one.ledger.to_jsonl() == one.path.read_bytes()
    end(one, other)
