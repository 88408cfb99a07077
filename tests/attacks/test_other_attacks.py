"""Attacks on attributes, columns, membership, order and saved files: each finds a planted secret and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from support.attack_views import ROWS, TRAIN, classes, linear, passive, view

from securevfl.attacks import (
    AttackScore,
    Observation,
    Observations,
    Transcript,
    Truth,
    feature_inference,
    label_inference,
    run_leaks,
)
from securevfl.attacks.measure import auc, draw_known, r_squared, score_ranking
from securevfl.attacks.suite import FULL, QUICK, negative_control, run_suite
from securevfl.privacy import Finding
from securevfl.privacy.attack_verdict import describe_contradiction, measures_as_leak, worst_claims


def test_an_attribute_follows_from_looks_and_not_from_noise() -> None:
    seen, x = linear()
    yes = (x[:, 0] > 0).astype(np.int64)
    known = draw_known(seen.train, yes, 72, 0)
    found = feature_inference.infer_attribute(seen, "shop", known).exclude_rows(known.rows)
    assert score_ranking(found, yes, 2)[0] > 0.9
    blind = feature_inference.infer_attribute(seen.replace_with_noise(0), "shop", known).exclude_rows(known.rows)
    own = feature_inference.infer_attribute_baseline(seen, seen.train, known).exclude_rows(known.rows)
    for nothing in (blind, own):
        value, error = score_ranking(nothing, yes, 2)
        assert abs(value - 0.5) <= 3 * error


def test_an_attribute_follows_from_predictions_that_depend_on_it() -> None:
    seen, x = linear()
    test = np.arange(ROWS)
    p = 1 / (1 + np.exp(-3 * x[:, 1]))
    told = replace(seen, test=test, scores=np.column_stack([1 - p, p]))
    yes = (x[:, 1] > 0).astype(np.int64)
    known = draw_known(test, yes, 72, 0)
    found = feature_inference.infer_attribute_from_predictions(told, known)
    assert found is not None
    assert score_ranking(found.exclude_rows(known.rows), yes, 2)[0] > 0.95
    assert feature_inference.infer_attribute_from_predictions(seen, known) is None


def test_attributes_are_answers_that_both_occur() -> None:
    draw = np.random.default_rng(0)
    x = np.column_stack([np.ones(100), draw.integers(0, 2, 100), draw.normal(size=100), np.arange(100) == 3])
    found = feature_inference.binary_columns(x, most=5)
    assert set(found) == {1, 2}
    assert np.array_equal(found[1], x[:, 1].astype(int))
    assert found[2].mean() == pytest.approx(0.5, abs=0.02)


def test_columns_of_others_follow_from_the_size_of_a_gradient() -> None:
    """p depends on the bank's column: the gradient's length tells it where labels are known."""
    y, draw = classes(), np.random.default_rng(1)
    secret = draw.normal(size=(ROWS, 1))
    p = 1 / (1 + np.exp(-2 * secret[:, 0]))
    looks = [
        Observation(np.arange(TRAIN), (p - y)[:TRAIN, None] * np.array([1.0, -0.5]), epoch) for epoch in range(1, 4)
    ]
    seen = view(
        "shop", observations={("gradient at the cut", "shop"): Observations(looks)}, x=draw.normal(size=(ROWS, 2))
    )
    known = draw_known(seen.train, secret, 150, 0)
    found = feature_inference.infer_columns_from_gradients(seen, y, known)
    assert found is not None
    rest = found.exclude_rows(known.rows)
    assert r_squared(rest.values, secret[rest.rows]) > 0.8
    own = feature_inference.infer_from_gradients_baseline(seen, y, known).exclude_rows(known.rows)
    assert r_squared(own.values, secret[own.rows]) < 0.05
    blind = feature_inference.infer_columns_from_gradients(seen.replace_with_noise(0), y, known)
    assert blind is not None
    blind = blind.exclude_rows(known.rows)
    assert r_squared(blind.values, secret[blind.rows]) < 0.05


def test_a_bottom_that_learned_the_labels_completes_them() -> None:
    y, draw = classes(), np.random.default_rng(2)
    x = draw.normal(size=(ROWS, 30))
    x[:, 29] += 1.5 * y

    def embed(rows: np.ndarray) -> np.ndarray:
        return rows[:, 28:]

    seen = view("shop", observations={}, x=x, embed=embed)
    known = draw_known(seen.train, y, 40, 0)
    found = label_inference.complete_model(seen, known)
    assert found is not None
    gain = (
        score_ranking(found.exclude_rows(known.rows), y, 2)[0]
        - score_ranking(label_inference.complete_model_baseline(seen, known).exclude_rows(known.rows), y, 2)[0]
    )
    assert gain > 0.03
    assert label_inference.complete_model(replace(seen, embed=lambda rows: rows), known) is None
    assert label_inference.complete_model(replace(seen, embed=None), known) is None


@pytest.mark.parametrize("attack", [run_leaks.score_by_loss, run_leaks.score_by_modified_entropy])
def test_a_model_that_learned_rows_by_heart_tells_its_members(attack: object) -> None:
    draw = np.random.default_rng(0)
    rows, y = np.arange(400), draw.integers(0, 2, 400)
    sure = np.where(rows < 200, 0.95, draw.uniform(0.3, 0.9, 400))
    scores = np.where(np.eye(2, dtype=bool)[y], sure[:, None], 1 - sure[:, None])
    member = rows < 200
    assert auc(member, attack(rows, scores, y).values) > 0.99  # type: ignore[operator]
    flat = np.where(np.eye(2, dtype=bool)[y], 0.7, 0.3)
    assert auc(member, attack(rows, flat, y).values) == pytest.approx(0.5)  # type: ignore[operator]


def test_the_modified_entropy_is_that_of_its_equation() -> None:
    scores, y = np.array([[0.2, 0.5, 0.3]]), np.array([1])
    by_hand = -(1 - 0.5) * np.log(0.5) - 0.2 * np.log(1 - 0.2) - 0.3 * np.log(1 - 0.3)
    assert run_leaks.score_by_modified_entropy(np.arange(1), scores, y).values[0] == pytest.approx(-by_hand)


def test_the_mean_of_predictions_wears_noise_out() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 3))
    weights = draw.normal(size=(3, 6))

    def predicted(count: int) -> float:
        looks = [Observation(np.arange(ROWS), x @ weights + 8 * draw.normal(size=(ROWS, 6)), 0) for _ in range(count)]
        seen = view("bank", observations={("z", "shop"): Observations(looks)}, x=x[:, :1] * 0)
        seen = replace(seen, test=np.arange(ROWS))
        known = draw_known(np.arange(ROWS), x, 200, 0)
        found = feature_inference.infer_predicted_rows(seen, "shop", known).exclude_rows(known.rows)
        return r_squared(found.values, x[found.rows])

    assert predicted(1) < 0.3
    assert predicted(60) > 0.6


def test_row_order_is_spearmans_correlation() -> None:
    draw = np.random.default_rng(0)
    values = np.round(draw.normal(size=200), 1)
    assert run_leaks.correlate_with_order(values) == pytest.approx(spearmanr(np.arange(200), values)[0])
    x = draw.normal(size=(300, 4))
    x[:, 2] = -np.arange(300)
    assert run_leaks.find_ordered_column(x) == (2, pytest.approx(1.0))
    assert run_leaks.find_ordered_column(x[draw.permutation(300)])[1] < 4 / np.sqrt(299)
    assert run_leaks.correlate_with_order(np.ones(50)) == 0.0


def test_labels_and_rows_in_a_saved_state_are_found() -> None:
    y, x = classes(), np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    every, train = np.arange(ROWS), np.arange(TRAIN)
    clean = {"weights": {"w": torch.randn(64, 32)}, "names": ["a", "b"], "seed": 3}
    assert run_leaks.find_secret(clean, y, [every, train])[0] < 0.2
    assert run_leaks.find_secret(clean, x.astype(np.float64), [every, train])[0] == 0.0
    share, where = run_leaks.find_secret(clean | {"memory": {"y": torch.from_numpy(y[:TRAIN])}}, y, [every, train])
    assert share == 1.0
    assert where == "/memory/y"
    kept = clean | {"rows": [torch.from_numpy(x[::-1].copy())]}
    assert run_leaks.find_secret(kept, x.astype(np.float64), [every])[0] == 1.0


def _transcript(noise: float = 0.0) -> Transcript:
    bank, x = linear()
    y = classes()
    shop = replace(passive(y, noise=noise), x=x)
    truth = Truth(x={"bank": bank.x, "shop": x}, y=y)
    return Transcript(views={("bank", "bank"): replace(bank, y=y), ("shop", "bank"): shop}, truths={"bank": truth})


def test_the_suite_finds_what_is_there_and_nothing_in_noise() -> None:
    transcript = _transcript()
    found = run_suite(transcript, QUICK)
    got = {(one.attacker, one.attack): one for one in found}
    assert got["shop", "labels: spectral, looks added"].value >= 0.99
    assert got["shop", "labels: learned"].value >= 0.99
    assert got["bank", "features: ridge"].value > 0.8
    assert got["bank", "features: distances between rows"].value > 0.99
    assert all(one.rows + one.known <= ROWS * 6 for one in found)
    for one in run_suite(negative_control(transcript), QUICK):
        assert not measures_as_leak(one), one


def test_more_known_records_are_more_figures() -> None:
    quick, whole = (run_suite(_transcript(), effort) for effort in (QUICK, replace(FULL, perceptron=False, draws=1)))
    assert len(whole) > len(quick)
    assert {one.known for one in whole if one.attack == "features: ridge"} == {36, 72}  # 300 leave too few to score


def _measured(**changes: object) -> AttackScore:
    fields: dict[str, object] = {
        "attack": "labels: spectral", "attacker": "shop", "victim": "bank", "target": "labels", "metric": "AUC",
        "value": 0.6, "baseline": 0.5, "known": 0, "rows": 900, "seed": 0, "error": 0.01,
    }  # fmt: skip
    return AttackScore(**(fields | changes))  # type: ignore[arg-type]


def test_only_a_claim_of_ok_is_contradicted() -> None:
    one = _measured()
    assert (
        describe_contradiction(one, "ok")
        == "shop about bank: labels: spectral gets AUC 0.60 of labels (without the view: 0.50)"
    )
    assert describe_contradiction(one, "")
    assert not describe_contradiction(one, "note")
    assert not describe_contradiction(one, "leak")
    assert not describe_contradiction(_measured(value=0.54), "ok")
    assert not describe_contradiction(_measured(error=0.05), "ok")  # chance
    assert not describe_contradiction(_measured(known=40, baseline=0.58), "ok")
    assert describe_contradiction(_measured(attack="features: ridge", metric="R²", value=0.2, baseline=0.05), "ok")
    assert not describe_contradiction(_measured(attack="features: ridge", metric="R²", value=0.1, baseline=0.05), "ok")


def test_the_worst_finding_of_a_pair_counts() -> None:
    found = worst_claims(
        [Finding("a", "b", "this", "ok"), Finding("a", "b", "that", "leak"), Finding("b", "a", "x", "note")]
    )
    assert found == {("a", "b"): "leak", ("b", "a"): "note"}


def test_first_singular_is_that_of_numpy() -> None:
    look = np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([5, 1, 1, 1, 1, 1])
    expected = look @ np.linalg.svd(look, full_matrices=False)[2][0]
    assert np.allclose(np.abs(label_inference.project_on_first_singular(look)), np.abs(expected))
