"""Estimators over one frame of all parties' columns, weights of rows, and what a fitted estimator is dumped as."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import estimator_checks

import securevfl as sv
from securevfl.experiments.aligned_rows import set_row_weights
from securevfl.experiments.party_columns import rows_of_matrix
from securevfl.run.model_parts import PART

ROWS = 120
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_valid_tag_types",
)
"""Those of scikit-learn's checks that fit nothing: the others draw arrays whose columns belong to nobody."""


def matrix() -> tuple[pd.DataFrame, np.ndarray]:
    draw = np.random.default_rng(0)
    income, spent, noise = (draw.normal(size=ROWS) for _ in range(3))
    city = draw.choice(["Rome", "Oslo"], size=ROWS)
    columns = {"bank.income": income, "bank.city": city, "shop.spent": spent, "shop.visits": noise}
    return pd.DataFrame(columns), np.where(income + 2 * spent > 0, "yes", "no")


def network(**changes: object) -> sv.VerticalClassifier:
    return sv.VerticalClassifier(
        sv.SplitNN(hidden=8, lr=0.05), **({"epochs": 10, "batch_size": 16, "active": "bank"} | changes)
    )


@pytest.fixture(scope="module")
def fitted() -> sv.VerticalClassifier:
    return network().fit(*matrix())


@pytest.fixture(scope="module")
def weighed() -> sv.VerticalClassifier:
    """With twenty times the weight on rows that say yes."""
    x, y = matrix()
    return network().fit(x, y, sample_weight=np.where(y == "yes", 20.0, 1.0))


def test_names_of_columns_share_a_frame_among_parties(fitted: sv.VerticalClassifier) -> None:
    x, y = matrix()
    assert fitted.score(x, y) > 0.9
    assert (fitted.active_, fitted.n_features_in_) == ("bank", 4)
    assert list(fitted.feature_names_in_) == list(x.columns)
    assert {name: tuple(part["encoder"]["columns"]) for name, part in fitted.model_.parts.items()} == {
        "bank": ("income", "city"),
        "shop": ("spent", "visits"),
    }
    assert fitted.predict(x[:1]).tolist() == fitted.predict(x)[:1].tolist()
    two_levels = x.set_axis(pd.MultiIndex.from_tuples([tuple(name.split(".")) for name in x]), axis=1)
    assert np.array_equal(fitted.predict_proba(two_levels), fitted.predict_proba(x))


def test_parties_become_a_frame_whose_columns_can_be_permuted(fitted: sv.VerticalClassifier) -> None:
    x, y = matrix()
    bank, shop = (
        x.filter(like=f"{name}.").rename(columns=lambda one: one.partition(".")[2]).assign(id=np.arange(ROWS))
        for name in ("bank", "shop")
    )
    parties = sv.Parties.from_pandas({"bank": bank.assign(good=y), "shop": shop[::-1]}, id="id", label="good")
    rows = sv.AlignedRows(parties)
    frame = rows.to_pandas()
    assert sorted(frame) == sorted(x)
    assert np.allclose(frame["shop.spent"], x["shop.spent"])
    swapped = sv.AlignedRows(sv.Parties.from_pandas({"bank": bank, "shop": shop.assign(good=y)}, id="id", label="good"))
    with pytest.raises(sv.InputError, match="'bank' had the labels when the model was trained"):
        fitted.predict(swapped)
    found = permutation_importance(fitted, frame, rows.y, n_repeats=1, random_state=0).importances_mean
    assert frame.columns[found.argmax()] == "shop.spent"


def test_columns_of_transformers_keep_their_party_and_an_array_is_shared_out(fitted: sv.VerticalClassifier) -> None:
    x, y = matrix()
    numbers = ["bank.income", "shop.spent"]
    steps = [("n", StandardScaler(), numbers), ("c", OneHotEncoder(sparse_output=False), ["bank.city"])]
    wide = ColumnTransformer(steps).set_output(transform="pandas")
    piped = make_pipeline(wide, network(epochs=1, batch_size=64)).fit(x, y)
    assert set(piped[-1].model_.parts["bank"]["encoder"]["columns"]) == {"income", "city_Rome", "city_Oslo"}
    assert piped.predict(x).shape == (ROWS,)
    array = StandardScaler().fit_transform(x[numbers])
    rows = rows_of_matrix(array, {"shop": [-1], "bank": [0]}, "bank", y=y)
    assert rows.parties.active.name == "bank"
    assert np.allclose(rows.parties["shop"].columns["column 1"], array[:, 1])
    assert CalibratedClassifierCV(FrozenEstimator(fitted), cv=2).fit(x, y).predict_proba(x).shape == (ROWS, 2)


@pytest.mark.parametrize(
    ("changes", "columns", "words"),
    [
        ({}, {"bank.city": "city"}, "'city' of X does not name its party: call columns PARTY.COLUMN"),
        ({"columns": {"bank": ["bank.income"]}}, {}, "'bank.city' is nobody's"),
        ({"columns": {"bank": ["bank.incomes"]}}, {}, "did you mean 'bank.income'"),
        ({"active": "shops"}, {}, "did you mean 'shop'"),
        ({"active": None}, {}, "name the party that has the labels, active='bank'"),
    ],
)
def test_a_column_that_is_nobodys_is_refused(changes: dict[str, object], columns: dict[str, str], words: str) -> None:
    x, y = matrix()
    with pytest.raises(sv.InputError, match=words):
        network(**changes).fit(x.rename(columns=columns), y)


def test_arrays_and_labels_of_another_length_are_refused() -> None:
    x, y = matrix()
    with pytest.raises(sv.InputError, match="give positions from 0"):
        network(columns={"bank": [0], "shop": [7]}).fit(x[["bank.income", "shop.spent"]].to_numpy(), y)
    with pytest.raises(sv.InputError, match="y is needed"):
        network().fit(x)
    with pytest.raises(sv.InputError, match="the weights have shape"):
        network().fit(x, y, sample_weight=np.ones(3))


def test_weights_of_rows_move_what_is_learned_and_shares_refuse_them(
    fitted: sv.VerticalClassifier, weighed: sv.VerticalClassifier
) -> None:
    x, y = matrix()
    assert weighed.predict_proba(x)[:, 1].mean() > fitted.predict_proba(x)[:, 1].mean() + 0.03
    assert weighed.result_.record.runs[-1].evaluation.weighted
    with pytest.raises(sv.InputError, match="on shares all rows count alike"):
        sv.VerticalClassifier("logistic_regression", protection=sv.Shares(computing=2), active="bank").fit(
            x, y, sample_weight=np.ones(ROWS)
        )


def test_weights_belong_to_the_rows_that_are_given() -> None:
    x, y = matrix()
    rows = rows_of_matrix(x, None, "bank", y=y)[5:]
    some = set_row_weights(rows, np.arange(5.0, ROWS)).tables().active
    assert some.weight is not None
    assert some.weight.tolist() == list(range(5, ROWS))
    with pytest.raises(sv.InputError, match="give one for each"):
        set_row_weights(rows, np.ones(ROWS))


def test_a_dump_is_a_path_and_a_digest_that_loading_verifies(
    fitted: sv.VerticalClassifier, weighed: sv.VerticalClassifier, tmp_path: Path
) -> None:
    x, _ = matrix()
    folder = fitted.save(tmp_path / "model")
    kept = io.BytesIO()
    joblib.dump(fitted, kept)
    assert str(folder).encode() in kept.getvalue()
    weights = [file.read_bytes()[-64:] for file in sorted(folder.glob(f"*{PART}"))]
    assert len(weights) == 2
    assert not any(one in kept.getvalue() for one in weights)

    def load() -> sv.VerticalClassifier:
        kept.seek(0)
        found = joblib.load(kept)
        assert isinstance(found, sv.VerticalClassifier)
        return found

    assert np.array_equal(load().predict_proba(x), fitted.predict_proba(x))
    assert not hasattr(load(), "result_")
    folder.rename(tmp_path / "away")
    with pytest.raises(sv.InputError, match="which is gone: restore the folder"):
        load()
    weighed.model_.save(folder)
    with pytest.raises(sv.InputError, match="has changed: its model is"):
        load()


@pytest.mark.parametrize("kind", [sv.VerticalClassifier, sv.VerticalRegressor])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks_of_parameters_pass(kind: type) -> None:
    for name in CHECKS:
        check: Callable[..., object] | None = getattr(estimator_checks, name, None)
        if check is None:  # another version of scikit-learn
            continue
        wants_class = next(iter(inspect.signature(check).parameters)) == "name" and "class" in name
        check(kind.__name__, kind if wants_class else kind())
