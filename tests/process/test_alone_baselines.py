"""A label owner's own report says what joining was worth: its baselines run beside the job, without a message."""

from __future__ import annotations

from pathlib import Path

import pytest

import securevfl as sv
from securevfl.process import alone_baselines
from securevfl.report import Record, render_report
from securevfl.report.joined import joined_sentence
from securevfl.testing.company import create_company
from securevfl.testing.parties import make_parties

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


def test_a_baseline_that_takes_too_long_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone_baselines, "LONGEST", 0.0)
    found = _reports(tmp_path)
    record = next(record for record in found.values() if len(record.runs) > 1)
    run = record.runs[-1]
    assert [one.key for one in record.runs] == ["alone_boosted", "train"]
    assert any("'alone' is left out: it took more than 0 seconds" in note for note in run.notes)
    assert run.test
