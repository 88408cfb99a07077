"""A disk that is full for a while: the party stops before anything leaves of which its ledger has no line, its peers
wait, and the run goes on from there."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.errors import DiskFull
from securevfl.process.launch import read_start
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 240.0
"""Seconds; on an idle machine the test takes ten."""
ROOM = 30_000
"""Bytes of the largest file: those of the ledger after a few steps of training, and of nothing else."""


def _take_part(company: Company, name: str, room: int) -> None:
    import resource

    if room:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        read_start(company.agreement_file, name).run(wait=PATIENCE)
    except DiskFull as error:
        (company.folder / "cause").write_text(str(error))
        os._exit(error.exit_code)


def _start(company: Company, name: str, *, room: int = 0) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=_take_part, args=(company, name, room), name=name)
    process.start()
    return process


def test_a_party_whose_disk_was_full_goes_on(tmp_path: Path) -> None:
    people = make_parties(passive=1, rows=120)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, bottom=[3]), protection=sv.Plain(), epochs=6, batch_size=16, seed=3)
    company = create_company(tmp_path, people, job)
    running: list[BaseProcess] = []
    try:
        every = {name: _start(company, name, room=ROOM if name == "bank" else 0) for name in company.names}
        running += every.values()
        every["bank"].join(PATIENCE)
        assert every["bank"].exitcode == DiskFull.exit_code == 75
        ledger = company.state_folder("bank") / "ledgers" / "bank.jsonl"
        assert f"{ledger} cannot be written: disk full" in (tmp_path / "cause").read_text()
        assert ledger.read_bytes().endswith(b"\n")
        every["bank"] = _start(company, "bank")
        running.append(every["bank"])
        for process in every.values():
            process.join(PATIENCE)
        assert {name: process.exitcode for name, process in every.items()} == dict.fromkeys(company.names, 0)
    finally:
        for process in running:
            process.kill()
            process.join()
    collected = tmp_path / "collected"
    collected.mkdir()
    for name in company.names:
        state = company.state_folder(name)
        (collected / f"{name}.jsonl").write_bytes((state / "ledgers" / f"{name}.jsonl").read_bytes())
        _check_modes(state)
    audit = sv.audit(collected)
    assert audit.is_complete
    assert {chain.attempt for chain in audit.chains if chain.attempt} >= {1, 2}


def _check_modes(folder: Path) -> None:
    """As docs/howto/operate.md promises."""
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
