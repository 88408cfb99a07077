"""Metrics in numpy against scikit-learn's, on ties, weights, empty labels and rows of weight zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from securevfl.training.metrics import PrecisionRecall, count_confusion, measure_labels, measure_r2, roc_curve

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(2, 60), st.integers(1, 20), st.sampled_from(["none", "whole", "some zero"]))
def test_the_curve_is_scikit_learn_s_point_by_point(seed: int, rows: int, values: int, weights: str) -> None:
    rng = np.random.default_rng(seed)
    hits, scores = rng.integers(0, 2, rows) == 1, rng.integers(-values, values, rows) / 7
    weight = {
        "none": None,
        "whole": rng.uniform(0.1, 3, rows),
        "some zero": rng.uniform(0.1, 3, rows) * rng.integers(0, 2, rows),
    }[weights]
    found = roc_curve(hits, scores, weight)
    counted = hits if weight is None else hits[weight != 0]
    if not counted.any() or counted.all():
        assert found is None
        return
    assert found is not None
    false_rate, true_rate, _ = metrics.roc_curve(hits, scores, sample_weight=weight)
    np.testing.assert_array_equal(found.false_rate, false_rate)
    np.testing.assert_array_equal(found.true_rate, true_rate)
    assert found.auc == metrics.roc_auc_score(hits, scores, sample_weight=weight)
    assert found.ks == (true_rate - false_rate).max()


@given(SEEDS, st.integers(1, 60), st.integers(2, 5), st.booleans())
def test_counts_of_classes_are_scikit_learn_s(seed: int, rows: int, count: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    labels, given_ = rng.integers(0, count, rows), rng.integers(0, count, rows)
    weight = rng.uniform(0.1, 3, rows) if weighted else None
    found = PrecisionRecall.from_classes(labels, given_, count, weight)
    expected = metrics.precision_recall_fscore_support(
        labels, given_, labels=list(range(count)), zero_division=0.0, sample_weight=weight
    )
    for mine, theirs in zip((found.precision, found.recall, found.f1), expected, strict=False):
        np.testing.assert_allclose(mine, theirs, rtol=1e-13 if weighted else 0)
    matrix = metrics.confusion_matrix(labels, given_, labels=list(range(count)))
    assert count_confusion(labels, given_, count).tolist() == matrix.tolist()


@given(SEEDS, st.integers(1, 40), st.integers(2, 5), st.booleans())
def test_averages_over_labels_are_scikit_learn_s(seed: int, rows: int, count: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    labels, given_ = rng.integers(0, 2, (rows, count)), rng.integers(0, 2, (rows, count))
    weight = rng.uniform(0.1, 3, rows) if weighted else None
    found = measure_labels(labels, given_, weight)
    for average in ("macro", "micro"):
        figures = metrics.precision_recall_fscore_support(
            labels, given_, average=average, zero_division=0.0, sample_weight=weight
        )[:3]
        mine = [found[f"{average}_{name}"] for name in ("precision", "recall", "f1")]
        assert mine == pytest.approx(figures, rel=1e-13)


@given(SEEDS, st.integers(2, 40), st.booleans())
def test_the_determination_is_scikit_learn_s(seed: int, rows: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    y, predicted = rng.normal(size=rows), rng.normal(size=rows)
    weight = rng.uniform(0.1, 3, rows) if weighted else None
    assert measure_r2(y, predicted, weight) == pytest.approx(
        metrics.r2_score(y, predicted, sample_weight=weight), rel=1e-12, abs=1e-12
    )
