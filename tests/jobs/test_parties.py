"""The course of each party with a state folder of its own gives what a simulation gives, and each its own report."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from party_runs import agreement_of, run_over_memory

import securevfl as sv
from securevfl.cut import Protection
from securevfl.jobs.parts import model_part
from securevfl.jobs.store import read_tree, tree_digest
from securevfl.report import Record
from securevfl.site import PartySecret
from securevfl.testing.parties import parties

PEOPLE = parties(passive=2, rows=120)


def _same(job: sv.Job, folder: Path) -> None:
    secrets = {name: PartySecret.derived(7, name) for name in PEOPLE}
    alone = sv.simulate(job, PEOPLE, secrets=secrets)
    together = run_over_memory(agreement_of(job, PEOPLE), PEOPLE, folder, secrets)
    model = alone.model()
    run = alone.record.runs[-1]
    for name in PEOPLE:
        finished = together[name].finished
        assert finished is not None
        if not job.protection.sealed:
            kept = read_tree(folder / name / "model" / f"{name}.model.safetensors")
            assert tree_digest(kept) == tree_digest(model_part(job, name, model.parts[name]))
        record = Record.read(folder / name / "report" / "metrics.json")
        assert (record.runs[0].test == run.test) is (name == "bank")
        assert [e.train_loss for e in record.runs[0].epochs] == (
            [e.train_loss for e in run.epochs] if name == "bank" else [None] * job.epochs
        )
        assert (folder / name / "report" / "report.html").stat().st_size > 5_000
        sv.audit(folder / name)
    collected = folder / "all"
    (collected / "ledgers").mkdir(parents=True)
    for name in PEOPLE:
        shutil.copy(folder / name / "ledgers" / f"{name}.jsonl", collected / "ledgers")
    found = sv.audit(collected)
    assert found.complete
    assert not found.incomplete


@pytest.mark.parametrize("protection", [sv.Plain(), sv.BFV()], ids=lambda p: p.name)
def test_parties_train_what_a_simulation_trains(protection: Protection, tmp_path: Path) -> None:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=protection, epochs=2, batch_size=32, seed=3)
    _same(job, tmp_path)
