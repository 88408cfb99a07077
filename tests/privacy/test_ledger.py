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
from securevfl.privacy import Ledger, read, verify
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
    return len(verify(read(path)))


def test_whole_ledgers_verify_and_keep_their_content(tmp_path: Path) -> None:
    chains = verify(read(_write(tmp_path / "l.jsonl", *_pair())))
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
    field = data.draw(st.sampled_from(sorted(set(line) - {"line", "version"})))
    old = line[field]
    line[field] = {"a": [1]} if isinstance(old, dict) else old + ("x" if isinstance(old, str) else 1)
    if field in ("way", "kind"):
        line[field] = "received" if field == "way" and old == "sent" else "sent" if field == "way" else "metric"
    lines[number] = json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()
    with pytest.raises(AuditError):
        verify(_parsed(lines))


def _parsed(lines: list[bytes]) -> list[tuple[int, object]]:
    from securevfl.privacy import ledger

    return [(i, ledger._decode(line)) for i, line in enumerate(lines, 1)]


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
    with pytest.raises(AuditError, match="they differ"):
        _verify(_write(tmp_path / "m.jsonl", short, silent))


def test_a_missing_file_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        list(read(tmp_path / "none.jsonl"))


def test_a_line_forged_with_its_own_hash_breaks_the_chain_behind_it(tmp_path: Path) -> None:
    from securevfl.privacy import ledger

    bank, _ = _pair()
    bank.close()
    lines = [ledger._decode(raw) for raw in bank.to_jsonl().splitlines()]
    forged = msgspec.structs.replace(lines[1], bytes=1)
    lines[1] = msgspec.structs.replace(forged, hash=ledger._hash(forged))
    with pytest.raises(AuditError, match="does not follow the line before it"):
        verify(enumerate(lines, 1))


SPENT = {"what": "activations", "epsilon": 7.5, "delta": 1e-5, "times": 3}


def _noted() -> Ledger:
    bank = _pair()[0]
    bank.note("epsilon", SPENT)
    bank.note("remark", "as agreed")
    bank.record("sent", "shop", MESSAGES[0], 7)
    bank.close()
    return bank


def test_notes_stand_in_the_chain_and_come_back(tmp_path: Path) -> None:
    chain = verify(read(_write(tmp_path / "l.jsonl", _noted())))[0]
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
    ledger.note("epsilon", {"epsilon": float("inf"), "delta": float("nan")})
    chain = verify(read(_write(tmp_path / "l.jsonl", ledger)))[0]
    assert chain.notes[0].values == {"epsilon": "inf", "delta": "nan"}


def test_nothing_is_noted_after_the_end() -> None:
    ledger = _noted()
    with pytest.raises(AuditError, match="is closed; note 'late'"):
        ledger.note("late", "x")


def _old(ledger: Ledger, *, version: int = 1) -> list[object]:
    """The lines as another version would have written them, with hashes of their own."""
    from securevfl.privacy import ledger as module

    head, lines = module._GENESIS, []
    for line in ledger.lines:
        new = msgspec.structs.replace(line, prev=head, hash="")
        if isinstance(new, module.Opening):
            new = msgspec.structs.replace(new, version=version)
        head = module._hash(new)
        lines.append(msgspec.structs.replace(new, hash=head))
    return lines


# One chain as version 1 wrote it, before there were notes.
VERSION_1 = b"""\
{"line":"open","version":1,"party":"bank","run":"r","job":"00","policy":"p","prev":"cf5e5e1333d14619f3dfa4757a5c81d5162f29b35295d63c5497bc8dadedb57f","hash":"1ed50a67039a8ffa638b4ce76a03a1a0a9963d2b34d7d3cd292227648fd085a7"}
{"line":"message","seq":1,"way":"sent","peer":"shop","kind":"ciphertext","what":"cut/weights","shapes":{"c":[2,8]},"bytes":101,"cipher":"paillier","bits":2048,"key":"ab12","noise":0.0,"prev":"1ed50a67039a8ffa638b4ce76a03a1a0a9963d2b34d7d3cd292227648fd085a7","hash":"8c98c09f55af2f8d6da8ddb02cfba3f9bcf827d5983e48f554142800f96e6161"}
{"line":"close","messages":1,"outcome":"done","prev":"8c98c09f55af2f8d6da8ddb02cfba3f9bcf827d5983e48f554142800f96e6161","hash":"04fb4fa685fc03c4afb424f978b8a94aacd2f3b16c9543de26d5959085ec9e0e"}
"""


def test_ledgers_of_version_1_are_read(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_bytes(VERSION_1)
    assert [(c.opening.version, c.entries[0].bytes, c.notes) for c in verify(read(tmp_path / "l.jsonl"))] == [
        (1, 101, [])
    ]
    (tmp_path / "l.jsonl").write_bytes(VERSION_1.replace(b"101", b"102"))
    with pytest.raises(AuditError, match="was changed"):
        _verify(tmp_path / "l.jsonl")


def test_other_versions_are_told_apart() -> None:
    bank, _ = _pair()
    bank.close()
    chains = verify(enumerate(_old(bank), 1))  # type: ignore[arg-type]
    assert (chains[0].opening.version, len(chains[0].entries), chains[0].notes) == (1, 3, [])
    with pytest.raises(AuditError, match="a note in a ledger of version 1"):
        verify(enumerate(_old(_noted()), 1))  # type: ignore[arg-type]
    with pytest.raises(AuditError, match="ledger version 3, this version reads 1, 2"):
        verify(enumerate(_old(bank, version=3), 1))  # type: ignore[arg-type]


def test_parties_of_one_run_have_run_the_same_job(tmp_path: Path) -> None:
    bank, _ = _pair()
    other = Ledger("shop", run="r", job="11")
    with pytest.raises(AuditError, match="'bank' ran job 00…, 'shop' ran job 11"):
        _verify(_write(tmp_path / "l.jsonl", bank, other))
