"""Estimators: scikit-learn's conventions over parties, and parties from frames."""

from __future__ import annotations

import copy
import pickle
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    train_test_split,
)

import securevfl as sv
from securevfl.errors import InputError

ROWS = 240


def frames(rows: int = ROWS) -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(rows)]
    a, b, c = (generator.normal(size=rows) for _ in range(3))
    city = generator.choice(["Rome", "Oslo", None], size=rows)
    good = np.where(a + 2 * b > 0, "yes", "no")
    bank = pd.DataFrame({"id": ids, "income": a, "city": city, "good": good, "amount": 5 + a + 2 * b})
    order = generator.permutation(rows)[: rows - 20]
    shop = pd.DataFrame({"id": ids, "spent": b, "visits": c}).iloc[order]
    return {"bank": bank, "shop": shop}


def people(label: str = "good", **options: object) -> sv.Parties:
    kept = frames()
    kept["bank"] = kept["bank"].drop(columns=[one for one in ("good", "amount") if one != label])
    return sv.Parties.from_pandas(kept, id="id", label=label, **options)


def classifier(**changes: object) -> sv.VerticalClassifier:
    return sv.VerticalClassifier(sv.SplitNN(hidden=8, lr=0.05), **({"epochs": 6, "batch_size": 32} | changes))


def test_frames_of_all_kinds_make_the_same_parties() -> None:
    import pyarrow as pa

    kept = {name: frame.drop(columns=["amount"], errors="ignore") for name, frame in frames().items()}
    tables = {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in kept.items()}
    one = sv.Parties.from_pandas(kept, id={"bank": "id", "shop": "id"}, label="good")
    other = sv.Parties.from_arrow(tables, id="id", label="good")
    for name in one:
        assert one[name].ids == other[name].ids
        assert set(one[name].columns) == set(other[name].columns)
    assert one.active.name == "bank"
    assert one.active.classes == ("no", "yes")


def test_everything_wrong_with_frames_is_told_at_once() -> None:
    kept = frames()
    kept["bank"] = kept["bank"].rename(columns={"id": "client"})
    kept["shop"] = kept["shop"].assign(id="same")
    with pytest.raises(sv.InputError) as caught:
        sv.Parties.from_pandas(kept, id="id", label="good")
    assert "'id'" in str(caught.value)
    assert "repeated identifiers" in str(caught.value)
    with pytest.raises(sv.InputError, match="no frame has the column 'better'"):
        sv.Parties.from_pandas(frames(), id="id", label="better")
    with pytest.raises(sv.InputError, match="a pandas DataFrame was expected"):
        sv.Parties.from_pandas({"bank": [1, 2]}, id="id", label="good")
    with pytest.raises(sv.InputError, match="id names no column for shop"):
        sv.Parties.from_pandas(frames(), id={"bank": "id"}, label="good")


def test_it_fits_and_scores_the_rows_that_all_parties_hold() -> None:
    parties = people()
    found = classifier().fit(parties)
    rows = sv.AlignedRows(parties)
    assert len(rows) == ROWS - 20
    probabilities = found.predict_proba(parties)
    assert probabilities.shape == (len(rows), 2)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert found.score(parties) > 0.85
    assert list(found.classes_) == ["no", "yes"]
    assert np.array_equal(found.predict(rows[::-1]), found.predict(rows)[::-1])  # in the order that is asked for
    assert "bank" in found.result_.receipt()


def test_it_is_fitted_anew_by_a_clone_and_alike() -> None:
    parties, first = people(), classifier(seed=3)
    again = clone(first)
    assert again is not first
    assert {k: repr(v) for k, v in again.get_params().items()} == {k: repr(v) for k, v in first.get_params().items()}
    assert np.array_equal(first.fit(parties).predict_proba(parties), again.fit(parties).predict_proba(parties))
    with pytest.raises(NotFittedError):
        clone(first).predict(parties)


def test_a_search_tries_settings_of_the_algorithm() -> None:
    parties = people()
    rows = sv.AlignedRows(parties)
    grid = {"algorithm__lr": [1e-9, 0.05], "epochs": [4]}
    search = GridSearchCV(classifier(), grid, cv=2, error_score="raise").fit(rows, rows.y)
    assert search.best_params_ == {"algorithm__lr": 0.05, "epochs": 4}
    assert search.best_estimator_.algorithm.hidden == 8
    assert search.score(rows, rows.y) > 0.8


def test_scikit_learns_tools_cut_and_score_the_rows() -> None:
    """Probabilities of held-out rows are those of a model that never saw them, in the order of the rows."""
    rows = sv.AlignedRows(people())
    folds = KFold(2)
    found = cross_val_predict(classifier(epochs=2), rows, rows.y, cv=folds, method="predict_proba")
    assert found.shape == (len(rows), 2)
    train, test = next(folds.split(rows))
    assert np.array_equal(found[test], classifier(epochs=2).fit(rows[train]).predict_proba(rows[test]))
    left, right, y_left, y_right = train_test_split(rows, rows.y, test_size=0.25, random_state=0, stratify=rows.y)
    assert not set(left.ids) & set(right.ids)
    assert np.array_equal(left.y, y_left)
    assert np.array_equal(right.y, y_right)
    several = cross_validate(classifier(epochs=1), left, y_left, cv=2, scoring=["roc_auc", "neg_log_loss"])
    assert np.isfinite(several["test_neg_log_loss"]).all()
    swapped = (rows.y == "no").astype(int)  # numbers of the labels, but not in sorted order
    with pytest.raises(sv.InputError, match="y is not the labels"):
        classifier().fit(rows, swapped)


def test_boosting_and_a_sealed_cut_are_estimators_too() -> None:
    rows = sv.AlignedRows(people())
    trees = sv.VerticalClassifier("boosting", epochs=10)
    assert cross_val_score(trees, rows, rows.y, cv=2, scoring="roc_auc", error_score="raise").min() > 0.8
    sealed = classifier(protection="bfv", epochs=1).fit(rows[:80])
    assert "BFV" in sealed.result_.receipt()


def test_a_number_is_estimated() -> None:
    parties = people("amount", target="number")
    found = sv.VerticalRegressor(sv.Boosting(depth=3, lr=0.3), epochs=20).fit(parties)
    assert found.score(parties) > 0.8
    assert found.predict(parties).shape == (ROWS - 20,)


def test_what_cannot_be_fitted_is_refused_with_the_cure() -> None:
    parties = people()
    rows = sv.AlignedRows(parties)
    with pytest.raises(sv.InputError, match="an estimator takes"):
        classifier().fit(np.zeros(4))
    with pytest.raises(sv.InputError, match="y is not the labels of these rows"):
        classifier().fit(rows, rows.y[::-1])
    with pytest.raises(sv.InputError, match="a row comes twice"):
        classifier().fit(rows[[1, 1, 2]])
    with pytest.raises(ValueError, match="has no setting 'width'"):
        classifier().set_params(algorithm__width=4)
    with pytest.raises(sv.InputError, match="task"):
        sv.VerticalRegressor().fit(parties)
    kept = frames()
    kept["shop"]["id"] = [f"q{i}" for i in range(len(kept["shop"]))]
    apart = sv.Parties.from_pandas(kept, id="id", label="good")
    with pytest.raises(sv.NoCommonRows):
        classifier().fit(apart)


def test_rows_are_cut_like_an_array() -> None:
    rows = sv.AlignedRows(people())
    mask = np.zeros(len(rows), dtype=bool)
    mask[:7] = True
    assert len(rows[mask]) == len(rows[:7]) == len(rows[np.arange(7), ...]) == 7
    assert rows[mask].ids == rows[:7].ids
    assert rows.shape == (len(rows), 4)
    with pytest.raises(IndexError):
        rows[[len(rows)]]


def test_the_page_says_what_its_code_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/howto/scikit-learn.md").read_text(encoding="utf-8")
    script = tmp_path / "page.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), encoding="utf-8")
    runpy.run_path(str(script))
    assert capsys.readouterr().out == "".join(re.findall(r"```text\n(.*?)```", page, re.DOTALL))


def test_a_fitted_estimator_keeps_its_keys_and_comes_back_from_other_processes(tmp_path: Path) -> None:
    """What holds signing keys is not pickled; an estimator that another process fitted is the handle of its model."""
    parties = people()
    model = sv.VerticalClassifier(sv.SplitNN(hidden=4), epochs=1, batch_size=64, folder=tmp_path).fit(parties)
    ways: tuple[Callable[[object], object], ...] = (pickle.dumps, copy.deepcopy, copy.copy)
    for make in ways:
        with pytest.raises(InputError, match=r"signing keys.*model\(\).save"):
            make(model.result_)
    assert clone(model).get_params()["epochs"] == 1
    rows = sv.AlignedRows(parties)
    found = cross_validate(clone(model), rows, rows.y, cv=2, n_jobs=2, return_estimator=True)
    assert len(found["test_score"]) == 2
    folds = KFold(2).split(rows)
    for one, (_, held_out) in zip(found["estimator"], folds, strict=True):
        assert one.predict(rows[held_out]).shape == (len(held_out),)
        assert Path(one._handle.folder).parent == tmp_path
