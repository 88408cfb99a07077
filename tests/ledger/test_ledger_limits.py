"""Whoever reads a ledger reads within limits: length and number of lines, of texts and lists, depth."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from securevfl.errors import AuditError
from securevfl.ledger import LINE_BYTES, Flaw, decode_line, reading
from securevfl.ledger.lines import encode
from securevfl.privacy import Ledger

OPENING = encode(Ledger("bank", run="r", job="ab").opening)


def _with(**changes: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(OPENING), **changes})


def test_the_line_that_is_changed_here_is_one() -> None:
    assert encode(decode_line(_with())) == OPENING


@pytest.mark.parametrize(
    ("field", "most"), [("party", 256), ("role", 256), ("run", 256), ("software", 256), ("policy", 16_384)]
)
def test_texts_are_bounded(field: str, most: int) -> None:
    decode_line(_with(**{field: "x" * most}))
    with pytest.raises(AuditError, match=f"length <= {most}"):
        decode_line(_with(**{field: "x" * (most + 1)}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runs": ["r"] * 4097}, "length <= 4096"),
        ({"job": "a" * 129}, "length <= 128"),
        ({"job": "XY"}, "matching regex"),
        ({"time": -1}, ">= 0"),
        ({"time": 1 << 53}, "<= 9007199254740991"),
        ({"version": 1 << 17}, "this securevfl reads 3: update"),
        ({"runs": [["r"]]}, "Expected `str`"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_lists_numbers_and_digits_are_bounded(changes: dict[str, object], words: str) -> None:
    with pytest.raises(AuditError, match=words):
        decode_line(_with(**changes))


def test_nesting_is_refused_and_not_followed() -> None:
    for depth in (10, 30_000):
        with pytest.raises(AuditError):
            decode_line(b'{"line":"open","runs":' + b"[" * depth + b"]" * depth + b"}")


def test_a_line_that_is_too_long_ends_reading(tmp_path: Path) -> None:
    file = tmp_path / "bank.jsonl"
    file.write_bytes(OPENING + b"\n" + b"x" * (3 * LINE_BYTES) + b"\n" + OPENING + b"\n")
    found = list(reading.read_lines(file))
    assert [number for number, _ in found] == [1, 2]
    flaw = found[1][1]
    assert isinstance(flaw, Flaw)
    assert (flaw.line, flaw.file) == (2, str(file))
    assert f"more than {LINE_BYTES - 1} bytes" in flaw.text


def test_the_number_of_lines_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_LINES", 3)
    file = tmp_path / "bank.jsonl"
    file.write_bytes((OPENING + b"\n") * 3)
    assert len(list(reading.read_lines(file))) == 3
    file.write_bytes((OPENING + b"\n") * 4)
    with pytest.raises(AuditError, match=r"bank.jsonl:4: more than 3 lines, the limit of a ledger"):
        list(reading.read_lines(file))
