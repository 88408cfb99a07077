"""The page speaks of the job's own target, classes and columns, and of nothing that its writer may not show."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.cli import main
from securevfl.report import Record, render_report, render_text
from securevfl.report.chart import Chart, ChartCurve, chart_svg
from securevfl.report.party_diagrams import draw_flow, draw_overlap, list_holdings
from securevfl.report.price_picture import make_price_picture
from securevfl.report.quality import choosing_metric, make_pictures
from securevfl.report.runs_page import group_alike_runs, render_runs, write_runs
from securevfl.report.runs_table import runs_table
from securevfl.report.svg_shapes import estimate_width

EVIL = '"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def binary() -> Record:
    people = make_parties(rows=200)
    people = sv.Parties.of(replace(people["bank"], label_name="subscribes", classes=("no", "yes")), *people.passive)
    job = sv.Job(protection=sv.Plain(), epochs=2, batch_size=64)
    return sv.simulate(job, people, baselines=("alone",), title="Who subscribes?").record


@pytest.fixture(scope="module")
def number() -> Record:
    people = make_parties(rows=200)
    amounts = np.random.default_rng(0).normal(size=people["bank"].rows)
    people = sv.Parties.of(replace(people["bank"], label=amounts, label_name="claim", classes=()), *people.passive)
    return sv.simulate(sv.Job(protection=sv.Plain(), task="regression", epochs=2, batch_size=64), people).record


def _titles(record: Record) -> list[str]:
    return [one.title for one in make_pictures(record, record.runs[-1])]


def test_words_are_of_the_target_and_its_classes_whatever_the_data(binary: Record, number: Record) -> None:
    page = render_report(binary)
    assert "<h1>Who subscribes?</h1>" in page
    assert "Predicts subscribes (no or yes)." in page
    assert "How well each run ranks yes above no" in page
    for found in (page, render_report(number)):
        assert not re.search("client|defaulting|paying", found)
    assert "How near each run comes to claim" in render_report(number)
    assert "AUC" not in render_report(number).partition("What the metrics mean")[0].partition("What was gained")[2]


def test_each_task_has_its_pictures(binary: Record, number: Record) -> None:
    assert _titles(binary)[:4] == ["ROC of yes", "Precision and recall of yes", "Lift of yes", "Calibration"]
    assert _titles(number)[:3] == ["Predicted against true", "Residuals", "Error by tenth"]
    assert choosing_metric(binary.runs[-1]) == "auc"
    assert choosing_metric(number.runs[-1]) == "rmse"
    for one in make_pictures(binary, binary.runs[-1]):
        ET.fromstring(one.svg)  # noqa: S314 - made by ourselves


def test_the_marked_epoch_is_the_one_that_was_kept(binary: Record) -> None:
    run = binary.runs[-1]
    picture = next(one for one in make_pictures(binary, run) if one.title == "What chose the checkpoint")
    assert f"marked: epoch {run.best_epoch}" in picture.says
    best = max(run.epochs, key=lambda epoch: epoch.valid["auc"])
    assert best.epoch == run.best_epoch
    last = msgspec.structs.replace(binary, job={**binary.job, "keep": "last"})
    assert "What chose the checkpoint" not in _titles(last)


def test_a_party_s_own_report_names_no_column_of_another(binary: Record) -> None:
    assert all(one.columns for one in list_holdings(binary))
    own = msgspec.structs.replace(binary, known_to="bank")
    shown = {one.name: one for one in list_holdings(own)}
    assert shown["bank"].columns
    theirs = next(party for party in binary.parties if party.name == "shop1")
    assert shown["shop1"].columns == ()
    assert shown["shop1"].count == len(theirs.columns) > 0
    hidden = [msgspec.structs.replace(p, columns=[f"{p.name}-secret-{c}" for c in p.columns]) for p in binary.parties]
    page = render_report(msgspec.structs.replace(own, parties=hidden))
    assert "bank-secret-" in page
    assert "shop1-secret-" not in page


def test_a_link_has_a_shut_lock_only_where_every_message_was_protected(binary: Record) -> None:
    run = binary.runs[-1]
    opened = draw_flow(binary, run)
    sealed = [msgspec.structs.replace(line, protected=True) for line in run.receipt]
    shut = draw_flow(binary, msgspec.structs.replace(run, receipt=sealed))
    assert opened is not None
    assert shut is not None
    assert opened.count("V-4.5") > 0
    assert shut.count("V-4.5") == 0
    first = msgspec.structs.replace(sealed[0], protected=False)
    mixed = draw_flow(binary, msgspec.structs.replace(run, receipt=[first, *sealed[1:]]))
    assert mixed is not None
    assert mixed.count("V-4.5") == 1
    assert f"{binary.alignment.common:,} common rows" in str(draw_overlap(binary))


def test_links_between_parties_that_are_not_active_are_drawn(binary: Record) -> None:
    """On secret shares most bytes go there; a coordinator without data has a box, too."""
    run, line = binary.runs[-1], binary.runs[-1].receipt[0]
    ends = [("shop1", "helper", 3_000_000), ("helper", "shop1", 5_000_000)]
    more = [msgspec.structs.replace(line, sender=a, receiver=b, bytes=n, protected=True) for a, b, n in ends]
    drawn = draw_flow(binary, msgspec.structs.replace(run, receipt=[*run.receipt, *more]))
    assert drawn is not None
    assert "shop1 to helper: 3 MB; helper to shop1: 5 MB" in drawn
    assert "no data" in drawn
    assert str(drawn).count('<path d="M357') == 1 + str(draw_flow(binary, run)).count('<path d="M357')
    alone = [one for one in run.receipt if "bank" in (one.sender, one.receiver)]
    assert "M357" not in str(draw_flow(binary, msgspec.structs.replace(run, receipt=alone)))


def test_hostile_names_of_parties_columns_classes_and_targets_are_escaped(binary: Record) -> None:
    text = binary.to_json().decode()
    for name in ("shop1", "subscribes", "yes", binary.parties[0].columns[0], "Who subscribes?"):
        text = text.replace(f'"{name}"', msgspec.json.encode(EVIL + name).decode())
    evil = msgspec.json.decode(text, type=Record)
    assert evil.runs[-1].evaluation is not None
    assert evil.runs[-1].evaluation.target.startswith(EVIL)
    page = render_report(evil)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for svg in re.findall(r'<svg class="drawn".*?</svg>', page, flags=re.DOTALL):
        ET.fromstring(svg)  # noqa: S314 - made by ourselves


def test_quality_against_epsilon_needs_two_of_them(binary: Record) -> None:
    assert make_price_picture(binary) is None
    run = binary.runs[-1]
    from securevfl.report.record import EpsilonRecord

    noisy = [
        msgspec.structs.replace(
            run,
            key=f"dp{e}",
            deviation={"auc": 0.01},
            epsilon=[
                EpsilonRecord(
                    party="bank",
                    what="z",
                    epsilon_rdp=e,
                    epsilon_prv=e,
                    delta=1e-5,
                    releases=1,
                    noise_multiplier=1.0,
                    clip=1.0,
                )
            ],
        )
        for e in (1.0, 8.0)
    ]
    picture = make_price_picture(msgspec.structs.replace(binary, runs=[*binary.runs, *noisy]))
    assert picture is not None
    assert "one standard deviation" in picture.says
    assert picture.svg.count("<circle") == 2
    near = [msgspec.structs.replace(run.epsilon[0], epsilon_rdp=8 + place / 1e5) for place, run in enumerate(noisy)]
    unlike = [
        msgspec.structs.replace(run, title=f"SplitNN, DP on {what}, ε = 8", epsilon=[epsilon])
        for run, what, epsilon in zip(noisy, ("labels", "features"), near, strict=True)
    ]
    other = make_price_picture(msgspec.structs.replace(binary, runs=[*binary.runs, *unlike]))
    assert other is not None
    assert "blue: SplitNN, DP on labels, orange: SplitNN, DP on features" in other.says
    assert other.svg.count(">8</text>") == 1  # one mark for budgets that are all but the same
    joined = [path for path in re.findall(r'<path d="([^"]*)"', other.svg) if "L" in path]
    assert len(joined) < len([path for path in re.findall(r'<path d="([^"]*)"', picture.svg) if "L" in path])


def test_a_chart_of_one_value_has_room_around_it() -> None:
    svg = chart_svg(Chart(curves=[ChartCurve(points=[(1.0, 5.0), (2.0, 5.0)])], x="epoch", y="AUC", label="flat"))
    assert "nan" not in svg
    ET.fromstring(svg)  # noqa: S314 - made by ourselves


@pytest.mark.parametrize("scale", [1.0, -0.02, -1.234567e-3, -1e6])
def test_the_title_of_the_vertical_axis_stands_left_of_all_marks(scale: float) -> None:
    curve = ChartCurve(points=[(0.0, -scale), (1.0, scale)])
    svg = chart_svg(Chart(curves=[curve], x="bin", y="points of the probability", label="shape"))
    root = ET.fromstring(svg)  # noqa: S314 - made by ourselves
    texts = [one for one in root.iter() if one.tag.endswith("text")]
    (title,) = [one for one in texts if "rotate(-90)" in one.get("transform", "")]
    baseline = float(title.get("transform", "").split("(")[1].split()[0])
    marks = [one for one in texts if one.get("text-anchor") == "end"]
    assert len(marks) >= 3
    for mark in marks:
        begins = float(mark.get("x", "nan")) - estimate_width(mark.text or "")
        assert begins >= baseline + 5, f"{mark.text} begins at {begins}"  # descenders reach some 4 units beyond


def test_names_of_the_first_and_the_last_bin_stay_inside_the_picture() -> None:
    bins = ((0.0, "up to 15000"), (1.0, "other levels than these"))
    curve = ChartCurve(points=[(0.0, 0.1), (1.0, 0.2)])
    root = ET.fromstring(chart_svg(Chart(curves=[curve], x="bin", y="adds", label="shape", x_marks=bins)))  # noqa: S314
    width = float(root.get("viewBox", "").split()[2])
    for name in (name for _, name in bins):
        (text,) = [one for one in root.iter() if one.text == name]
        middle, half = float(text.get("x", "nan")), estimate_width(name) / 2
        assert middle - half >= 0
        assert middle + half <= width


def test_runs_compares_folders_and_names_each_that_is_none(
    binary: Record, number: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for name, record in (("a", binary), ("b", number)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.json").write_bytes(record.to_json())
        folders.append(str(tmp_path / name))
    with pytest.raises(SystemExit) as ended:
        main(["runs", *folders, "--json"])
    assert not ended.value.code
    rows = json.loads(capsys.readouterr().out)
    assert [row["folder"] for row in rows] == [folders[0]] * len(binary.runs) + [folders[1]] * len(number.runs)
    assert [row["test"] for row in rows] == [run.test for run in (*binary.runs, *number.runs)]
    text = render_text(runs_table({"a": binary, "b": number}), width=140)
    assert f"{binary.runs[-1].test['auc']:.4f}" in text
    assert "RMSE" in text
    (tmp_path / "sweep").mkdir()
    with pytest.raises(SystemExit) as ended:  # as `runs/*` names them
        main(["runs", folders[0], str(tmp_path / "sweep"), "--json"])
    assert not ended.value.code
    found = capsys.readouterr()
    assert {row["folder"] for row in json.loads(found.out)} == {folders[0]}
    assert f"without a finished run: {tmp_path / 'sweep'}" in found.err.replace("\n", "")
    for wrong, words in (
        (["none"], "does not exist"),
        (["none", "a"], "does not exist"),
        (["sweep"], "no metrics.json in"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["runs", *(str(tmp_path / one) for one in wrong)])
        assert ended.value.code == 2
        assert words in capsys.readouterr().err


def test_the_page_of_runs_puts_seeds_together(binary: Record, number: Record, tmp_path: Path) -> None:
    """Three seeds of one job are one line, mean and deviation; another job, another target and baselines are others."""
    records = {}
    for seed in range(3):
        runs = [msgspec.structs.replace(run, test={**run.test, "auc": 0.7 + 0.02 * seed}) for run in binary.runs]
        job = json.loads(json.dumps(binary.job, default=str))
        records[f"seed {seed}"] = msgspec.structs.replace(binary, job=_seeded(job, seed), runs=runs)
    records["<script>"] = number
    groups = group_alike_runs(records)
    assert len(groups) == len(binary.runs) + len(number.runs)
    first = groups[0]
    assert list(first.runs) == ["seed 0", "seed 1", "seed 2"]
    assert first.metrics["auc"] == pytest.approx((0.7, 0.72, 0.74))
    text = render_runs(records)
    assert "0.7200" in text
    assert "± 0.0200" in text
    assert "<script>" not in text
    other = {
        **records,
        "seed 9": msgspec.structs.replace(records["seed 0"], job={**records["seed 0"].job, "epochs": 999}),
    }
    assert len(group_alike_runs(other)) == len(groups) + len(binary.runs)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)  # noqa: S314 - made by ourselves
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "report.html").write_text("")
    page = write_runs({str(tmp_path / "a"): binary}, tmp_path / "pages" / "runs.html")
    assert 'href="../a/report.html"' in page.read_text()


def _seeded(value: Any, seed: int) -> Any:
    if isinstance(value, dict):
        return {key: seed if key == "seed" else _seeded(one, seed) for key, one in value.items()}
    return value
