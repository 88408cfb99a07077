"""A label owner's own report says what joining was worth: its baselines run beside the job, without a message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

import securevfl as sv
from securevfl.align import Alignment
from securevfl.process import alone_baselines
from securevfl.process.alone_baselines import AloneBaselines, measure_alone
from securevfl.report import Record, render_report
from securevfl.report.joined import joined_sentence
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties
from securevfl.training import Split, Trained

JOB = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=sv.Plain(), epochs=2, batch_size=32, seed=3)


def _reports(folder: Path) -> dict[str, Record]:
    company = create_company(folder, make_parties(passive=1, rows=160), JOB, baselines=True)
    company.over_memory()
    return {name: Record.read(company.state_folder(name) / "report" / "metrics.json") for name in company.names}


def test_the_label_owner_alone_learns_what_joining_was_worth(tmp_path: Path) -> None:
    found = _reports(tmp_path)
    (owner,) = (name for name, record in found.items() if len(record.runs) > 1)
    record = found.pop(owner)
    alone, boosted, run = record.runs
    assert [alone.key, boosted.key, run.key] == ["alone", "alone_boosted", "train"]
    assert alone.baseline
    assert boosted.baseline
    assert not alone.receipt
    assert not alone.links
    best = max(alone, boosted, key=lambda one: one.test["auc"])
    assert run.gained is not None
    assert run.gained.over == best.key
    assert run.gained.gain == pytest.approx(run.test["auc"] - best.test["auc"])
    assert run.gained.low is not None
    assert run.gained.low < run.gained.gain
    assert run.gained.rows == record.alignment.test
    assert "joined: over what you have" in render_report(record)
    for other in found.values():
        assert [one.key for one in other.runs] == ["train"]
        assert joined_sentence(other) == ""


def test_a_baseline_that_takes_too_long_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone_baselines, "LONGEST", 0.0)
    people = make_parties(passive=1, rows=160)
    owner, rows = people.active, np.arange(150)
    own = {owner.name: Alignment(rows=rows, digest="", verified_by=(), pairwise={})}
    trained = Trained(scores=np.zeros((30, 2)), split=Split(rows[:100], rows[100:120], rows[120:]))
    job = JOB.replace(policies={"shop1": sv.Policy(leaks=False)})
    found = asyncio.run(measure_alone(job, owner.name, owner, own, trained))
    assert [one.key for one in found.runs] == ["alone_boosted"]
    assert found.notes == ["the baseline 'alone' is left out: it took more than 0 seconds"]
    assert found.trained["alone_boosted"].scores.shape == (30, 2)
    nobody = asyncio.run(measure_alone(job, "shop1", people.passive[0], own, trained))
    assert nobody == AloneBaselines()
