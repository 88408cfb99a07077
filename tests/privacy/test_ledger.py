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
