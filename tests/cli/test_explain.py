"""`securevfl explain`: all parties in one process with the report's bars, and one party of an agreement alone."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.companies import Companies

import securevfl as sv
from securevfl import cli
from securevfl.agreement import ServingTerms
from securevfl.agreement.plain_words import describe_proposal
from securevfl.data import Parties
from securevfl.run.run_folder import JOB_FILE
from securevfl.run.simulation import align_parties
from securevfl.testing.parties import make_parties

JOB = """
[job]
epochs = 3
accept_leak = true
[algorithm]
name = "{}"
[protection]
name = "plain"
"""
TABLES = """
[[party]]
name = "bank"
file = "bank/table.csv"
id = "ref"
label = "late"
[[party]]
name = "shop1"
file = "shop1/table.csv"
id = "ref"
"""


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, rows=80)


@pytest.fixture(scope="module")
def companies(tmp_path_factory: pytest.TempPathFactory, people: Parties) -> Companies:
    folder = tmp_path_factory.mktemp("explained")
    terms = ServingTerms(asks=("bank",), reasons=True)
    where = Companies(folder, people, JOB.format("additive"), terms)
    (folder / "all.toml").write_text(JOB.format("additive") + TABLES, encoding="utf-8")
    result = sv.simulate(sv.read_job(folder / "all.toml").job, people)
    result.report(folder / "run")
    result.model().save(folder / "run" / "model")
    where.write_models(result.model().parts)
    return where


def _command(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return int(ended.value.code or 0)


def _rows(file: Path) -> Sequence[dict[str, str]]:
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def test_totals_reasons_and_the_report(
    companies: Companies, people: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = companies.folder
    out = folder / "out" / "reasons.csv"
    job = sv.read_job(folder / "all.toml").job
    aligned = align_parties(people, job)
    wanted = list(people.active.ids_of(aligned.parties["bank"].rows[:3]))
    (folder / "ids.txt").write_text("id,more\n" + "".join(f"{one},x\n" for one in wanted), encoding="utf-8")
    options = ("--ids", folder / "ids.txt", "--out", out, "--reasons", "both", "--most", 2)
    assert _command("explain", folder / "all.toml", folder / "run", *options) == 0
    assert [row["id"] for row in _rows(out)] == wanted
    assert [len(_rows(out.with_name(f"reasons.{name}.csv"))) for name in ("bank", "shop1")] == [6, 6]
    said = capsys.readouterr().out
    assert "3 rows: the score of '1', exact, by the terms of the model" in said
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count("Columns of ") == 2
    assert _command("report", folder / "run") == 0
    assert (folder / "run" / "report.html").read_text(encoding="utf-8") == page


def test_a_party_explains_alone_what_the_whole_explains(companies: Companies, people: Parties) -> None:
    folder = companies.folder
    out, name = folder / "shop1" / "own.csv", people["shop1"].ids[0]
    file = folder / "shop1" / "party.toml"
    words = ("explain", companies.agreement, "--as", "shop1", "--file", file, "--out", out, "--ids", name)
    assert _command(*words, "--reasons", "both") == 0
    model = sv.Model.load(folder / "run" / "model", sv.read_job(folder / "all.toml").job)
    own = sv.own_reasons(model.part("shop1"), people["shop1"], [name], direction="both")[name]
    found = _rows(out)
    assert [row["column"] for row in found] == [one.column for one in own]
    for row, one in zip(found, own, strict=True):
        assert float(row["adds (probability)"]) == pytest.approx(one.term, rel=1e-4)
    assert _command(*words, "--reasons", "both", "--class", "0") == 0
    assert float(_rows(out)[0]["adds (probability)"]) == pytest.approx(-own[0].term, rel=1e-4)
    assert _command("explain", companies.agreement, "--as", "bank", "--file", file) == 2
    assert _command("explain", companies.agreement, folder / "run", "--as", "shop1") == 2
    assert _command("explain", folder / "all.toml") == 2


def test_an_agreement_says_that_answers_come_with_reasons_if_the_model_has_them(
    companies: Companies, people: Parties, tmp_path: Path
) -> None:
    text = " ".join(line for part in describe_proposal(companies.proposal) for line in part.lines)
    assert "Answers come with reasons" in text
    with pytest.raises(sv.InputError, match="not a sum of terms"):
        Companies(tmp_path, people, JOB.format("splitnn"), ServingTerms(asks=("bank",), reasons=True))


def test_next_months_files_are_explained_without_labels_and_without_the_job_file(
    companies: Companies, people: Parties, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, given = companies.folder, []
    run = tmp_path / "run"
    shutil.copytree(folder / "run", run)
    shutil.copy(folder / "all.toml", run / "model" / JOB_FILE)
    for name in people:
        lines = list(csv.reader((folder / name / "table.csv").read_text(encoding="utf-8").splitlines()))
        kept = [place for place, column in enumerate(lines[0]) if column != "late"]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[line[place] for place in kept] for line in lines[: 1 + len(lines) // 2]])
        given += ["--data", f"{name}={tmp_path / f'{name}.csv'}"]
    before = (run / "report.html").read_bytes()
    assert _command("explain", run, *given, "--out", tmp_path / "next.csv") == 0
    assert "the score of '1', exact" in capsys.readouterr().out
    assert (run / "report.html").read_bytes() == before
    assert _command("explain", folder / "all.toml", folder / "run", "--out", tmp_path / "all.csv") == 0
    # explained as in the whole table, but for what an average row is, which is that of the rows given
    found, every = ({row["id"]: row for row in _rows(tmp_path / f"{name}.csv")} for name in ("next", "all"))
    assert 0 < len(found) < len(every)
    assert {name: row["score"] for name, row in found.items()} == {name: every[name]["score"] for name in found}
    assert _command("explain", run, *given[:2], "--out", tmp_path / "none.csv") != 0
    assert "add --data shop1=FILE" in " ".join(capsys.readouterr().err.split())
    assert _command("explain", companies.agreement, "--as", "bank", *given) != 0
    assert "--data is one file, that of 'bank'" in " ".join(capsys.readouterr().err.split())
