"""The evaluation of a run's test rows: every figure is scikit-learn's where it has one, or ten obvious lines."""

import msgspec
import numpy as np
import pytest
from sklearn import metrics

import securevfl as sv
from securevfl.report.record import Record
from securevfl.run.evaluation import evaluate_classes, evaluate_numbers
from securevfl.run.score_bins import population_stability


def _drawn(classes: int, rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    logits = rng.normal(size=(rows, classes)).round(1) + np.eye(classes)[labels]
    odds = np.exp(logits)
    return odds / odds.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_figures_of_classes_are_those_of_scikit_learn(classes: int, weighted: bool) -> None:
    scores, labels = _drawn(classes)
    weight = np.random.default_rng(1).uniform(0.1, 3, len(labels)) if weighted else None
    names = [f"c{k}" for k in range(classes)]
    found = evaluate_classes(scores, labels, names, weight=weight)
    given = scores.argmax(axis=1)
    same = {"sample_weight": weight}
    expected = {
        "accuracy": metrics.accuracy_score(labels, given, **same),
        "balanced_accuracy": metrics.balanced_accuracy_score(labels, given, **same),
        "macro_f1": metrics.f1_score(labels, given, average="macro", **same),
        "macro_precision": metrics.precision_score(labels, given, average="macro", **same),
        "macro_recall": metrics.recall_score(labels, given, average="macro", **same),
        "log_loss": metrics.log_loss(labels, scores, **same),
    }
    if classes == 2:
        expected["auc"] = metrics.roc_auc_score(labels, scores[:, 1], **same)
        expected["brier"] = metrics.brier_score_loss(labels, scores[:, 1], **same)
    else:
        each = [metrics.roc_auc_score(labels == k, scores[:, k], **same) for k in range(classes)]
        expected["auc"] = float(np.mean(each))
        assert [one.auc for one in found.per_class] == pytest.approx(each)
    assert {name: found.metrics[name] for name in expected} == pytest.approx(expected)
    assert found.metrics["gini"] == pytest.approx(2 * expected["auc"] - 1)
    assert found.confusion == metrics.confusion_matrix(labels, given).tolist()
    assert [one.f1 for one in found.per_class] == pytest.approx(metrics.f1_score(labels, given, average=None, **same))
    assert list(found.roc) == list(found.lift) == (names[-1:] if classes == 2 else names)


def test_reliability_is_scikit_learn_s_calibration_curve() -> None:
    from sklearn.calibration import calibration_curve

    scores, labels = _drawn(2)
    found = evaluate_classes(scores, labels, ["no", "yes"]).reliability
    observed, confidence = calibration_curve(labels, scores[:, 1], n_bins=10, strategy="quantile")
    assert [one.observed for one in found] == pytest.approx(observed.tolist())
    assert [one.confidence for one in found] == pytest.approx(confidence.tolist())
    assert sum(one.rows for one in found) == len(labels)


def test_lift_of_the_first_tenth_and_of_ties() -> None:
    labels = np.array([1] * 20 + [0] * 180)
    sure = np.linspace(1, 0, 200)
    first, *_, last = evaluate_classes(np.stack([1 - sure, sure], 1), labels, ["a", "b"]).lift["b"]
    assert (first.rows, first.hits, first.gain, first.lift) == (20, 20, 1.0, 10.0)
    assert (last.share, last.gain, last.lift) == (1.0, 1.0, 1.0)
    same = np.full(200, 0.5)
    for order in (labels, labels[::-1]):  # all scores are one: no order of rows may look like a gain
        tied = evaluate_classes(np.stack([same, same], 1), order, ["a", "b"]).lift["b"]
        assert [one.lift for one in tied] == pytest.approx([1.0] * 10)


def test_a_class_without_test_rows_has_no_auc_and_no_average_of_it() -> None:
    scores, labels = _drawn(3)
    keep = labels != 1
    found = evaluate_classes(scores[keep], labels[keep], ["a", "b", "c"])
    assert found.per_class[1].auc is None
    assert found.per_class[1].rows == 0
    assert "auc" not in found.metrics
    assert "b" not in found.roc
    assert "b" not in found.lift
    assert found.metrics["balanced_accuracy"] == pytest.approx(
        np.mean([(scores[labels == k].argmax(1) == k).mean() for k in (0, 2)])
    )


def test_population_stability_is_zero_where_nothing_moved_and_the_textbook_s_sum_elsewhere() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=1000), rng.normal(0.5, size=1000)
    assert population_stability(before, before)[0] == 0
    value, bins = population_stability(before, after)
    edges = np.quantile(before, np.linspace(0, 1, 11))
    edges[0], edges[-1] = -np.inf, np.inf
    e, a = (np.histogram(x, edges)[0] / len(x) for x in (before, after))
    assert value == pytest.approx(((a - e) * np.log(a / e)).sum())
    assert sum(one.expected for one in bins) == pytest.approx(1)
    assert sum(one.actual for one in bins) == pytest.approx(1)
    assert population_stability(np.ones(60), np.ones(60))[0] == 0  # all scores are one


def test_figures_of_numbers_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    y = rng.gamma(2, 100, 200)
    predicted, weight = y + rng.normal(0, 30, 200), rng.uniform(0, 2, 200)
    found = evaluate_numbers(predicted, y, weight=weight, expected=predicted[:60])
    assert found.metrics == pytest.approx(
        {
            "rmse": metrics.root_mean_squared_error(y, predicted, sample_weight=weight),
            "mae": metrics.mean_absolute_error(y, predicted, sample_weight=weight),
            "r2": metrics.r2_score(y, predicted, sample_weight=weight),
            "bias": np.average(predicted - y, weights=weight),
        }
    )
    assert [one.rows for one in found.residuals] == [20] * 10
    assert found.residuals[0].high <= found.residuals[1].low
    assert found.psi is not None


def test_a_run_has_its_evaluation_in_the_result_and_in_what_is_saved(tmp_path) -> None:
    parties = sv.datasets.breast_cancer()
    job = sv.Job(protection=sv.Plain(), epochs=2, valid=0.2)
    result = sv.simulate(job, parties, baselines=("alone",))
    found = result.evaluation
    assert found.classes == ["malignant", "benign"]
    assert found.rows == len(result.test_ids) == sum(map(sum, found.confusion))
    assert found.metrics["auc"] == pytest.approx(result.run("plain").test["auc"])
    assert found.metrics["log_loss"] == pytest.approx(result.run("plain").test["log_loss"])
    assert result.run("alone").evaluation is not None
    assert found.psi is not None
    result.report(tmp_path)
    read = Record.read(tmp_path / "metrics.json")
    assert msgspec.to_builtins(read.runs[-1].evaluation) == msgspec.to_builtins(found)
