"""`securevfl predict RUN --data PARTY=FILE`: next month's files, without labels and without an edit of any file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import securevfl as sv
from securevfl.cli.application import app
from securevfl.cli.own_parts import read_own_table
from securevfl.cli.runs import _predict_line
from securevfl.cli.scores import format_figures
from securevfl.jobfile.job_file import TableSection
from securevfl.jobfile.new_tables import read_own_labels, split_data_options
from securevfl.run.run_folder import RunFolder

ROWS = 90
JOB = """
baselines = []
[job]
epochs = 2
batch_size = 32
accept_leak = true
[protection]
name = "plain"
[algorithm]
name = "splitnn"
hidden = 4
[[party]]
name = "bank"
file = "bank.csv"
id = "client"
label = "good"
weight = "worth"
prepare = "auto"
[[party]]
name = "shop"
file = "shop.csv"
id = "client"
categorical = ["town"]
"""


def write_tables(folder: Path, month: str, *, seed: int, towns: list[str], label: bool = True) -> tuple[Path, Path]:
    draw = np.random.default_rng(seed)
    income, spent = draw.normal(size=(2, ROWS))
    bank, shop = folder / f"bank{month}.csv", folder / f"shop{month}.csv"
    good = ["yes" if one > 0 else "no" for one in income + spent]
    columns = {"client": [f"c{i}" for i in range(ROWS)], "income": income}
    write_columns(bank, columns | ({"good": good, "worth": draw.integers(1, 3, ROWS)} if label else {}))
    write_columns(shop, {"client": columns["client"], "spent": spent, "town": draw.choice(towns, ROWS)})
    return bank, shop


def write_columns(path: Path, columns: dict[str, object]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run and its tables."""
    place = tmp_path_factory.mktemp("months")
    write_tables(place, "", seed=0, towns=["Rome", "Oslo"])
    (place / "job.toml").write_text(JOB)
    content = sv.read_job(place / "job.toml")
    result = sv.simulate(content.job, content.parties, baselines=())
    with RunFolder.lock(place / "run") as run, pytest.MonkeyPatch.context() as patched:
        patched.setattr("securevfl.run.result.write_report", lambda record, folder: folder / "report.html")
        run.write_result(result, parties=content.parties, job_file=(place / "job.toml").read_bytes())
    assert _predict_line(content, run) == f"securevfl predict {place / 'run'} --data bank=NEW --data shop=NEW"
    return place


def predict(folder: Path, *arguments: object) -> str:
    """What the command prints; its error is raised."""
    ran = CliRunner().invoke(app, ["predict", *map(str, arguments), "--out", str(folder / "scores.csv")])
    if ran.exception is not None:
        raise ran.exception
    return " ".join(ran.output.split())


def scores(folder: Path) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in csv.reader((folder / "scores.csv").read_text().splitlines()[1:])}


def test_new_tables_without_labels_are_scored_and_what_is_unusual_is_said(folder: Path, tmp_path: Path) -> None:
    bank, shop = write_tables(tmp_path, "-next", seed=1, towns=["Rome", "Bern"], label=False)
    said = predict(tmp_path, folder / "run", "--data", f"bank={bank}", "--data", f"shop={shop}")
    assert f"{ROWS} rows by bank and shop" in said
    assert (
        "have values of 'town' that are new, or were rare in training ('Bern'): all of them are encoded alike" in said
    )
    assert "By the labels" not in said
    assert len(scores(tmp_path)) == ROWS


def test_labels_that_are_there_measure_the_scores(folder: Path, tmp_path: Path) -> None:
    """The training's own tables: its test rows have the report's scores, and are not asked about."""
    given = ("--data", f"bank={folder / 'bank.csv'}", "--data", f"shop={folder / 'shop.csv'}")
    said = predict(tmp_path, folder / "run", *given)
    report = {row[0]: row[-2:] for row in csv.reader((folder / "run" / "scores.csv").read_text().splitlines()[1:])}
    found = scores(tmp_path)
    assert {name: found[name] for name in report} == report
    assert f"{len(report)} rows were answered from the store, {ROWS - len(report)} were asked about" in said
    content = sv.read_job(folder / "job.toml")
    model = sv.Model.load(folder / "run" / "model", content.job)
    again = sv.predict(model, content.parties, answers=folder / "run" / "model" / "answers")
    assert f"By the labels of these rows: {format_figures(again.metrics)}" in said
    assert again.metrics["accuracy"] == pytest.approx(_accuracy(content.parties.active, again))
    assert "By the labels" not in predict(tmp_path, folder / "run", *given, "--no-labels")
    assert predict(tmp_path, folder / "job.toml", folder / "run" / "model").count("By the labels") == 1


def _accuracy(table: sv.PartyTable, found: sv.Prediction) -> float:
    """Weighted, from the definition."""
    assert table.label is not None
    assert table.weight is not None
    at = {name: row for row, name in enumerate(table.ids)}
    rows = [at[name] for name in found.ids]
    right = found.probabilities.argmax(axis=1) == table.label[rows]
    return float(np.average(right, weights=table.weight[rows]))


@pytest.mark.parametrize(
    ("party", "change", "words"),
    [
        ("shop", {"spent": "paid"}, "shop: .*lacks 1 of the 2 columns .* trained on: 'spent'.*it has client, paid"),
        ("shop", {"client": "customer"}, "shop: unknown id column .*'client'"),
        ("shop", {"-0.": "about "}, "shop: .*column 'spent'"),
        ("bank", {"-0.": "about "}, "bank: .*column 'income' contained numbers when the model was trained, but now"),
    ],
)
def test_columns_that_changed_are_refused_before_anything_is_sent(
    party: str, change: dict[str, str], words: str, folder: Path, tmp_path: Path
) -> None:
    changed = tmp_path / f"{party}.csv"
    text = (folder / f"{party}.csv").read_text()
    for old, new in change.items():
        text = text.replace(old, new)
    changed.write_text(text)
    given = {"bank": folder / "bank.csv", "shop": folder / "shop.csv", party: changed}
    with pytest.raises(sv.InputError, match=words):
        predict(tmp_path, folder / "run", *(f"--data={name}={file}" for name, file in given.items()))
    assert not (tmp_path / "failed").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "a run's folder holds no tables: add --data bank=FILE --data shop=FILE"),
        (["run", "--data", "bnk=next.csv"], "did you mean 'bank'"),
        (["run", "--data", "next.csv"], "write PARTY=FILE"),
        (["job.toml"], "give the folder of a run, or a job file and the model's folder"),
        (["."], "holds no job.toml|run` leaves beside the model"),
        (["run", "--file", "bank.toml"], "name the party with --as"),
        (["run", "--as", "bank", "--data", "a.csv", "--data", "b.csv"], "--data is one file"),
    ],
)
def test_mistakes_of_the_command_are_told_with_the_cure(
    arguments: list[str], words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder if arguments != ["."] else folder / "run" / "ledgers")
    with pytest.raises(sv.InputError, match=words):
        predict(folder, *arguments)


def test_customers_that_nobody_shares_are_told(folder: Path, tmp_path: Path) -> None:
    shop = tmp_path / "shop.csv"
    shop.write_text((folder / "shop.csv").read_text().replace("\nc", "\nk"))
    with pytest.raises(sv.NoCommonRows, match="do all use the same identifiers"):
        predict(tmp_path, folder / "run", "--data", f"bank={folder / 'bank.csv'}", "--data", f"shop={shop}")


def test_a_party_that_predicts_alone_names_its_file_and_reads_its_labels(folder: Path, tmp_path: Path) -> None:
    assert read_own_table("bank", ["next.csv"]) == read_own_table("bank", ["bank=next.csv"]) == Path("next.csv")
    assert split_data_options(["bank=a=b.csv"]) == {"bank": Path("a=b.csv")}
    section = TableSection(file="bank.csv", id="client", label="good", weight="worth", features=("income",))
    there = read_own_labels(section, None, folder, "bank")
    assert there is not None
    assert (there.classes, len(there.columns), there.weight is None) == (("no", "yes"), 0, False)
    bank, _ = write_tables(tmp_path, "-next", seed=1, towns=["Rome"], label=False)
    assert read_own_labels(section, bank, folder, "bank") is None
