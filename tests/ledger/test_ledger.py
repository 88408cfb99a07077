"""The ledger: any change of a line is found, and so are two parties that tell different stories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.errors import AuditError, InputError
from securevfl.ledger import decode_line, hash_of
from securevfl.privacy import Ledger, read_lines, verify_chains
from securevfl.transport import Guard, Kind, Message

MESSAGES = [
    Message(Kind.CONTROL, "hello", meta={"n": 1}),
    Message(Kind.CIPHERTEXT, "cut/weights", {"c": np.zeros((2, 8), np.uint8)}, guard=Guard("paillier", 2048, "ab12")),
    Message(Kind.ACTIVATION, "cut/forward", {"z": np.zeros((4, 3), np.float32)}, guard=Guard(noise=1.5)),
]


def _pair(messages: list[Message] = MESSAGES) -> tuple[Ledger, Ledger]:
    bank, shop = (Ledger(name, run="r", job="00", policy="p") for name in ("bank", "shop"))
    for i, message in enumerate(messages):
        one, other = (bank, shop) if i % 2 == 0 else (shop, bank)
        one.record("sent", other.party, message, 100 + i)
        other.record("received", one.party, message, 100 + i)
    return bank, shop


def _write(path: Path, *ledgers: Ledger) -> Path:
    for ledger in ledgers:
        ledger.close()
    path.write_bytes(b"".join(ledger.to_jsonl() for ledger in ledgers))
    return path


def _verify(path: Path) -> int:
    return len(verify_chains(read_lines(path), path.name))


def test_whole_ledgers_verify_and_keep_their_content(tmp_path: Path) -> None:
    chains = verify_chains(read_lines(_write(tmp_path / "l.jsonl", *_pair())))
    assert [chain.party for chain in chains] == ["bank", "shop"]
    entry = chains[1].entries[1]
    assert (entry.way, entry.kind, entry.shapes, entry.bytes) == ("sent", Kind.CIPHERTEXT, {"c": [2, 8]}, 101)
    assert entry.guard == Guard("paillier", 2048, "ab12")


def test_lines_are_on_disk_as_they_happen(tmp_path: Path) -> None:
    ledger = Ledger("bank", run="r", job="00", path=tmp_path / "live.jsonl")
    ledger.record("sent", "shop", MESSAGES[0], 5)
    ledger.close()
    assert (tmp_path / "live.jsonl").read_bytes() == ledger.to_jsonl()


@given(st.data())
def test_any_changed_field_is_found(data: st.DataObject) -> None:
    bank, _ = _pair()
    bank.close()
    lines = bank.to_jsonl().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[number])
    field = data.draw(st.sampled_from(sorted(set(line) - {"line"})))
    old = line[field]
    match old:
        case dict():
            line[field] = {} if old else {"a": [1]}
        case list():
            line[field] = [*old, "x"]
        case _:
            line[field] = old + ("0" if isinstance(old, str) else 1)
    if field in ("way", "kind"):
        line[field] = "received" if field == "way" and old == "sent" else "sent" if field == "way" else "metric"
    lines[number] = json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()
    with pytest.raises(AuditError):
        verify_chains(_parsed(lines))


def _parsed(lines: list[bytes]) -> list[tuple[int, object]]:
    return [(i, decode_line(line)) for i, line in enumerate(lines, 1)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:2] + lines[3:],
        lambda lines: [*lines[:1], lines[2], lines[1], *lines[3:]],
        lambda lines: [*lines[:2], lines[1], *lines[2:]],
        lambda lines: lines[1:],
        lambda lines: lines[:-1],
        lambda lines: lines + lines,
        lambda lines: [*lines[:3], b"{not json", *lines[3:]],
    ],
    ids=["removed", "swapped", "doubled", "no opening", "cut off", "copied chain", "garbage"],
)
def test_missing_moved_and_added_lines_are_found(tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]) -> None:
    path = _write(tmp_path / "l.jsonl", _pair()[0])
    path.write_bytes(b"\n".join(damage(path.read_bytes().splitlines())) + b"\n")
    with pytest.raises(AuditError):
        _verify(path)


def test_two_ends_that_tell_different_stories_are_found(tmp_path: Path) -> None:
    honest, _ = _pair()
    changed = [MESSAGES[0], MESSAGES[1], Message(Kind.ACTIVATION, "cut/forward", MESSAGES[2].arrays)]
    _, liar = _pair(changed)
    with pytest.raises(AuditError, match="they differ"):
        _verify(_write(tmp_path / "l.jsonl", honest, liar))
    short, _ = _pair(MESSAGES)
    _, silent = _pair(MESSAGES[:2])
    with pytest.raises(AuditError, match=r"m.jsonl:4: 'bank': sent 'cut/forward' to 'shop', whose ledger .* has 1 mes"):
        _verify(_write(tmp_path / "m.jsonl", short, silent))


def test_a_missing_file_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        list(read_lines(tmp_path / "none.jsonl"))


def test_a_line_forged_with_its_own_hash_breaks_the_chain_behind_it(tmp_path: Path) -> None:
    bank, _ = _pair()
    bank.close()
    lines = [decode_line(raw) for raw in bank.to_jsonl().splitlines()]
    forged = msgspec.structs.replace(lines[1], bytes=1)
    lines[1] = msgspec.structs.replace(forged, hash=hash_of(forged))
    with pytest.raises(AuditError, match="does not follow the line before it"):
        verify_chains(enumerate(lines, 1))


SPENT = {"what": "activations", "epsilon": 7.5, "delta": 1e-5, "times": 3}


def _noted() -> Ledger:
    bank = _pair()[0]
    bank.record_note("epsilon", SPENT)
    bank.record_note("remark", "as agreed")
    bank.record("sent", "shop", MESSAGES[0], 7)
    bank.close()
    return bank


def test_notes_stand_in_the_chain_and_come_back(tmp_path: Path) -> None:
    chain = verify_chains(read_lines(_write(tmp_path / "l.jsonl", _noted())))[0]
    assert [(note.note, note.values) for note in chain.notes] == [("epsilon", SPENT), ("remark", {"text": "as agreed"})]
    assert len(chain.entries) == 4  # notes are no messages


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("7.5", "1.5"),
        lambda text: text.replace("as agreed", "not agreed"),
        lambda text: "\n".join(line for line in text.splitlines() if "remark" not in line) + "\n",
        lambda text: text.replace('"note":"epsilon"', '"note":"other"'),
    ],
    ids=["smaller ε", "changed text", "removed", "renamed"],
)
def test_a_changed_note_is_found(tmp_path: Path, damage: Callable[[str], str]) -> None:
    path = _write(tmp_path / "l.jsonl", _noted())
    text = path.read_text(encoding="utf-8")
    assert damage(text) != text
    path.write_text(damage(text), encoding="utf-8")
    with pytest.raises(AuditError):
        _verify(path)


def test_numbers_that_json_lacks_are_noted_as_texts(tmp_path: Path) -> None:
    ledger = Ledger("bank", run="r", job="00")
    ledger.record_note("epsilon", {"epsilon": float("inf"), "delta": float("nan")})
    chain = verify_chains(read_lines(_write(tmp_path / "l.jsonl", ledger)))[0]
    assert chain.notes[0].values == {"epsilon": "inf", "delta": "nan"}


def test_nothing_is_noted_after_the_end() -> None:
    ledger = _noted()
    with pytest.raises(AuditError, match="is closed; add note 'late'"):
        ledger.record_note("late", "x")


# One chain as version 0.1 wrote it, without keys.
VERSION_1 = b"""\
{"line":"open","version":1,"party":"bank","run":"r","job":"00","policy":"p","prev":"cf5e5e1333d14619f3dfa4757a5c81d5162f29b35295d63c5497bc8dadedb57f","hash":"1ed50a67039a8ffa638b4ce76a03a1a0a9963d2b34d7d3cd292227648fd085a7"}
{"line":"close","messages":0,"outcome":"done","prev":"1ed50a67039a8ffa638b4ce76a03a1a0a9963d2b34d7d3cd292227648fd085a7","hash":"04fb4fa685fc03c4afb424f978b8a94aacd2f3b16c9543de26d5959085ec9e0e"}
"""


def test_ledgers_of_other_versions_are_refused_with_the_cure(tmp_path: Path) -> None:
    """A reader of unsigned ledgers would let anybody put one in the place of a signed one."""
    (tmp_path / "l.jsonl").write_bytes(VERSION_1)
    with pytest.raises(AuditError, match="version 1; it is not signed, and whoever"):
        _verify(tmp_path / "l.jsonl")
    (tmp_path / "l.jsonl").write_bytes(VERSION_1.replace(b'"version":1', b'"version":4'))
    with pytest.raises(AuditError, match="version 4; this securevfl reads 3"):
        _verify(tmp_path / "l.jsonl")


def test_parties_of_one_run_have_run_the_same_job(tmp_path: Path) -> None:
    bank, _ = _pair()
    other = Ledger("shop", run="r", job="11")
    with pytest.raises(AuditError, match=r"'bank' ran job 00… \(.*:1\), 'shop' ran job 11"):
        _verify(_write(tmp_path / "l.jsonl", bank, other))
