"""Arrays with one row of bytes for each item: matching, secret orders, chunks."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from securevfl_psi.arrays import count_duplicates, match_rows, secret_order
from securevfl_psi.chunks import require_chunk
from securevfl_psi.errors import MalformedError, SetSizeError


def test_only_the_last_chunk_may_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 4)
    rows = np.zeros((4, 16), dtype=np.uint8)
    for done, size, count in ((0, 4, 9), (4, 4, 9), (8, 1, 9), (0, 4, 4), (0, 1, 1)):
        require_chunk(rows[:size], 16, done, count, "it")
    for done, size, count in ((0, 3, 9), (4, 1, 9), (0, 3, 4), (0, 0, 4)):
        with pytest.raises(MalformedError):
            require_chunk(rows[:size], 16, done, count, "it")
    for done, size, count in ((8, 2, 9), (9, 1, 9), (0, 1, 0)):
        with pytest.raises(SetSizeError):
            require_chunk(rows[:size], 16, done, count, "it")


def test_many_tokens_with_equal_halves_are_refused() -> None:
    """One round of matching for each of them: minutes for 2^24 salted hashes, which their sender makes up."""

    def equal_halves(count: int) -> np.ndarray:
        out = np.zeros((count, 16), dtype=np.uint8)
        out[:, 8:] = np.arange(1, count + 1, dtype="<u8").view(np.uint8).reshape(-1, 8)
        return out

    few = equal_halves(40)
    assert [found.tolist() for found in match_rows(few[::-1], few)] == [list(range(40)), list(range(39, -1, -1))]
    assert count_duplicates(few) == 0
    with pytest.raises(MalformedError, match="more than 64 tokens have equal first halves"):
        match_rows(np.zeros((1, 16), dtype=np.uint8), equal_halves(1000))


def test_matching_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.arrays._PART", 4)
    rows = np.random.default_rng(0).integers(0, 256, (30, 16), dtype=np.uint8)
    found, places = match_rows(rows, rows[::-2])
    assert found.tolist() == list(range(1, 30, 2))
    assert np.array_equal(rows[found], rows[::-2][places])


def test_equal_keys_of_an_order_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [bytes(24), np.array([2, 9, 1], dtype=np.uint64).tobytes()]
    monkeypatch.setattr(secrets, "token_bytes", lambda count: drawn.pop(0))
    assert secret_order(3).tolist() == [2, 0, 1]
