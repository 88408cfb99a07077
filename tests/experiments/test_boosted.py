"""Boosted trees as baselines: scikit-learn's over one table, with the rows, the metrics and the names of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

import securevfl as sv
from securevfl.experiments.baselines import BASELINES
from securevfl.experiments.boosted_baseline import train_boosted
from securevfl.training import Split

KEYS = ("alone_boosted", "pooled_boosted")


def _tables(target: str = "class", rows: int = 400) -> sv.Parties:
    """A label that the shop's column tells by a threshold, which a line over it does not."""
    rng = np.random.default_rng(5)
    ids = np.array([f"c{i}" for i in range(rows)])
    own, other = rng.normal(size=rows), rng.normal(size=rows)
    town = rng.choice(["Rome", "Oslo", "Bern"], rows)
    signal = (np.abs(other) > 0.7).astype(float) + 0.3 * (town == "Oslo") + 0.1 * rng.normal(size=rows)
    if target == "number":
        bank = sv.PartyTable(name="bank", ids=ids, columns={"own": own}, label=1000 * signal, label_name="y")
    else:
        label = (signal > 0.5).astype(np.int64)
        bank = sv.PartyTable(
            name="bank", ids=ids, columns={"own": own}, label=label, label_name="y", classes=("no", "yes")
        )
    columns = {"other": other, "town": town}
    reverse = {name: values[::-1] for name, values in columns.items()}
    shop = sv.PartyTable(name="shop", ids=ids[::-1], columns=reverse, categorical=frozenset({"town"}))
    return sv.Parties.of(bank, shop)


def test_both_stand_beside_the_networks_under_names_of_their_own() -> None:
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,)), protection=sv.Plain(), epochs=1, valid=0.2)
    result = sv.compare({"plain": job}, _tables())
    assert [run.key for run in result.record.runs] == [*BASELINES, "plain"]
    alone, pooled = (result.run(key) for key in KEYS)
    assert (alone.title, pooled.title) == ("bank alone, boosted trees", "boosted trees, pooled in the clear")
    assert alone.baseline
    assert pooled.baseline
    assert pooled.test["auc"] > 0.95
    assert abs(alone.test["auc"] - 0.5) < 0.2
    assert pooled.test.keys() == result.run("plain").test.keys()
    assert pooled.evaluation is not None
    assert pooled.evaluation.rows == len(result.test_ids)
    assert not pooled.links
    assert "boosted trees, pooled" in result.table(width=160)


def test_it_is_what_scikit_learn_fits_with_rounds_chosen_on_validation_rows() -> None:
    table = sv.datasets.breast_cancer().active
    rows = np.arange(table.rows)
    split = Split(rows[:300], rows[300:400], rows[400:])
    job = sv.Job(seed=3)
    found = train_boosted(job, table, rows, split)
    x = np.column_stack([np.asarray(values) for values in table.columns.values()])
    model = HistGradientBoostingClassifier(random_state=3, early_stopping=False).fit(x[:300], table.label[:300])
    losses = [-np.log(p[np.arange(100), table.label[300:400]]).mean() for p in model.staged_predict_proba(x[300:400])]
    best = int(np.argmin(losses))
    expected = list(model.staged_predict_proba(x[400:]))[best]
    assert np.allclose(found.scores, expected)
    assert found.test["auc"] == pytest.approx(roc_auc_score(table.label[400:], expected[:, 1]))
    assert found.stopped.startswith(f"{best + 1} of 100 rounds")


def test_rows_without_weight_teach_nothing() -> None:
    table = sv.datasets.breast_cancer().active
    rows = np.arange(table.rows)
    split = Split(rows[:300], rows[300:400], rows[400:])
    wrong = table.label.copy()
    wrong[:100] = 1 - wrong[:100]
    weight = np.ones(table.rows)
    weight[:100] = 0
    job = sv.Job(seed=0)
    fooled = train_boosted(job, replace(table, label=wrong), rows, split)
    spared = train_boosted(job, replace(table, label=wrong, weight=weight), rows, split)
    assert spared.test["log_loss"] < fooled.test["log_loss"]


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_numbers_are_learned_in_their_units(loss: str) -> None:
    parties = _tables("number")
    table = parties.active
    columns = dict(parties["shop"].take(np.arange(table.rows)[::-1]).columns)
    y = np.maximum(table.label, 0)
    one = replace(table, columns={**table.columns, **columns}, categorical=frozenset({"town"}), label=y)
    rows = np.arange(table.rows)
    job = sv.Job(task="regression", loss=loss)
    found = train_boosted(job, one, rows, Split(rows[:250], rows[250:300], rows[300:]))
    assert found.scores.shape == (100, 1)
    assert found.test["r2"] > 0.7
    assert ("deviance" in found.test) == (loss == "poisson")
    negative = replace(one, label=y - 5000)
    if loss == "poisson":
        with pytest.raises(sv.InputError, match="negative"):
            train_boosted(job, negative, rows, Split(rows[:250], rows[250:300], rows[300:]))


def test_one_class_is_refused() -> None:
    table = sv.datasets.breast_cancer().active
    rows = np.flatnonzero(table.label == 1)
    with pytest.raises(sv.InputError, match="two classes"):
        train_boosted(sv.Job(), table, rows, Split(np.arange(100), np.arange(100, 120), np.arange(120, 150)))
