"""Parties with state folders and files of their own train what a simulation trains, and each writes its own report."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import securevfl as sv
from securevfl.agreement import read_party_file
from securevfl.cut import Protection
from securevfl.party_context import PartySecret
from securevfl.process.launch import read_start
from securevfl.report import Record
from securevfl.run.model_parts import model_part
from securevfl.run.store import read_tree, tree_digest
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import low_overlap_parties, make_label_owners, make_parties


def _secrets(company: Company) -> dict[str, PartySecret]:
    return {name: PartySecret.from_seed(7, name) for name in company.people}


def _compare(company: Company, job: sv.Job) -> None:
    """What the parties left is what a simulation of the same tables leaves."""
    alone = sv.simulate(job, company.people, secrets=_secrets(company))
    run, parts = alone.record.runs[-1], alone.model().parts
    chief = alone.record.parties[0].name
    for name in company.names:
        state = company.state_folder(name)
        if name in parts and not job.protection.is_sealed:
            kept = read_tree(state / "model" / f"{name}.model.safetensors")
            assert tree_digest(kept) == tree_digest(model_part(job, name, parts[name]))
        own = Record.read(state / "report" / "metrics.json").runs[0]
        labelled = name in {table.name for table in company.people.label_owners}
        assert own.test == (run.test if name == chief else {})
        assert len(own.epochs) == len(run.epochs)
        if name == chief:
            assert [e.train_loss for e in own.epochs] == [e.train_loss for e in run.epochs]
        elif not labelled:
            assert [e.train_loss for e in own.epochs] == [None] * len(run.epochs)
        assert all(name in (line.sender, line.receiver) for line in own.receipt)
        assert (state / "report" / "report.html").stat().st_size > 5_000
        sv.audit(state)


def _collected(company: Company) -> sv.auditing.Audit:  # type: ignore[name-defined]
    """An audit of all parties' ledgers."""
    folder = company.folder / "collected"
    (folder / "ledgers").mkdir(parents=True)
    for name in company.names:
        shutil.copy(company.state_folder(name) / "ledgers" / f"{name}.jsonl", folder / "ledgers")
    return sv.audit(folder)


@pytest.mark.parametrize("protection", [sv.Plain(), sv.BFV()], ids=lambda p: p.name)
def test_parties_with_gates_train_what_a_simulation_trains(protection: Protection, tmp_path: Path) -> None:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4), protection=protection, epochs=2, batch_size=32, seed=3)
    company = create_company(tmp_path, make_parties(passive=2, rows=120), job)
    company.store_secrets(_secrets(company))
    with read_start(company.agreement_file, "bank").own.path.open("a") as own_file:  # no part of the agreement
        own_file.write('\n[report]\ngroup = "f0"\ncosts = {false_positive = 1, false_negative = 2}\n')
    company.over_network()
    found = Record.read(company.state_folder("bank") / "report" / "metrics.json").runs[0].evaluation
    assert found is not None
    assert found.groups is not None
    assert (found.groups.column, found.groups.groups, found.groups.small_rows) == ("f0", [], found.rows)
    assert found.decision is not None
    _compare(company, job)
    audit = _collected(company)
    assert audit.is_complete
    assert not audit.incomplete


def test_several_label_owners_and_a_coordinator(tmp_path: Path) -> None:
    job = sv.Job(protection=sv.Plain(), algorithm=sv.MultiVFL(hidden=4), epochs=2, batch_size=16, seed=3)
    company = create_company(tmp_path, make_label_owners(2, 2, 40), job)
    company.store_secrets(_secrets(company))
    company.over_memory()
    _compare(company, job)
    assert not _collected(company).incomplete


def test_a_fold_and_a_label_book_come_from_files(tmp_path: Path) -> None:
    people = low_overlap_parties(1, rows=80, labels="all")
    company = create_company(tmp_path, people, sv.Job(protection=sv.Plain(), algorithm=sv.FedCVT(bottom=(4,)), seed=3))
    mine, theirs = people["bank"], company.people["bank"]
    assert theirs.fold is not None
    assert mine.fold is not None
    assert theirs.fold.tolist() == mine.fold.tolist()
    assert list(theirs.columns) == list(mine.columns)
    assert (theirs.book is None) == (mine.book is None)
    if theirs.book is not None and mine.book is not None:
        assert (list(theirs.book.ids), theirs.book.label.tolist()) == (list(mine.book.ids), mine.book.label.tolist())
    table = (tmp_path / "bank.csv").read_text().replace(",2\n", ",3\n")
    (tmp_path / "bank.csv").write_text(table)
    with pytest.raises(sv.InputError, match="is the fold; give each row 0"):
        read_party_file(tmp_path / "bank.toml").read_table()


def test_who_is_done_starts_again_for_nothing(tmp_path: Path) -> None:
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=4), epochs=1, batch_size=64, seed=3)
    company = create_company(tmp_path, make_parties(passive=1, rows=60), job)
    company.over_memory()
    from securevfl.process.launch import read_start

    before = (company.state_folder("bank") / "ledgers" / "bank.jsonl").read_bytes()
    assert read_start(company.agreement_file, "bank").run() is None
    assert (company.state_folder("bank") / "ledgers" / "bank.jsonl").read_bytes() == before
