"""Two parties that train on shares between themselves, as processes: alone, and with a helper of which one dies."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import jinja2  # noqa: F401 - as below
import matplotlib.backends.backend_svg
import matplotlib.figure  # noqa: F401 - processes are copies of this one, and need not load what draws reports
import numpy as np
import pytest

import securevfl as sv
from securevfl.party_context import Observer, PartySecret
from securevfl.process.launch import read_start
from securevfl.report import Record
from securevfl.run.store import read_tree
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 240.0


class _Dies(Observer):
    """Kills its process in the middle of an epoch, or between two."""

    def __init__(self, epoch: int) -> None:
        self._dies_in = epoch

    def step(self, epoch: int, done: int, total: int) -> None:
        if epoch == self._dies_in and done == max(total // 2, 1):
            os.kill(os.getpid(), signal.SIGKILL)

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == self._dies_in:
            os.kill(os.getpid(), signal.SIGKILL)


def _take_part(company: Company, name: str, dies: int) -> None:
    read_start(company.agreement_file, name).run(wait=PATIENCE, hearers=[_Dies(dies)])


def _run_all(company: Company, killed: str) -> None:
    """Run all parties; one is killed in its second epoch, and started again."""
    running: list[BaseProcess] = []

    def begin(name: str, dies: int = 0) -> BaseProcess:
        process = multiprocessing.get_context("fork").Process(target=_take_part, args=(company, name, dies))
        running.append(process)
        process.start()
        return process

    try:
        every = {name: begin(name, 2 if name == killed else 0) for name in company.names}
        every[killed].join(PATIENCE)
        assert every[killed].exitcode == -signal.SIGKILL
        every[killed] = begin(killed)
        for process in every.values():
            process.join(PATIENCE)
        assert {name: process.exitcode for name, process in every.items()} == dict.fromkeys(company.names, 0)
    finally:
        for process in running:
            process.kill()
            process.join()


def _entries(state: Path, name: str, what: str) -> list[dict[str, Any]]:
    lines = (state / "ledgers" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry.get("what") == what]


@pytest.mark.parametrize(("helper", "killed"), [("", "shop1"), ("notary", "notary")])
def test_a_party_is_killed_and_its_random_numbers_are_made_again(tmp_path: Path, helper: str, killed: str) -> None:
    protection = sv.Shares(computing=2, helper=helper, few_rows=True, useful="off")
    job = sv.Job(algorithm=sv.LogisticRegression(), protection=protection, epochs=3, batch_size=64, keep="last", seed=3)
    policies = {"shop1": sv.Policy(few_rows=True, useful="off")}
    company = create_company(tmp_path / "real", make_parties(passive=1, rows=200), job, policies=policies)
    secrets = {name: PartySecret.from_seed(7, name) for name in company.people}
    company.store_secrets(secrets)
    _run_all(company, killed)
    states = {name: company.state_folder(name) for name in company.names}

    collected = tmp_path / "collected"
    (collected / "ledgers").mkdir(parents=True)
    for name, state in states.items():
        shutil.copy(state / "ledgers" / f"{name}.jsonl", collected / "ledgers")
    audit = sv.audit(collected)
    assert audit.is_complete
    assert [chain.party for chain in audit.chains if chain.broke_off] == [killed]

    source = "shares/dealt" if helper else "shares/two key"
    # Lots of which the bank draws its part from a seed have sizes alone.
    heard = [one for one in _entries(states["bank"], "bank", source) if one["way"] == "received"]
    first = [one["digest"] for one in heard if "0" in one["shapes"]]
    assert len(set(first)) == len(first) > 1  # nothing is sent twice, in two attempts
    for name in ("bank", "shop1"):
        run = Record.read(states[name] / "report" / "metrics.json").runs[0]
        assert any("rounds a step" in note for note in run.notes), name
    if helper:
        kinds = {one["kind"] for one in _entries(states["notary"], "notary", "shares/lot")}
        assert kinds == {"control"}

    kept: dict[str, Any] = {
        name: read_tree(states[name] / "model" / f"{name}.model.safetensors") for name in ("bank", "shop1")
    }
    parts = {name: one["parts"]["shares"] for name, one in kept.items()}
    alone: Any = sv.simulate(job, company.people, secrets=secrets).model().parts
    for mine, other in (("own", "other"), ("other", "own")):
        ours = (parts["bank"][mine] + parts["shop1"][other]).numpy() / 2.0**45
        wanted = (alone["bank"]["parts"]["shares"][mine] + alone["shop1"]["parts"]["shares"][other]).numpy() / 2.0**45
        assert np.abs(ours - wanted).max() < 0.01, mine
        assert np.abs(wanted).max() > 0.05, mine
