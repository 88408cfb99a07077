"""`predict --as` at the party with the labels: figures of the rows that have some, and whether scores moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.companies import Companies

import securevfl as sv
from securevfl import cli
from securevfl.agreement import ServingTerms
from securevfl.cli import serving
from securevfl.data import Parties
from securevfl.party.program import _scores_to_compare
from securevfl.party.report_options import ReportOptions
from securevfl.run.judging import judge_scores
from securevfl.serving.process_tasks import Scored
from securevfl.testing.parties import make_parties
from securevfl.training import Trained

JOB = """
[job]
epochs = 3
accept_leak = true
[algorithm]
name = "logistic_regression"
[protection]
name = "plain"
"""
REPORT = """
[report]
group = "{}"
costs = {{ false_positive = 1, false_negative = 5 }}
"""


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, rows=700)


@pytest.fixture(scope="module")
def companies(tmp_path_factory: pytest.TempPathFactory, people: Parties) -> Companies:
    where = Companies(tmp_path_factory.mktemp("figures"), people, JOB, ServingTerms(asks=("bank",)))
    job = where.proposal.job_of()
    where.write_models(sv.simulate(job, people).model().parts)
    (where.folder / "all.toml").write_text(JOB, encoding="utf-8")
    return where


@pytest.fixture(scope="module")
def scored(companies: Companies, people: Parties) -> Scored:
    parts = {name: dict(_part(companies, name)) for name in people}
    found = sv.predict(sv.Model(job=companies.proposal.job_of(), parts=parts), people)
    every = [("bank", "shop1")] * len(found.ids)
    return Scored(
        classes=tuple(found.classes),
        ids=tuple(found.ids),
        probabilities=found.probabilities.tolist(),
        used=tuple(every),
    )


def _part(companies: Companies, name: str) -> Any:
    from securevfl.cli.own_parts import own_part

    return own_part(companies.agreement, companies.folder / name / "party.toml", name)[1].tree


def said_by(
    companies: Companies,
    scored: Scored,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: Path,
    *more: str,
) -> str:
    async def answer(*_: Any, deliver: Any, **__: Any) -> tuple[Scored, bool]:
        deliver(scored)
        return scored, False

    monkeypatch.setattr(serving, "_predict_rows", answer)
    words = [
        "predict",
        str(companies.agreement),
        "--as",
        "bank",
        "--file",
        str(file),
        "--out",
        str(file.parent / "s.csv"),
        *more,
    ]
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    return " ".join(said.out.split())


def test_rows_with_labels_have_the_figures_of_a_report(
    companies: Companies,
    people: Parties,
    scored: Scored,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = companies.folder / "bank"
    file = place / "grouped.toml"
    column = next(iter(people["bank"].columns))
    file.write_text((place / "party.toml").read_text() + REPORT.format(column), encoding="utf-8")
    said = said_by(companies, scored, monkeypatch, capsys, file)
    table, at = people["bank"], {name: row for row, name in enumerate(people["bank"].ids)}
    labels = np.asarray(table.label)[[at[name] for name in scored.ids]]
    values = np.array(scored.probabilities)[:, 1]
    above = values[labels == 1][:, None] > values[labels == 0][None]
    assert f"auc {above.mean():.4f}" in said
    assert "calibration error" in said
    assert "cheapest cut-off" in said
    assert f"by bank.{column}, with 95 % intervals:" in said
    assert "FPR" in said
    # these are the rows of training: nothing moved
    assert "; scores PSI 0.0" in said
    assert "stable" in said


def test_scores_that_moved_are_told(
    companies: Companies, scored: Scored, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    high = [[1 - (0.9 + one[1] / 10), 0.9 + one[1] / 10] for one in scored.probabilities]
    moved = Scored(classes=scored.classes, ids=scored.ids, probabilities=high, used=scored.used)
    file = companies.folder / "bank" / "party.toml"
    said = said_by(companies, moved, monkeypatch, capsys, file)
    assert "; scores PSI" in said
    assert "major" in said


@pytest.mark.parametrize(
    ("label", "says"), [("", "the label is null or blank in 665 of 665 rows"), ("1", "all labels are 1")]
)
def test_labels_that_are_not_known_yet_are_no_failure(
    label: str,
    says: str,
    companies: Companies,
    scored: Scored,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The scores are written and the partner counted them, so the command ends well; of one row, too."""
    place = companies.folder / "bank"
    first, *rows = (place / "table.csv").read_text().splitlines()
    assert first.endswith(",late")
    blank = place / "blank.csv"
    blank.write_text("\n".join([first, *(f"{row.rpartition(',')[0]},{label}" for row in rows)]), encoding="utf-8")
    one = Scored(
        classes=scored.classes,
        ids=scored.ids[:1],
        probabilities=scored.probabilities[:1],
        used=scored.used[:1],
    )
    said = said_by(companies, one, monkeypatch, capsys, place / "party.toml", "--data", str(blank))
    assert "No figures by the labels of these rows:" in said
    assert says in said
    assert " 1 row that all parties have" in said
    assert "no more than chance with so few rows (1)" in said


def test_rows_without_the_column_of_groups_are_judged_all_the_same(people: Parties) -> None:
    table = people["bank"]
    scores = np.tile([0.4, 0.6], (table.rows, 1))
    judged = judge_scores(("0", "1"), tuple(table.ids), scores, table, ReportOptions(group="region"))
    assert judged is not None
    assert judged.groups is None
    assert "These rows have no column 'region', so they are not compared by region." in judged.missing


def test_where_no_validation_scores_are_opened_scores_are_compared_with_those_of_test_rows() -> None:
    test, valid = np.tile([0.4, 0.6], (60, 1)), np.tile([0.3, 0.7], (50, 1))
    assert _scores_to_compare(Trained(scores=test, valid_scores=valid)) is valid
    assert _scores_to_compare(Trained(scores=test)) is test
    assert not len(_scores_to_compare(Trained(scores=np.eye(2)[[0, 1] * 30])))  # classes alone were opened
