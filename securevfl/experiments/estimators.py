"""Estimators with scikit-learn's conventions: `fit` over parties, `predict`, `score`; `clone` and searches take them.

All parties' tables are in this process: this is a simulation, and rows are joined in the clear. What would cross
between the parties is protected as the estimator says, and `result_` has its receipt and ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from securevfl.cut import Protection
from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.aligned_rows import AlignedRows
from securevfl.experiments.comparison import simulate
from securevfl.party import Job
from securevfl.run.model import Model, predict
from securevfl.run.result import Result
from securevfl.run.simulation import join_parties
from securevfl.training import Algorithm

__all__ = ["VerticalClassifier", "VerticalRegressor"]

_SETTING = "algorithm__"


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

    def _build_job(self) -> Job:
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
        return Job(**terms, **(self.options or {}))

    def fit(self, X: Parties | AlignedRows, y: object = None) -> Self:
        """Train on rows that all parties have.

        Args:
            X: the parties, or some of their rows: `AlignedRows`.
            y: nothing, or the labels of these rows as `AlignedRows.y` has them, or their numbers in sorted order:
                searches hand them over.

        Raises:
            InputError: a label column of the wrong kind, labels that are not those of the table, or whatever a job
                refuses.
            SecureVFLError: whatever ended the job.
        """
        rows, job = _check_rows(X), self._build_job()
        if y is not None and not _same_labels(np.asarray(y), rows.y):
            raise InputError(
                "y is not the labels of these rows: the active party's table has them, so leave y out, or give rows.y"
            )
        tables = rows.tables()
        self.result_: Result = simulate(job, tables, aligned=join_parties(tables, job))
        self.model_: Model = self.result_.model()
        self.test_metrics_: dict[str, float] = dict(self.result_.record.runs[-1].test)
        return self

    def _score_rows(self, X: Parties | AlignedRows) -> np.ndarray:
        """The model's scores of these rows, in their order, (n, classes) or (n, 1)."""
        check_is_fitted(self, "model_")
        rows = _check_rows(X)
        tables = rows.tables()
        found = predict(self.model_, tables, aligned=join_parties(tables, self.model_.job))
        place = {one: i for i, one in enumerate(found.ids)}
        scores: np.ndarray = found.probabilities[[place[one] for one in rows.ids]]
        return scores


def _same_labels(given: np.ndarray, own: np.ndarray) -> bool:
    """Whether labels are the table's own, or their numbers in sorted order, which `cross_val_predict` makes of them."""
    if np.array_equal(given, own):
        return True
    if given.shape != own.shape or given.dtype.kind not in "iu" or own.dtype.kind == "f":
        return False
    return np.array_equal(np.unique(given, return_inverse=True)[1], np.unique(own, return_inverse=True)[1])


def _check_rows(given: Parties | AlignedRows) -> AlignedRows:
    if isinstance(given, Parties):
        return AlignedRows(given)
    if isinstance(given, AlignedRows):
        return given
    raise InputError(
        f"X is a {type(given).__name__}; an estimator takes sv.Parties (sv.Parties.from_pandas makes them of frames), "
        "or sv.AlignedRows of them"
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

    Attributes:
        result_: what `simulate` gave: metrics, receipt, ledgers, report.
        model_: what was learned, each party's part.
        classes_: values of the label, (classes,).
        test_metrics_: of the job's own test rows.

    Raises:
        InputError: `fit` was given something else than parties.
        sklearn.exceptions.NotFittedError: `predict` before `fit`.
    """

    def fit(self, X: Parties | AlignedRows, y: object = None) -> Self:
        """See `_Vertical.fit`."""
        super().fit(X, y)
        self.classes_ = np.asarray(_check_rows(X).parties.active.classes)
        return self

    def predict_proba(self, X: Parties | AlignedRows) -> np.ndarray:
        """Probabilities (n, classes) of rows that all parties have, in the order of `classes_`."""
        return self._score_rows(X)

    def predict(self, X: Parties | AlignedRows) -> np.ndarray:
        """The likeliest class of each row, (n,)."""
        likeliest = self._score_rows(X).argmax(axis=1)
        found: np.ndarray = self.classes_[likeliest]
        return found

    def score(self, X: Parties | AlignedRows, y: object = None, sample_weight: np.ndarray | None = None) -> float:
        """Accuracy on these rows.

        Args:
            X: parties, or rows of them.
            y: nothing, or their labels.
            sample_weight: how much each row counts, (n,).
        """
        rows = _check_rows(X)
        return float(super().score(rows, rows.y if y is None else y, sample_weight))


class VerticalRegressor(RegressorMixin, _Vertical):  # type: ignore[misc]
    """A regressor over the columns of several parties; parameters and attributes as for `VerticalClassifier`, without
    classes. The label of the parties is a number (``target="number"``). `options` may name the loss:
    ``{"loss": "poisson"}``.
    """

    _task = "regression"

    def predict(self, X: Parties | AlignedRows) -> np.ndarray:
        """The predicted value of each row, in the target's units, (n,)."""
        found: np.ndarray = self._score_rows(X)[:, 0]
        return found

    def score(self, X: Parties | AlignedRows, y: object = None, sample_weight: np.ndarray | None = None) -> float:
        """R² on these rows. Arguments as for `VerticalClassifier.score`."""
        rows = _check_rows(X)
        return float(super().score(rows, rows.y if y is None else y, sample_weight))
