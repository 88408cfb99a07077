"""Estimators with scikit-learn's conventions: `fit` over parties, `predict`, `score`; `clone` and searches take them.

All parties' tables are in this process: this is a simulation, and rows are joined in the clear. What would cross
between the parties is protected as the estimator says, and `result_` has its receipt and ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from securevfl.cut import Protection
from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.aligned_rows import AlignedRows, same_labels, set_row_weights
from securevfl.experiments.comparison import simulate
from securevfl.experiments.model_handle import ModelHandle, save_under
from securevfl.experiments.party_columns import Columns, column_names_of, is_matrix, rows_of_matrix
from securevfl.party import Job, check_trains
from securevfl.run.model import Model, predict
from securevfl.run.result import Result
from securevfl.run.simulation import join_parties
from securevfl.training import Algorithm

__all__ = ["VerticalClassifier", "VerticalRegressor"]

_SETTING = "algorithm__"

Rows: TypeAlias = Any
"""`Parties`, `AlignedRows`, or a frame or an array of all parties' columns."""


class _Vertical(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of both estimators; see `VerticalClassifier`."""

    _task = "classification"

    def __init__(
        self,
        algorithm: Algorithm | str = "splitnn",
        *,
        protection: Protection | str = "plain",
        epochs: int = 20,
        batch_size: int = 256,
        patience: int | None = None,
        valid: float = 0.1,
        test: float = 0.1,
        scale: str = "auto",
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        columns: Columns | None = None,
        active: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.protection = protection
        self.epochs = epochs
        self.batch_size = batch_size
        self.patience = patience
        self.valid = valid
        self.test = test
        self.scale = scale
        self.seed = seed
        self.options = options
        self.columns = columns
        self.active = active
        self.folder = folder

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with `deep` also each setting of the algorithm, as ``algorithm__NAME``."""
        found: dict[str, Any] = super().get_params(deep=False)
        if deep:
            made = self._resolve_algorithm()
            found |= {f"{_SETTING}{name}": getattr(made, name) for name in made.__struct_fields__}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``algorithm__NAME`` sets one of the algorithm's.

        Raises:
            ValueError: a parameter that does not exist.
            InputError: a value that the algorithm does not take.
        """
        settings = {key.removeprefix(_SETTING): params.pop(key) for key in list(params) if key.startswith(_SETTING)}
        super().set_params(**params)
        if settings:
            made = self._resolve_algorithm()
            unknown = sorted(set(settings) - set(made.__struct_fields__))
            if unknown:
                known = ", ".join(made.__struct_fields__)
                raise ValueError(f"{made.name} has no setting {unknown[0]!r}; it has {known}")
            self.algorithm = made.replace(**settings)
        return self

    def _resolve_algorithm(self) -> Algorithm:
        return self.algorithm if isinstance(self.algorithm, Algorithm) else Algorithm.from_values(self.algorithm)

    def _job_terms(self) -> dict[str, Any]:
        """The fields of the job."""
        terms: dict[str, Any] = {
            "algorithm": self.algorithm,
            "protection": self.protection,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "patience": self.patience,
            "valid": self.valid,
            "test": self.test,
            "scale": self.scale,
            "seed": self.seed,
            "task": self._task,
        }
        return terms | dict(self.options or {})

    def fit(self, X: Rows, y: object = None, sample_weight: object = None) -> Self:
        """Train on rows that all parties have.

        Args:
            X: the parties, or some of their rows: `AlignedRows`; or a frame or an array of all parties' columns, see
                the class.
            y: labels of a frame's rows, (n,). With parties nothing, or the labels of these rows as `AlignedRows.y` has
                them, or their numbers in sorted order: searches hand them over.
            sample_weight: how much each row counts in training and in metrics, (n,), from 0 up, in place of weights
                that the active party's table has.

        Raises:
            InputError: a label column of the wrong kind, labels that are not those of the table, weights where the
                algorithm or the protection cannot weigh rows, or whatever a job refuses.
            SecureVFLError: whatever ended the job.
        """
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if is_matrix(X):
            if y is None:
                raise InputError("X is a frame or an array, so y is needed: the label of each row")
            target = "number" if self._task == "regression" else "classes"
            rows = rows_of_matrix(X, self.columns, self.active, y=np.asarray(y), weight=weight, target=target)
            self.n_features_in_ = int(X.shape[1])
            names = column_names_of(X)
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)
        else:
            rows = set_row_weights(_check_rows(X), weight)
            if y is not None and not same_labels(np.asarray(y), rows.y):
                raise InputError(
                    "y is not the labels of these rows: the active party's table has them, so leave y out, or give "
                    "rows.y"
                )
        self._terms = self._job_terms()
        tables, job = rows.tables(), Job(**self._terms)
        check_trains(job.algorithm, "to fit")
        self.result_: Result = simulate(job, tables, aligned=join_parties(tables, job))
        self.model_: Model = self.result_.model()
        self._handle: ModelHandle | None = None
        self.active_ = tables.active.name
        self.test_metrics_: dict[str, float] = dict(self.result_.record.runs[-1].test)
        self._keep_classes(tables)
        return self

    def _keep_classes(self, tables: Parties) -> None:
        """Keep what predictions need of the active party's labels; nothing of numbers."""

    def save(self, folder: str | Path) -> Path:
        """Save the fitted model, each party's part in its own file; what is dumped from then on names this folder.

        Returns:
            The folder.
        """
        check_is_fitted(self, "model_")
        place = self.model_.save(folder).absolute()
        self._handle = ModelHandle(str(place), self.model_.digest, self._terms)
        return place

    def __getstate__(self) -> dict[str, Any]:
        """The parameters, and a handle of the fitted model in place of its weights and its result; see `ModelHandle`.

        A model that was not saved is saved now: under `folder`, or in a temporary folder.
        """
        state: dict[str, Any] = dict(super().__getstate__())
        if "model_" in state:
            if self._handle is None:
                self.save(save_under(self.model_, self.folder))
            state["_handle"] = self._handle
            del state["model_"]
            state.pop("result_", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read the model that a handle names.

        Raises:
            InputError: it is gone, or has changed.
        """
        super().__setstate__(state)
        if (handle := state.get("_handle")) is not None:
            self.model_ = handle.load()

    def _rows_to_score(self, X: Rows) -> AlignedRows:
        check_is_fitted(self, "model_")
        if is_matrix(X):
            return rows_of_matrix(X, self.columns, self.active_)
        rows = _check_rows(X)
        if rows.parties.active.name != self.active_:
            raise InputError(
                f"{self.active_!r} had the labels when the model was trained; of these rows "
                f"{rows.parties.active.name!r} has them"
            )
        return rows

    def _score_rows(self, X: Rows) -> np.ndarray:
        """The model's scores of these rows, in their order, (n, classes) or (n, 1)."""
        rows = self._rows_to_score(X)
        tables = rows.tables()
        found = predict(self.model_, tables, aligned=join_parties(tables, self.model_.job))
        place = {one: i for i, one in enumerate(found.ids)}
        scores: np.ndarray = found.probabilities[[place[one] for one in rows.ids]]
        return scores


def _check_rows(given: Rows) -> AlignedRows:
    if isinstance(given, Parties):
        return AlignedRows(given)
    if isinstance(given, AlignedRows):
        return given
    raise InputError(
        f"X is a {type(given).__name__}; an estimator takes sv.Parties (sv.Parties.from_pandas makes them of frames), "
        "sv.AlignedRows of them, or a pandas DataFrame whose columns are called PARTY.COLUMN"
    )


class VerticalClassifier(ClassifierMixin, _Vertical):  # type: ignore[misc]
    """A classifier over the columns of several parties, in one process.

    Args:
        algorithm: what is trained, or its name for its defaults. In a search, ``algorithm__NAME`` is a setting of it.
        protection: what protects what crosses, or its name. The default is in the clear: the parties of a simulation
            are one process.
        epochs: most epochs; of `Boosting`, rounds.
        batch_size: rows in a batch.
        patience: epochs without a gain on the validation rows after which training stops.
        valid: share of the rows that validates.
        test: share of the rows that the job tests on, for `test_metrics_`; they do not train.
        scale: how numbers are scaled, see `Job`.
        seed: of splits, batches and first weights.
        options: further fields of `Job`.
        columns: where X is one frame or array: party → its columns, names or positions. Unless given, columns are
            called ``PARTY.COLUMN``.
        active: where X is one frame or array: the party that has the labels.
        folder: where a fitted estimator saves its model when it is dumped or sent to another process; a temporary
            folder unless given, which nobody removes but the system.

    What is dumped is a handle: the path of the model's folder and the model's digest, without weights. To load it
    reads that folder and verifies the digest. `result_` is not part of a dump.

    Attributes:
        result_: what `simulate` gave: metrics, receipt, ledgers, report.
        model_: what was learned, each party's part.
        classes_: values of the label, (classes,).
        active_: the party that has the labels.
        test_metrics_: of the job's own test rows.

    Raises:
        InputError: `fit` was given something else than parties.
        sklearn.exceptions.NotFittedError: `predict` before `fit`.
    """

    def _keep_classes(self, tables: Parties) -> None:
        self.classes_ = np.asarray(tables.active.classes)

    def predict_proba(self, X: Rows) -> np.ndarray:
        """Probabilities (n, classes) of rows that all parties have, in the order of `classes_`."""
        return self._score_rows(X)

    def predict(self, X: Rows) -> np.ndarray:
        """The likeliest class of each row, (n,)."""
        likeliest = self._score_rows(X).argmax(axis=1)
        found: np.ndarray = self.classes_[likeliest]
        return found

    def score(self, X: Rows, y: object = None, sample_weight: np.ndarray | None = None) -> float:
        """Accuracy on these rows.

        Args:
            X: as for `fit`.
            y: of a frame's rows their labels; of parties nothing, or their labels.
            sample_weight: how much each row counts, (n,).
        """
        if is_matrix(X):
            return float(super().score(X, y, sample_weight))
        rows = _check_rows(X)
        return float(super().score(rows, rows.y if y is None else y, sample_weight))


class VerticalRegressor(RegressorMixin, _Vertical):  # type: ignore[misc]
    """A regressor over the columns of several parties; parameters and attributes as for `VerticalClassifier`, without
    classes. The label of the parties is a number (``target="number"``). `options` may name the loss:
    ``{"loss": "poisson"}``.
    """

    _task = "regression"

    def predict(self, X: Rows) -> np.ndarray:
        """The predicted value of each row, in the target's units, (n,)."""
        found: np.ndarray = self._score_rows(X)[:, 0]
        return found

    def score(self, X: Rows, y: object = None, sample_weight: np.ndarray | None = None) -> float:
        """R² on these rows. Arguments as for `VerticalClassifier.score`."""
        if is_matrix(X):
            return float(super().score(X, y, sample_weight))
        rows = _check_rows(X)
        return float(super().score(rows, rows.y if y is None else y, sample_weight))
