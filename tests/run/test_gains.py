"""What joining was worth: the interval is that of resampled rows, and a report's first tile says it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from support.helpers import make_parties

import securevfl as sv
from securevfl.report import render_report
from securevfl.report.joined import joined_sentence
from securevfl.report.record import GainRecord
from securevfl.run.gains import average_gains, measure_gain, row_influences
from securevfl.training import Trained
from securevfl.training.metrics import measure_r2, roc_curve

JOB = sv.Job(algorithm=sv.SplitNN(hidden=8, lr=0.05), protection=sv.Plain(), epochs=8, batch_size=64)


def _scored(metric: str, rows: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores with some noise, and labels."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(rows, 3))
    blurred = truth + noise * np.random.default_rng(seed).normal(size=truth.shape)
    if metric == "r2":
        return blurred[:, :1], truth[:, 0]
    p = np.exp(blurred) / np.exp(blurred).sum(axis=1, keepdims=True)
    return p, truth.argmax(axis=1)


def _measure(metric: str, scores: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> float:
    if metric == "r2":
        return measure_r2(labels, scores[:, 0], weight)
    if metric == "accuracy":
        return float(np.average(scores.argmax(axis=1) == labels, weights=weight))
    curves = [roc_curve(labels == k, scores[:, k], weight) for k in range(scores.shape[1])]
    return float(np.mean([curve.auc for curve in curves if curve is not None]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", ["auc", "accuracy", "r2"])
def test_the_interval_is_that_of_resampled_rows(metric: str, weighted: bool) -> None:
    rows, rng = 400, np.random.default_rng(5)
    (mine, labels), (other, _) = _scored(metric, rows, 0.6, 1), _scored(metric, rows, 1.2, 2)
    weight = rng.uniform(0.5, 1.5, rows) if weighted else None
    half = measure_gain(
        metric, Trained(scores=mine, labels=labels, weight=weight), Trained(scores=other, labels=labels, weight=weight)
    )
    assert half is not None
    drawn = []
    for _ in range(400):
        some = rng.integers(0, rows, rows)
        each = None if weight is None else weight[some]
        drawn.append(
            _measure(metric, mine[some], labels[some], each) - _measure(metric, other[some], labels[some], each)
        )
    assert half / 1.96 == pytest.approx(np.std(drawn), rel=0.15)


def test_the_area_s_variance_is_delong_s() -> None:
    """By their equations, over all pairs of rows, with ties."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 60)
    score = np.round(rng.random(60) + 0.3 * labels, 1)
    found = row_influences("auc", np.column_stack([1 - score, score]), labels)
    assert found is not None
    pairs = (score[labels == 1][:, None] > score[labels == 0]) + 0.5 * (
        score[labels == 1][:, None] == score[labels == 0]
    )
    assert pairs.mean() == pytest.approx(roc_auc_score(labels, score))
    by_positive, by_negative = pairs.mean(axis=1), pairs.mean(axis=0)
    wanted = by_positive.var(ddof=1) / len(by_positive) + by_negative.var(ddof=1) / len(by_negative)
    assert (found**2).sum() == pytest.approx(wanted)


def test_scores_that_agree_leave_no_width_and_missing_ones_no_interval() -> None:
    scores, labels = _scored("auc", 50, 1.0, 1)
    one, none = Trained(scores=scores, labels=labels), Trained()
    assert measure_gain("auc", one, one) == 0
    assert measure_gain("auc", one, none) is None
    assert measure_gain("auc", one, Trained(scores=scores, labels=np.zeros(50, int))) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_the_interval_holds_where_a_class_has_few_rows(weighted: bool) -> None:
    """Three rows of a class: divided by their number instead of one less, their spread is a third too small."""
    rng, rows, covered, spread = np.random.default_rng(3), 33, 0, []
    labels = np.repeat([1, 0], [3, 30])
    for _ in range(1500):
        shared = rng.normal(size=rows) + labels
        weight = rng.uniform(0.5, 1.5, rows) if weighted else None
        runs = []
        for _ in range(2):
            score = shared + 0.7 * rng.normal(size=rows)
            runs.append(Trained(scores=np.column_stack([-score, score]), labels=labels, weight=weight))
        half = measure_gain("auc", runs[0], runs[1])
        difference = _area(runs[0]) - _area(runs[1])
        spread.append((difference**2, 0.0 if half is None else (half / 1.96) ** 2))
        covered += half is not None and abs(difference) <= half
    assert covered / 1500 > 0.91
    true, estimated = np.mean(spread, axis=0)
    assert estimated == pytest.approx(true, rel=0.12)


def _area(one: Trained) -> float:
    curve = roc_curve(one.labels == 1, one.scores[:, 1], one.weight)
    assert curve is not None
    return curve.auc


def test_rows_that_show_no_chance_give_no_interval() -> None:
    """A perfect ranking against none differs in every row by the same; one row of a class has no spread."""
    perfect, flat = np.array([0.1, 0.2, 0.8, 0.9]), np.full(4, 0.5)
    for labels in (np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])):
        mine, other = (Trained(scores=np.column_stack([1 - one, one]), labels=labels) for one in (perfect, flat))
        assert measure_gain("auc", mine, other) is None
    right, wrong = (np.array([[a, 1 - a]] * 4) for a in (0.9, 0.1))
    zeros = np.zeros(4, int)
    assert measure_gain("accuracy", Trained(scores=right, labels=zeros), Trained(scores=wrong, labels=zeros)) is None


def test_the_first_tile_says_what_joining_was_worth() -> None:
    result = sv.simulate(JOB, make_parties(rows=900), baselines=None)
    assert [run.key for run in result.record.runs] == ["alone", "alone_boosted", "pooled", "plain"]
    run = result.run("plain")
    gained = run.gained
    assert gained is not None
    best = max((result.run(key) for key in ("alone", "alone_boosted")), key=lambda one: one.test["auc"])
    assert gained.over == best.key
    assert gained.gain == pytest.approx(run.test["auc"] - best.test["auc"])
    assert gained.low is not None
    assert gained.high is not None
    assert 0 < gained.low < gained.gain < gained.high
    assert gained.rows == result.record.alignment.test
    tiles = render_report(result.record).partition('class="cards"')[2]
    first = tiles.partition("</div>")[0]
    assert f"<b>+{gained.gain:.3f} AUC</b><span>joined: over what you have</span>" in first
    assert f"+{gained.low:.3f} to +{gained.high:.3f}" in first
    assert joined_sentence(result.record).startswith(
        f"joined: +{gained.gain:.3f} AUC over what you have (95 % interval"
    )


def test_a_gain_within_chance_is_called_that() -> None:
    record = sv.simulate(JOB.replace(epochs=1), make_parties(rows=300), baselines=["alone"]).record
    gained = GainRecord(metric="auc", over="alone", gain=0.01, low=-0.02, high=0.04, rows=60)
    runs = [one if one.baseline else msgspec.structs.replace(one, gained=gained) for one in record.runs]
    assert "no difference is within it" in joined_sentence(msgspec.structs.replace(record, runs=runs))
    assert joined_sentence(msgspec.structs.replace(record, runs=record.runs[:1])) == ""
    bare = msgspec.structs.replace(gained, low=None, high=None)
    runs = [one if one.baseline else msgspec.structs.replace(one, gained=bare) for one in record.runs]
    assert "no interval: the test rows are too few" in joined_sentence(msgspec.structs.replace(record, runs=runs))


def test_a_usual_baseline_that_cannot_run_is_left_out_and_a_named_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise sv.InputError("boosted trees are not for this table")

    monkeypatch.setattr("securevfl.experiments.baselines.train_boosted", refuse)
    result = sv.simulate(JOB.replace(epochs=1), make_parties(rows=300), baselines=None)
    assert [run.key for run in result.record.runs] == ["alone", "pooled", "plain"]
    assert any("'alone_boosted' is left out: boosted trees are not" in note for note in result.run("plain").notes)
    with pytest.raises(sv.InputError, match="not for this table"):
        sv.simulate(JOB.replace(epochs=1), make_parties(rows=300), baselines=["alone_boosted"])


def test_folds_have_their_mean_gain() -> None:
    one = GainRecord(metric="auc", over="alone", gain=0.1, low=0.04, high=0.16, rows=60)
    two = msgspec.structs.replace(one, gain=0.2, low=0.12, high=0.28, rows=40)
    mean = average_gains([one, two])
    assert mean is not None
    assert (mean.gain, mean.rows) == (pytest.approx(0.15), 100)
    assert mean.high == pytest.approx(0.15 + 0.1 / 2)  # √(0.06² + 0.08²) / 2
    assert average_gains([one, None]) is None
    assert average_gains([one, msgspec.structs.replace(two, metric="accuracy")]) is None


def test_folds_with_different_best_baselines_have_a_mean_gain() -> None:
    one = GainRecord(metric="auc", over="alone", gain=0.1, low=0.04, high=0.16, rows=60)
    mean = average_gains([one, msgspec.structs.replace(one, over="alone_boosted", gain=0.2, low=0.12, high=0.28)])
    assert mean is not None
    assert mean.over == ""
    assert (mean.gain, mean.high) == (pytest.approx(0.15), pytest.approx(0.2))
    record = sv.simulate(JOB.replace(epochs=1), make_parties(rows=300), baselines=["alone"]).record
    runs = [run if run.baseline else msgspec.structs.replace(run, gained=mean) for run in record.runs]
    said = joined_sentence(msgspec.structs.replace(record, runs=runs))
    assert said.startswith("joined: +0.150 AUC over what you have (95 % interval +0.100 to +0.200")
    assert said.endswith("in each fold over the better one of two methods alone)")


def test_a_job_file_without_baselines_draws_the_usual_ones(tmp_path: Path) -> None:
    text = '[data]\nname = "breast_cancer"\n'
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    assert sv.read_job(tmp_path / "job.toml").baselines is None
    (tmp_path / "job.toml").write_text("baselines = []\n" + text, encoding="utf-8")
    assert sv.read_job(tmp_path / "job.toml").baselines == ()
