"""Three processes with certificates on loopback; one is killed in mid-epoch and started again: nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.party_context import Observer, PartySecret
from securevfl.process.launch import read_start
from securevfl.run.model_parts import model_part
from securevfl.run.store import read_tree, tree_digest
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 240.0
"""Seconds; on an idle machine the test takes ten."""


class Dies(Observer):
    """Kills its process in the middle of an epoch."""

    def __init__(self, epoch: int) -> None:
        self._dies_in = epoch

    def step(self, epoch: int, done: int, total: int) -> None:
        if epoch == self._dies_in and done == total // 2:
            os.kill(os.getpid(), signal.SIGKILL)


def _take_part(company: Company, name: str, dies: int) -> None:
    read_start(company.agreement_file, name).run(wait=PATIENCE, hearers=[Dies(dies)])


def _start(company: Company, name: str, *, dies: int = 0) -> BaseProcess:
    """A copy of this process, which has loaded the libraries, as a party."""
    process = multiprocessing.get_context("fork").Process(target=_take_part, args=(company, name, dies), name=name)
    process.start()
    return process


@pytest.mark.parametrize(
    ("protection", "killed"),
    [(sv.Plain(), "shop1"), (sv.Plain(fixed_point=True), "bank")],
    ids=["plain, a passive party", "fixed point, the active party"],
)
def test_a_party_that_is_killed_in_mid_epoch_goes_on(protection: sv.Plain, killed: str, tmp_path: Path) -> None:
    people = make_parties(passive=2, rows=120)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, bottom=[3]), protection=protection, epochs=3, batch_size=16, seed=3)
    company = create_company(tmp_path, people, job)
    secrets = {name: PartySecret.from_seed(7, name) for name in company.names}
    company.store_secrets(secrets)
    running: list[BaseProcess] = []
    try:
        every = {name: _start(company, name, dies=2 if name == killed else 0) for name in company.names}
        running += every.values()
        every[killed].join(PATIENCE)
        assert every[killed].exitcode == -signal.SIGKILL
        every[killed] = _start(company, killed)
        running.append(every[killed])
        for process in every.values():
            process.join(PATIENCE)
        assert {name: process.exitcode for name, process in every.items()} == dict.fromkeys(company.names, 0)
    finally:
        for process in running:
            process.kill()
            process.join()
    simulated = sv.simulate(job, company.people, secrets=secrets).model()
    ledgers = tmp_path / "collected"
    ledgers.mkdir()
    for name in company.names:
        kept = read_tree(company.state_folder(name) / "model" / f"{name}.model.safetensors")
        assert tree_digest(kept) == tree_digest(model_part(job, name, simulated.parts[name]))
        shutil.copy(company.state_folder(name) / "ledgers" / f"{name}.jsonl", ledgers)
    audit = sv.audit(ledgers)
    assert audit.is_complete
    assert not audit.incomplete
    assert [(chain.party, chain.attempt) for chain in audit.chains if chain.broke_off] == [(killed, 1)]
    assert len({chain.attempt for chain in audit.chains if chain.attempt}) == 2
