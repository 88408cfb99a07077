"""Two processes train the candidates of an agreement; one is killed in the second candidate. Then they predict with the
one that was kept."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import securevfl as sv
from securevfl import cli
from securevfl.agreement import ServingTerms
from securevfl.algorithms import AutoAlgorithm
from securevfl.party import run_party
from securevfl.party.candidates import agreed_candidates
from securevfl.party_context import Observer, PartyContext, PartySecret
from securevfl.process.launch import read_start
from securevfl.report import Record
from securevfl.report.choice import choice_sentence, choice_table
from securevfl.run.model_parts import model_part
from securevfl.run.simulated_parties import Simulated
from securevfl.run.store import read_tree, tree_digest
from securevfl.serving.process import read_own_part
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from securevfl.training import Trained

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PATIENCE = 240.0
AUTO = AutoAlgorithm(methods=("splitnn", "logistic_regression"))
JOB = sv.Job(algorithm=AUTO, protection=sv.Plain(), epochs=3, batch_size=16, seed=3)


class Dies(Observer):
    """Kills its process in the middle of the second epoch of the second candidate."""

    def __init__(self) -> None:
        self._armed = False

    def phase(self, name: str) -> None:
        self._armed |= name == "candidate logistic_regression"

    def step(self, epoch: int, done: int, total: int) -> None:
        if self._armed and epoch == 2 and done == total // 2:
            os.kill(os.getpid(), signal.SIGKILL)


def _take_part(company: Company, name: str, dies: bool) -> None:
    read_start(company.agreement_file, name).run(wait=PATIENCE, hearers=[Dies()] if dies else [])


def _predict(company: Company, name: str) -> None:
    cli.main(["predict", str(company.agreement_file), "--as", name, "--out", str(company.folder / "scores.csv")])


def _start(work: Any, *arguments: Any) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    return process


def _said(words: list[str]) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert not ended.value.code, out.getvalue()
    return " ".join(out.getvalue().split())


def _train_and_predict(company: Company) -> None:
    """One party is killed and started again; then both score their tables."""
    running: list[BaseProcess] = []
    try:
        every = {name: _start(_take_part, company, name, name == "shop1") for name in company.names}
        running += every.values()
        every["shop1"].join(PATIENCE)
        assert every["shop1"].exitcode == -signal.SIGKILL
        every["shop1"] = _start(_take_part, company, "shop1", False)
        running.append(every["shop1"])
        for process in every.values():
            process.join(PATIENCE)
        assert {name: process.exitcode for name, process in every.items()} == dict.fromkeys(company.names, 0)
        scoring = [_start(_predict, company, name) for name in company.names]
        running += scoring
        for process in scoring:
            process.join(PATIENCE)
        assert [process.exitcode for process in scoring] == [0, 0]
    finally:
        for process in running:
            process.kill()
            process.join()


def test_a_party_that_is_killed_in_the_second_candidate_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = make_parties(passive=1, rows=160)
    company = create_company(tmp_path, people, JOB, serving=ServingTerms(asks=("bank",)))
    secrets = {name: PartySecret.from_seed(7, name) for name in company.names}
    company.store_secrets(secrets)
    _train_and_predict(company)

    async def program(site: PartyContext, table: Any) -> Trained:
        return await run_party(site, table, JOB)

    found, _ = Simulated(job=JOB, parties=company.people, run="auto", secrets=secrets).run_program(program)
    choice = found["bank"].choice
    assert choice is not None
    kept = agreed_candidates(JOB)[choice.kept]
    for name in company.names:
        place = company.state_folder(name) / "model" / f"{name}.model.safetensors"
        assert tree_digest(read_tree(place)) == tree_digest(model_part(kept, name, found[name].model))
        record = Record.read(company.state_folder(name) / "report" / "metrics.json")
        assert record.choice is not None
        assert record.choice.chosen == choice.kept
        assert record.runs[0].title.startswith(kept.algorithm.title)
        assert choice_table(record) is not None
        figures = {one.key: one.valid for one in record.choice.candidates}
        if name == "bank":
            assert figures == {name: one.valid for name, one in choice.tried.items()}
            assert "best AUC on" in choice_sentence(record)
        else:
            assert set(figures.values()) == {None}
            assert "by the active party, of" in choice_sentence(record)
    ledgers = tmp_path / "collected"
    ledgers.mkdir()
    for name in company.names:
        shutil.copy(company.state_folder(name) / "ledgers" / f"{name}.jsonl", ledgers)
    audit = sv.audit(ledgers)
    assert audit.is_complete
    assert [(chain.party, chain.attempt) for chain in audit.chains if chain.broke_off] == [("shop1", 1)]
    scores = np.loadtxt(tmp_path / "scores.csv", delimiter=",", skiprows=1, dtype=str)
    assert len(scores) > len(found["bank"].scores)
    monkeypatch.chdir(tmp_path)
    _said(["dossier", "agreement.toml", "--as", "bank", "--no-docx"])
    assert kept.algorithm.title in (tmp_path / "dossier" / "model-card.html").read_text("utf-8")
    part, _ = read_own_part(company.agreement_file, "bank", tmp_path / "bank.toml")
    assert part.job == kept.replace(policies=part.job.policies)
