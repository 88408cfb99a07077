"""The journal: what is reserved counts until it is closed, over every attempt, and nothing of it changes unnoticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from securevfl.errors import InputError
from securevfl.privacy import Journal

ROWS = 5


def _journal(folder: Path, party: str = "shop", job: str = "a" * 64) -> Journal:
    return Journal(party, job, folder / f"{party}.journal.jsonl")


def _two_attempts(folder: Path) -> None:
    """Epochs 1 and 2 end, 3 breaks off; the second attempt goes on after 1, ends 2 and breaks off in 3."""
    first = _journal(folder)
    first.begin_attempt(0)
    for epoch in (1, 2):
        first.reserve_releases(epoch, "0 z", ROWS, 1)
        first.close_epoch(epoch, "0 z", np.array([1, 1, 1, 0, 0]))
    first.reserve_releases(3, "0 z", ROWS, 1)
    first.reserve_releases(3, "0 z", ROWS, 2)
    second = _journal(folder)
    second.begin_attempt(1)
    second.reserve_releases(2, "0 z", ROWS, 1)
    second.close_epoch(2, "0 z", np.array([1, 1, 1, 0, 0]))
    second.reserve_releases(3, "0 z", ROWS, 1)


def test_every_reservation_of_every_attempt_counts_until_it_is_closed(tmp_path: Path) -> None:
    _two_attempts(tmp_path)
    third = _journal(tmp_path)
    third.begin_attempt(2)
    before = third.earlier_counts("0 z", ROWS, 2)
    assert before.kept.tolist() == [2, 2, 2, 0, 0]  # epoch 1 of the first attempt, epoch 2 of the second
    assert before.lost.tolist() == [4, 4, 4, 3, 3]  # the first one's epoch 2; its reservation of 2, the second one's
    assert third.earlier_counts("0 z", ROWS, 0).lost.tolist() == [6, 6, 6, 3, 3]  # begun anew: all of it
    assert third.earlier_counts("1 gradients", ROWS, 2).lost.tolist() == [0] * ROWS
    with pytest.raises(InputError, match="counts 5 rows of '0 z', not 6"):
        third.earlier_counts("0 z", 6, 2)


def test_a_line_that_was_cut_off_did_not_happen_and_every_other_change_is_an_error(tmp_path: Path) -> None:
    _two_attempts(tmp_path)
    path = tmp_path / "shop.journal.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    for cut in range(len(lines[-1])):
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:cut])
        journal = _journal(tmp_path)
        journal.begin_attempt(2)
        assert journal.earlier_counts("0 z", ROWS, 2).lost.max() == 3
        assert path.read_bytes().startswith(b"".join(lines[:-1]))
    changed = [b"".join(lines[:i] + lines[i + 1 :]) for i in range(len(lines) - 1)]
    changed += [b"".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]) for i in range(len(lines) - 1)]
    rng = np.random.default_rng(0)
    for _ in range(300):
        flipped = bytearray(data)
        flipped[int(rng.integers(len(data) - 1))] ^= 1 << int(rng.integers(8))
        changed.append(bytes(flipped))
    for content in changed:
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"journal.jsonl"):
            _journal(tmp_path)


def test_a_journal_of_another_party_or_job_is_refused(tmp_path: Path) -> None:
    _two_attempts(tmp_path)
    with pytest.raises(InputError, match="belongs to another job or party"):
        _journal(tmp_path, job="b" * 64)
    (tmp_path / "shop.journal.jsonl").rename(tmp_path / "bank.journal.jsonl")
    with pytest.raises(InputError, match="belongs to another job or party"):
        _journal(tmp_path, "bank")


def test_counts_that_repeat_are_written_once(tmp_path: Path) -> None:
    journal = _journal(tmp_path)
    journal.begin_attempt(0)
    counts = np.random.default_rng(0).integers(0, 2, 10_000)
    sizes = []
    for epoch in range(1, 4):
        journal.close_epoch(epoch, "0 z", counts)
        sizes.append((tmp_path / "shop.journal.jsonl").stat().st_size)
    assert sizes[2] - sizes[1] < 600 < sizes[0]
    again = _journal(tmp_path)
    again.begin_attempt(3)
    assert again.earlier_counts("0 z", 10_000, 3).kept.tolist() == (3 * counts).tolist()
