"""The rules by which rows are labelled, and that runs tell of rows held out."""

from __future__ import annotations

import numpy as np
import pytest
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.testing.trial import roles_begun
from securevfl.training.pseudo_labels import SelfTraining, divide_logits, fit_temperature


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def test_the_temperature_is_found_again() -> None:
    """Classes are drawn from p; a model that says p with logits three times as large is found to be three times too
    sure."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, 3)) * 1.5
    labels = np.array([generator.choice(3, p=p) for p in softmax(logits)])
    assert fit_temperature(softmax(3 * logits), labels) == pytest.approx(3, rel=0.1)
    assert np.allclose(divide_logits(softmax(3 * logits), 3.0), softmax(logits))
    assert fit_temperature(softmax(3 * logits[:9]), labels[:9]) == 1  # too few rows to tell


def test_calibration_changes_who_is_labelled_and_not_the_classes() -> None:
    p = np.array([[0.95, 0.05], [0.2, 0.8], [0.6, 0.4]])
    plain, heated = SelfTraining(0.9), SelfTraining(0.9, "calibrated")
    heated.heat = 3.0
    assert plain.assign_labels(p).tolist() == [0, -1, -1]
    assert heated.assign_labels(p).tolist() == [-1, -1, -1]
    heated.heat = 0.5
    assert heated.assign_labels(p).tolist() == [0, 1, -1]


def test_the_balanced_rule_gives_every_class_its_share() -> None:
    """A threshold of 0.9 labels rows of the frequent class only; the rule finds the rare one as well."""
    rare = np.concatenate([np.linspace(0.02, 0.1, 80), np.linspace(0.2, 0.45, 20)])
    p = np.stack([1 - rare, rare], axis=1)
    threshold = SelfTraining(0.9)
    assert set(threshold.assign_labels(p)) == {-1, 0}
    tally = SelfTraining(0.9, "balanced", 0.5, shares=[0.8, 0.2])
    labels = tally.assign_labels(p)
    assert np.flatnonzero(labels == 1).tolist() == list(range(90, 100))  # the ten that are likeliest to be rare
    assert np.flatnonzero(labels == 0).tolist() == list(range(40))
    assert tally.given == [40, 10]
    tally.assess_held_out(np.array([[0.5, 0.5], [0.99, 0.01], [0.8, 0.2]]), np.array([1, 0, 1]))
    assert (tally.held, tally.held_sure, tally.held_right) == (3, 2, 2)
    again = SelfTraining(0.9, "balanced", 0.5)
    again.load_state(tally.get_state())
    assert again == tally


@pytest.mark.parametrize("rule", ["confidence", "calibrated", "balanced"])
def test_a_run_tells_how_many_labels_of_rows_held_out_are_right(rule: str) -> None:
    with roles_begun() as roles:
        algorithm = make("risa", labelling=rule, confidence=0.6, held_out=0.3)
        result = sv.simulate(
            sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=5, batch_size=32, seed=1),
            low_overlap_parties(1, rows=300),
        )
    active = next(role for role in roles if role.site.role == "active")
    passive = next(role for role in roles if role.site.role == "passive")
    held = active.held_out_rows  # type: ignore[attr-defined]
    assert np.array_equal(held, passive.held_out_rows)  # type: ignore[attr-defined]
    assert len(held) == round(0.3 * len(active.table.split.train))
    tally = active.tally  # type: ignore[attr-defined]
    assert tally.held == len(held)
    assert 0 <= tally.held_right <= tally.held_sure <= tally.held
    record = result.record.runs[0]
    assert f"of {len(held)} aligned rows held out" in record.self_training
    assert active.chosen is not None  # type: ignore[attr-defined]
    active.chosen = None  # type: ignore[attr-defined]
    taught = set(np.concatenate([batch for epoch in (1, 2, 3) for batch in active.batches(epoch)]))
    assert not taught & set(held)


def test_each_row_held_out_is_seen_by_one_passive_party() -> None:
    with roles_begun() as roles:
        algorithm = make("risa", held_out=0.3)
        sv.simulate(
            sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=4, batch_size=32, seed=1),
            low_overlap_parties(2, rows=300),
        )
    active = next(role for role in roles if role.site.role == "active")
    parts = [active.held_by(name) for name in active.site.passive]  # type: ignore[attr-defined]
    assert sorted(np.concatenate(parts)) == sorted(active.held_out_rows)  # type: ignore[attr-defined]


def test_rules_that_look_at_exact_labels_are_refused_with_noise_on_gradients() -> None:
    noisy = sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=1.0)))
    for rule in ("calibrated", "balanced"):
        with pytest.raises(sv.InputError, match="labelling = 'confidence'"):
            sv.RISA(self_training=2, labelling=rule).check_protection(noisy)  # type: ignore[arg-type]
    sv.RISA(self_training=2).check_protection(noisy)
    sv.RISA(labelling="balanced").check_protection(noisy)  # which labels nothing
    with pytest.raises(sv.InputError, match="a temperature needs rows"):
        sv.RISA(self_training=2, labelling="calibrated", held_out=0)


def test_the_sum_of_logits_has_no_network_above_it() -> None:
    with roles_begun() as roles:
        algorithm = make("risa", self_training=0, evidential=False, sum_logits=True)
        sv.simulate(
            sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=1, batch_size=32),
            low_overlap_parties(1, rows=200),
        )
    active = next(role for role in roles if role.site.role == "active")
    half = active.half  # type: ignore[attr-defined]
    assert list(half.top.parameters()) == []
    assert half.own.out_features == active.task.outputs
    with pytest.raises(sv.InputError, match="opinions are fused, not added"):
        sv.RISA(sum_logits=True)
