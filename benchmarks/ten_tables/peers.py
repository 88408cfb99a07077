"""Pooled models in the clear: scikit-learn's histogram gradient boosting with like settings, and a linear model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.ten_tables.tables import PublicTable

__all__ = ["LIKE_OURS", "METRICS", "measure_boosted", "measure_linear"]

METRICS = {"two classes": "auc", "many classes": "accuracy", "number": "r2"}
"""Task → the metric that is compared, by its name in reports."""
_ROUNDS = 300  # as `securevfl init` drafts trees
LIKE_OURS = {"max_depth": 5, "max_leaf_nodes": None, "l2_regularization": 1.0}
"""The defaults of `sv.Boosting` where scikit-learn's differ; both have 255 bins and leaves of 20 rows."""
_LEVELS = 250


def _score(table: PublicTable, y: np.ndarray, found: np.ndarray, classes: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

    if table.task == "number":
        return float(r2_score(y, found))
    if table.task == "two classes":
        return float(roc_auc_score(y == classes[1], found[:, 1]))
    return float(accuracy_score(y, classes[found.argmax(axis=1)]))


def _targets(table: PublicTable, frame: Any, ids: np.ndarray) -> np.ndarray:
    found = frame.loc[ids, table.label]
    values: np.ndarray = (found if table.task == "number" else found.astype(str)).to_numpy()
    return values


def _columns(table: PublicTable, frame: Any, train: np.ndarray) -> Any:
    """The features: texts as categories, of which the most frequent in the training rows are kept."""
    x = frame.drop(columns=table.label)
    for name in x.columns:
        if x[name].dtype.kind not in "ifb":
            levels = x.loc[train, name].value_counts().index[:_LEVELS]
            x[name] = x[name].astype("category").cat.set_categories(list(levels))
    return x


def measure_boosted(
    table: PublicTable, frame: Any, split: Sequence[np.ndarray], settings: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, float]:
    """The test metric of boosted trees over all columns, whose rounds the loss of the validation rows chose.

    Args:
        table: says the label and the task.
        frame: the whole table, with identifiers as index.
        split: identifiers of rows that train, validate and test.
        settings: of the trees, where they are not scikit-learn's defaults.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.metrics import log_loss

    columns = _columns(table, frame, split[0])
    x, y = [columns.loc[part] for part in split], [_targets(table, frame, part) for part in split]
    is_number = table.task == "number"
    kind = HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier
    model = kind(max_iter=_ROUNDS, early_stopping=False, categorical_features="from_dtype", **settings).fit(x[0], y[0])
    staged = model.staged_predict if is_number else model.staged_predict_proba
    least, best = np.inf, 0
    for rounds, found in enumerate(staged(x[1]), 1):
        loss = np.mean((found - y[1]) ** 2) if is_number else log_loss(y[1], found, labels=model.classes_)
        if loss < least:
            least, best = float(loss), rounds
    found = next(one for rounds, one in enumerate(staged(x[2]), 1) if rounds == best)
    return {"metric": _score(table, y[2], found, getattr(model, "classes_", np.empty(0))), "rounds": float(best)}


def measure_linear(table: PublicTable, frame: Any, split: Sequence[np.ndarray]) -> dict[str, float]:
    """The test metric of a linear model over all columns: gaps filled by medians, texts one-hot, numbers standardised.

    Args:
        table: says the label and the task.
        frame: the whole table, with identifiers as index.
        split: identifiers of rows that train, validate and test; the first two train, as nothing is chosen.
    """
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    train = np.concatenate([split[0], split[1]])
    columns = _columns(table, frame, train)
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", min_frequency=10)
    prepared = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (texts, make_column_selector(dtype_include="category"))
    )
    last = RidgeCV(np.logspace(-3, 4, 15)) if table.task == "number" else LogisticRegression(max_iter=2000)
    model = make_pipeline(prepared, last).fit(columns.loc[train], _targets(table, frame, train))
    x, y = columns.loc[split[2]], _targets(table, frame, split[2])
    found = model.predict(x) if table.task == "number" else model.predict_proba(x)
    return {"metric": _score(table, y, found, getattr(model, "classes_", np.empty(0)))}
