"""What a notebook shows of parties, results, models and predictions: short, escaped, without anybody's numbers."""

from __future__ import annotations

import io
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from rich.table import Table

import securevfl as sv
from securevfl.party_context import Observer
from securevfl.report import progress_line, table_html
from securevfl.report.progress_line import ProgressLine

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def parties() -> sv.Parties:
    return sv.datasets.breast_cancer()


@pytest.fixture(scope="module")
def result(parties: sv.Parties) -> sv.Result:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,)), protection=sv.Plain(), epochs=2, valid=0.2)
    return sv.simulate(job, parties, baselines=("alone",))


@pytest.fixture(autouse=True)
def _no_screen() -> Iterator[None]:
    mpl.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_a_notebook_shows_little_and_no_row(parties: sv.Parties, result: sv.Result) -> None:
    prediction = sv.predict(result.model(), parties)
    shown = [result, result.record, result.run("plain"), result.evaluation, result.model(), prediction, parties]
    shown.append(result.model().part(parties.active.name))
    ids = set(map(str, result.test_ids))
    for thing in shown:
        text = repr(thing)
        assert len(text) < 1000, type(thing)
        assert "tensor(" not in text
        assert not ids & set(re.findall(r"[\w-]+", text)) - {"2"}, type(thing)
    assert f"auc {result.run('plain').test['auc']:.4g}" in repr(result)
    assert "leak: " in repr(result)
    for html in (result._repr_html_(), result.receipt()._repr_html_(), result.table()._repr_html_()):
        assert "<td" in html
        assert len(html) < 20_000


def test_names_of_others_do_not_become_markup(parties: sv.Parties) -> None:
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    html = table_html(table)
    assert html.count("&lt;script&gt;") == 4
    people = sv.Parties(dict(parties), description=HOSTILE)
    for text in (html, people._repr_html_()):
        assert "<script" not in text


def test_a_receipt_is_a_text_that_shows_itself(result: sv.Result) -> None:
    receipt = result.receipt()
    assert receipt.startswith("Protection receipt")
    assert repr(receipt) == receipt.rstrip()
    again = pickle.loads(pickle.dumps(receipt))  # noqa: S301 - its own
    assert (again, again._repr_html_()) == (receipt, receipt._repr_html_())


def test_one_party_s_part_is_what_that_party_saves(result: sv.Result, tmp_path, parties: sv.Parties) -> None:
    from securevfl.run.model_parts import ModelPart

    model, name = result.model(), parties.active.name
    part = model.part(name)
    saved = ModelPart.load(model.save(tmp_path), name, model.job)
    assert (part.run, part.digest, part.party) == (saved.run, saved.digest, saved.party)
    assert part.tree["parts"].keys() == saved.tree["parts"].keys()
    with pytest.raises(sv.UnknownNameError, match="nobody"):
        model.part("nobody")


def test_frames_hold_the_figures_of_the_record(result: sv.Result, parties: sv.Parties) -> None:
    runs = result.to_pandas()
    assert list(runs.index) == ["alone", "plain"]
    assert runs.loc["plain", "auc"] == result.run("plain").test["auc"]
    epochs = result.to_pandas("epochs")
    assert len(epochs) == sum(len(run.epochs) for run in result.record.runs)
    scores = result.to_pandas("scores")
    assert list(scores.columns) == ["alone malignant", "alone benign", "plain malignant", "plain benign"]
    assert list(scores.index) == list(result.test_ids)
    assert np.array_equal(scores.to_numpy()[:, 2:], result.scores["plain"])
    prediction = sv.predict(result.model(), parties)
    found = prediction.to_pandas()
    assert list(found.columns[:2]) == ["malignant", "benign"]
    assert np.array_equal(found.iloc[:, :2].to_numpy(), prediction.probabilities)
    with pytest.raises(sv.InputError, match="'rows'; give"):
        result.to_pandas("rows")


def test_plots_draw_the_evaluation(result: sv.Result) -> None:
    found = result.evaluation
    axes = result.plot.roc()
    curve = axes.get_lines()[-1].get_xydata()
    assert np.allclose(curve, found.roc["benign"])
    assert f"{found.metrics['auc']:.3f}" in axes.get_legend().get_texts()[-1].get_text()
    assert len(axes.get_lines()) == 3  # chance, alone, plain
    assert result.plot.roc("plain", ax=axes) is axes
    assert len(axes.get_lines()) == 5
    points = result.plot.calibration("plain").containers[0].lines[0].get_xydata()
    assert np.allclose(points, [(one.confidence, one.observed) for one in found.reliability])
    points = result.plot.lift("plain").get_lines()[-1].get_xydata()
    assert np.allclose(points[-1], (1, 1))
    losses = [epoch.train_loss for epoch in result.run("plain").epochs]
    assert list(result.plot.loss("plain").get_lines()[0].get_ydata()) == losses
    texts = [one.get_text() for one in result.plot.confusion().texts]
    assert texts == [str(count) for row in found.confusion for count in row]
    with pytest.raises(sv.UnknownNameError, match="plain"):
        result.plot.roc("palin")


def test_what_has_no_classes_has_no_curve() -> None:
    empty = SimpleNamespace(runs=[])
    from securevfl.report import Plots

    with pytest.raises(sv.InputError, match="no run has roc"):
        Plots(SimpleNamespace(runs=[SimpleNamespace(key="a", evaluation=None, epochs=[])])).roc()
    with pytest.raises(sv.UnknownNameError):
        Plots(empty).loss("a")


def test_the_line_is_written_where_somebody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(progress_line()) is Observer
    kernel = ModuleType("IPython")
    kernel.get_ipython = type("ZMQInteractiveShell", (), {})  # an instance is what the shell is
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert isinstance(progress_line(), ProgressLine)


def test_the_line_says_how_far_and_is_overwritten() -> None:
    out = io.StringIO()
    line = ProgressLine(out)
    line.run("Split\nNN")
    line.phase("training")
    for done in range(1, 1001):
        line.step(1, done, 1000)
    line.epoch(1, 0.5, {"auc": 0.75})
    line.end()
    line.end()
    text = out.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text.count("\r") <= 24
    assert text.splitlines()[-1].rstrip().endswith("epoch 1, AUC 0.750")
    assert f"[{'#' * 20}] epoch 1" in text


def test_the_page_s_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/notebooks.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M):
        exec(block, names)  # noqa: S102 - the page that users read
    captured = capsys.readouterr()
    assert captured.out == f"{names['parties'].active.name} True\n"
    assert not captured.err
    assert list(names["runs"].index) == [run.key for run in names["result"].record.runs]
    assert len(names["prediction"]) == names["result"].record.alignment.common
