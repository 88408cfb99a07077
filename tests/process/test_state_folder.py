"""A party's state folder: its owner's alone, held by one process, and torn or foreign files are found."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
from securevfl_net.durable import InUse

from securevfl.align import Alignment
from securevfl.errors import InputError
from securevfl.party_context import PartySecret
from securevfl.process.state_folder import StateFolder, StoredAlignment

AGREEMENT = "ab" * 32


def _filled(path: Path) -> None:
    with StateFolder.lock(path, party="bank", agreement=AGREEMENT) as state:
        state.count_start()
        state.keep_secret(PartySecret.generate())
        state.store_ready("00" * 16, 0, 1)
        state.add_seconds(1.5)
        one = Alignment(rows=np.array([3, 1, 2]), digest="d", verified_by=("shop",), pairwise={"shop": 3})
        state.store_alignment(StoredAlignment(digest="e", table="t", alignments={"bank": one}))


def test_what_is_kept_is_there_again(tmp_path: Path) -> None:
    secret = PartySecret.generate()
    with StateFolder.lock(tmp_path / "s", party="bank", agreement=AGREEMENT) as state:
        first = state.count_start()
        assert state.keep_secret(secret) == secret
        assert state.store_ready("00" * 16, 0, 1) == 1
        assert state.store_begun("00" * 16) == 1
        state.add_seconds(1.5)
        state.add_seconds(2.0)
        labelled = {"shop": np.array([0, 5])}
        one = Alignment(
            rows=np.array([3, 1, 2]), digest="d", verified_by=("shop",), pairwise={"shop": 3}, labelled=labelled
        )
        state.store_alignment(StoredAlignment(digest="e", table="t", alignments={"bank": one}))
    with StateFolder.lock(tmp_path / "s", party="bank", agreement=AGREEMENT) as state:
        second = state.count_start()
        assert (first[0], second[0]) == (1, 2)
        assert first[1] != second[1]
        assert state.keep_secret(PartySecret.generate()) == secret
        assert state.store_ready("11" * 16, 4, 3) == 2
        assert [(a.number, a.start, a.begun) for a in state.attempts] == [(1, 0, True), (3, 4, False)]
        assert state.seconds_used == 3.5
        kept = state.read_alignment()
        assert kept is not None
        assert (kept.digest, kept.table) == ("e", "t")
        found = kept.alignments["bank"]
        assert found.rows.tolist() == [3, 1, 2]
        assert found.rows.dtype == np.int64
        assert found.labelled["shop"].tolist() == [0, 5]
        assert (found.verified_by, found.pairwise, found.digest) == (("shop",), {"shop": 3}, "d")
        state.forget_alignment()
        assert state.read_alignment() is None


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    _filled(tmp_path / "s")
    for path in [tmp_path / "s", *(tmp_path / "s").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_one_process_holds_it(tmp_path: Path) -> None:
    with (
        StateFolder.lock(tmp_path, party="bank", agreement=AGREEMENT),
        pytest.raises(InUse, match="another state folder"),
        StateFolder.lock(tmp_path, party="bank", agreement=AGREEMENT),
    ):
        pass


@pytest.mark.parametrize(("party", "agreement"), [("shop", AGREEMENT), ("bank", "cd" * 32)])
def test_of_another_party_or_agreement(tmp_path: Path, party: str, agreement: str) -> None:
    _filled(tmp_path)
    with (
        pytest.raises(InputError, match="a separate state folder"),
        StateFolder.lock(tmp_path, party=party, agreement=agreement),
    ):
        pass


NAMES = ("job.json", "incarnation.json", "attempts.json", "used.json", "secret.json", "alignment.safetensors")


@pytest.mark.parametrize("name", NAMES)
def test_each_torn_or_changed_byte_is_found(tmp_path: Path, name: str) -> None:
    """Every shorter content, and a flipped bit in each byte: refused, or the very same content."""
    _filled(tmp_path)
    whole = (tmp_path / name).read_bytes()

    def read() -> object:
        with StateFolder.lock(tmp_path, party="bank", agreement=AGREEMENT) as state:
            if name == "incarnation.json":
                return state.count_start()
            kept = state.read_alignment()
            rows = None if kept is None else kept.alignments["bank"].rows.tolist()
            return (state.attempts, state.seconds_used, state.keep_secret(PartySecret.generate()).to_hex, rows)

    before = read()
    (tmp_path / name).write_bytes(whole)
    step = max(len(whole) // 60, 1)
    broken = [whole[:size] for size in range(0, len(whole) - 1, step)]
    broken += [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(0, len(whole) - 1, step)]
    refused = 0
    for content in broken:
        (tmp_path / name).write_bytes(content)
        try:
            found = read()
        except InputError:
            refused += 1
        else:
            assert name != "incarnation.json"
            assert found == before
    assert refused >= len(broken) - 1
