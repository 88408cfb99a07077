"""The baseline a user would try first: scikit-learn's gradient boosted trees over one table in the clear.

Trees see the columns as they are: gaps stay gaps, categories are codes. Settings are the library's own but for the loss
and the seed; how many trees count is chosen on the validation rows, as a network's epoch is. The metrics are those of
the job, so that the figures stand beside the networks'.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.data import FeatureEncoder, PartyTable
from securevfl.errors import InputError
from securevfl.party import Job
from securevfl.party.numbering import own_labels
from securevfl.party.weights import class_weights
from securevfl.run.threads import tree_threads
from securevfl.training import Split, Trained
from securevfl.training.multilabel import Labels
from securevfl.training.regression import Regression
from securevfl.training.task import Task

__all__ = ["train_boosted"]

_CODES = 255
"""Most levels of a category that scikit-learn's trees take."""


def train_boosted(job: Job, table: PartyTable, rows: np.ndarray, split: Split) -> Trained:
    """Train on the training rows, score the validation and the test rows.

    Args:
        job: says the target, its loss, the weights of classes and the seed.
        table: all columns, and the labels.
        rows: of the table, (n,).
        split: numbers into `rows`.

    Raises:
        InputError: training rows without two classes, or a target that the loss is not for.
    """
    y = own_labels(table)[rows]
    weight = None if table.weight is None else table.weight[rows]
    train, valid, test = (part[_known_rows(y[part], job)] for part in (split.train, split.valid, split.test))
    encoder = FeatureEncoder.fit(table, rows[train], view="coded")
    x = encoder.transform(table, rows)
    x = x.reshape(len(x), -1)
    categorical = [0 < count <= _CODES for count in encoder.code_counts]
    counts = _row_weights(job, table, y, train, weight)
    task: Task
    if job.has_several_labels:
        if not (y[train].min(axis=0) < y[train].max(axis=0)).all():
            raise InputError("boosted trees need training rows with and without each label: leave this baseline out")
        task = Labels(len(table.classes))
    elif job.number_loss is None:
        if len(np.unique(y[train])) < 2:
            raise InputError("boosted trees need training rows of two classes: leave this baseline out")
        task = Task(len(table.classes))
    else:
        task = Regression.fit_scale(job.number_loss, y[train], None if weight is None else weight[train])
        if job.number_loss.name == "poisson" and not (y[train].min() >= 0 and y[train].sum() > 0):
            raise InputError("loss is 'poisson', and training rows have a negative target, or none above 0")
    targets = y.T if job.has_several_labels else y[None]
    with tree_threads(len(train)):
        models = [_make_model(job, categorical).fit(x[train], one[train], sample_weight=counts) for one in targets]
        staged = [_all_staged(models, part, len(table.classes)) for part in (x[valid], x[test])]
    trained = Trained(rows=len(train), classes=tuple(map(str, table.classes)), target=table.label_name, split=split)
    trained.labels, trained.valid_labels = y[test], y[valid]
    trained.weight = None if weight is None else weight[test]
    stages = [task.compute_metrics(one, y[valid], None if weight is None else weight[valid]) for one in staged[0]]
    best = int(np.argmin([one[task.loss_name] for one in stages])) if len(valid) else models[0].n_iter_ - 1
    trained.stopped = f"{best + 1} of {models[0].n_iter_} rounds of trees, chosen on the validation rows"
    trained.valid_scores, trained.scores = staged[0][best], staged[1][best]
    if len(test):
        trained.test = task.compute_metrics(trained.scores, trained.labels, trained.weight)
    return trained


def _known_rows(y: np.ndarray, job: Job) -> np.ndarray:
    found: np.ndarray = np.isfinite(y) if job.number_loss is not None else y.reshape(len(y), -1).min(axis=1) >= 0
    return found


def _make_model(job: Job, categorical: list[bool]) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    settings: dict[str, Any] = {
        "random_state": job.seed,
        "categorical_features": categorical,
        "early_stopping": False,
    }
    if job.number_loss is None:
        return HistGradientBoostingClassifier(**settings)
    loss = "poisson" if job.number_loss.name == "poisson" else "squared_error"
    return HistGradientBoostingRegressor(loss=loss, **settings)


def _row_weights(
    job: Job, table: PartyTable, y: np.ndarray, train: np.ndarray, weight: np.ndarray | None
) -> np.ndarray | None:
    """Each training row's weight in the loss; None if all weights are equal."""
    classes = None
    if job.number_loss is None and not job.has_several_labels:
        classes = class_weights(job.class_weight, tuple(map(str, table.classes)), y[train])
    own = None if weight is None else weight[train] / weight[train].mean()
    if classes is None:
        return own
    found: np.ndarray = classes[y[train]] if own is None else own * classes[y[train]]
    return found


def _all_staged(models: list[Any], x: np.ndarray, classes: int) -> list[np.ndarray]:
    """`_staged` of one model, or the likely answers for several labels, each by a separate model, (n, labels)."""
    if len(models) == 1:
        return _staged_scores(models[0], x, classes)
    each = [_staged_scores(model, x, 2) for model in models]
    return [np.column_stack([one[:, 1] for one in together]) for together in zip(*each, strict=True)]


def _staged_scores(model: Any, x: np.ndarray, classes: int) -> list[np.ndarray]:
    """After each round: probabilities (n, classes), zero for classes without a training row; or predictions (n, 1)."""
    if not len(x):
        return [np.empty((0, classes or 1))] * model.n_iter_
    if not classes:
        return [one.reshape(-1, 1) for one in model.staged_predict(x)]
    rounds = []
    for one in model.staged_predict_proba(x):
        found = np.zeros((len(x), classes))
        found[:, model.classes_] = one
        rounds.append(found)
    return rounds
