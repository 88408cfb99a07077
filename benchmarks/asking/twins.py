"""The same attacks on twins in the clear: logistic regression by Newton's method, for matrices of many jobs and for how
often the rules refuse an honest one. The rules are written here a second time, so that a twin shows what each of them
does alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.asking.readers import columns_read
from benchmarks.asking.tables import Rows, Table
from securevfl.attacks.measure import auc

__all__ = ["KINDS", "Model", "fit_logistic", "is_useful", "matrix", "passes"]

_GRAIN, _CLIP, _COUNT = 2.0**-4, 8.0, 2
_JOBS = 24


@dataclass(frozen=True, eq=False)
class Model:
    """A logistic regression.

    Attributes:
        weights: of all columns, the asker's first, then the bias, (d + 1,).
        own: number of the asker's columns.
    """

    weights: np.ndarray
    own: int

    def logits(self, x: np.ndarray) -> np.ndarray:
        """(n,) of rows (n, d)."""
        found: np.ndarray = x @ self.weights[:-1] + self.weights[-1]
        return found

    def part(self, x: np.ndarray) -> np.ndarray:
        """What the passive columns add to each logit."""
        found: np.ndarray = x[:, self.own :] @ self.weights[self.own : -1]
        return found


def _sigmoid(z: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-np.clip(z, -30, 30)))
    return found


def fit_logistic(x: np.ndarray, y: np.ndarray, own: int, *, penalty: float = 0.1, steps: int = 8) -> Model:
    """Fit by Newton's method; first weights are zero.

    Args:
        x: rows, (n, d).
        y: 0 or 1, (n,).
        own: number of the asker's columns.
        penalty: on the squares of the weights.
        steps: of the method.
    """
    wide = np.column_stack([x, np.ones(len(x))])
    weights = np.zeros(wide.shape[1])
    for _ in range(steps):
        p = _sigmoid(wide @ weights)
        slope = wide.T @ (p - y) + penalty * weights
        curve = (wide * np.maximum(p * (1 - p), 1e-6)[:, None]).T @ wide + penalty * np.eye(len(weights))
        weights = weights - np.clip(np.linalg.solve(curve, slope), -5, 5)
    return Model(weights, own)


def _step(x: np.ndarray, y: np.ndarray, own: int, *, rate: float, batch: int, draw: np.random.Generator) -> Model:
    """One epoch of gradient steps with momentum 0.9, as an asker chooses them to make weights noisy."""
    wide = np.column_stack([x, np.ones(len(x))])
    weights, moving = np.zeros(wide.shape[1]), np.zeros(wide.shape[1])
    order = draw.permutation(len(x))
    for first in range(0, len(order), batch):
        at = order[first : first + batch]
        moving = 0.9 * moving + wide[at].T @ (_sigmoid(wide[at] @ weights) - y[at]) / len(at)
        weights = weights - rate * moving
        weights *= min(1.0, 16 / max(float(np.linalg.norm(weights)), 1e-9))
    return Model(weights, own)


def is_useful(model: Model, x: np.ndarray, y: np.ndarray) -> bool:
    """The bit: whether the passive columns improve the Brier score of validation rows by more than one deviation of
    what chance does.

    Σ g > 0 and (Σ g)² > Σ (p − p₀)², p₀ with all passive columns at their mean.
    """
    z = model.logits(x)
    p, p0 = _sigmoid(z), _sigmoid(z - model.part(x))
    gained = float(((y - p0) ** 2 - (y - p) ** 2).sum())
    return gained > 0 and gained**2 > float(((p - p0) ** 2).sum())


Kind = Callable[[Table, np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray, str]]
"""Table and chance → labels, training rows, validation rows, how to fit."""


def _split(pool: np.ndarray, draw: np.random.Generator, train: int, valid: int) -> tuple[np.ndarray, np.ndarray]:
    order = draw.permutation(pool)
    return order[:train], order[train : train + valid]


def _mixed(label: np.ndarray, share: float, draw: np.random.Generator) -> np.ndarray:
    coin = draw.integers(0, 2, len(label))
    found: np.ndarray = np.where(draw.random(len(label)) < share, coin, label)
    return found


def _own_label(table: Table) -> np.ndarray:
    along = table.own @ np.random.default_rng(0).normal(size=table.own.shape[1])
    return (along > np.median(along)).astype(np.int64)


def _coin(table: Table, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    return (draw.integers(0, 2, len(table.label)), *_split(np.arange(8000), draw, 6400, 1600), "newton")


def _few(table: Table, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    return (draw.integers(0, 2, len(table.label)), *_split(np.arange(8000), draw, 800, 200), "newton")


def _big_steps(table: Table, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    return (draw.integers(0, 2, len(table.label)), *_split(np.arange(8000), draw, 6400, 1600), "big steps")


def _own_and_coin(table: Table, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    return (_mixed(_own_label(table), 0.2, draw), *_split(np.arange(8000), draw, 6400, 1600), "newton")


def _honest_and_coin(table: Table, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    return (_mixed(table.label, 0.3, draw), *_split(np.arange(8000), draw, 6400, 1600), "newton")


def _other_rows(table: Table, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    return (table.label, *_split(np.arange(8000), draw, 800, 200), "newton")


KINDS: Mapping[str, Kind] = {
    "coin labels, 6400 rows": _coin,
    "coin labels, 800 rows": _few,
    "coin labels, big steps": _big_steps,
    "own columns and 20 % coin": _own_and_coin,
    "honest label and 30 % coin": _honest_and_coin,
    "honest label, other 800 rows each job": _other_rows,
}
"""What 24 jobs in a row have as labels."""


def matrix(table: Table, kind: str, seed: int) -> dict[str, Any]:
    """R² of the passive parties' columns from 24 jobs about the same rows, 300 records known, under each rule alone and
    all together; and how many jobs the bit lets through.

    Args:
        table: of more than 12,000 rows, of which the first 8,000 train and validate.
        kind: of `KINDS`.
        seed: of chance.
    """
    test, x, own = np.arange(8000, 12000), table.whole, table.own.shape[1]
    answers, useful = [], []
    for job in range(_JOBS):
        draw = np.random.default_rng([seed, job, 9])
        label, train, valid, how = KINDS[kind](table, draw)
        model = (
            _step(x[train], label[train], own, rate=20.0, batch=16, draw=draw)
            if how == "big steps"
            else fit_logistic(x[train], label[train], own)
        )
        answers.append(model.logits(x[test]))
        useful.append(is_useful(model, x[valid], label[valid]))
    given = np.column_stack(answers)
    coarse = np.round(np.clip(given, -_CLIP, _CLIP) / _GRAIN) * _GRAIN
    passed = np.flatnonzero(useful)
    counted = [job for job in range(_COUNT) if useful[job]]  # a try that is refused counts, too
    opened = {
        "no rule": given,
        "grain": coarse,
        "useful": given[:, passed],
        "count": given[:, :_COUNT],
        "all rules": coarse[:, counted],
    }
    return {
        "own columns alone": table.spread(columns_read(table, test, None, known=300, seed=seed)),
        "passes": f"{len(passed)} of {_JOBS}",
        **{rule: table.spread(columns_read(table, test, one, known=300, seed=seed)) for rule, one in opened.items()},
    }


def passes(table: Table, kind: str, train: int, valid: int, tries: int) -> dict[str, Any]:
    """How often the bit lets jobs of one kind through, and what the honest job's AUC is with and without the grain.

    Args:
        table: asked about.
        kind: ``"honest"``, ``"coin"``, ``"own columns and 20 % coin"``, ``"a column, 300 rows known"``, or
            ``"one party alone: NAME"``.
        train: training rows.
        valid: validation rows.
        tries: with other rows each.
    """
    x, own = table.whole, table.own.shape[1]
    if kind.startswith("one party alone: "):
        x = np.hstack([table.own, table.passive[kind.removeprefix("one party alone: ")]])
    found, ranks, coarse, alone = [], [], [], []
    for number in range(tries):
        draw = np.random.default_rng([number, 10])
        rows = table.draw_rows(train, valid, 2000, number)
        label = _label_of(table, kind, rows, number, draw)
        if label[rows.train].min() == label[rows.train].max():
            continue
        model = fit_logistic(x[rows.train], label[rows.train], own, penalty=1.0)
        found.append(is_useful(model, x[rows.valid], label[rows.valid]))
        truth = table.label[rows.test] == 1
        z = model.logits(x[rows.test])
        ranks.append(auc(truth, z))
        coarse.append(auc(truth, np.round(np.clip(z, -_CLIP, _CLIP) / _GRAIN)))
        mine = fit_logistic(table.own[rows.train], label[rows.train], own, penalty=1.0)
        alone.append(auc(truth, mine.logits(table.own[rows.test])))
    told: dict[str, Any] = {"tries": len(found), "passes": int(np.sum(found))}
    if kind == "honest" or kind.startswith("one party"):
        told |= {
            "auc": round(float(np.mean(ranks)), 4),
            "auc at the grain": round(float(np.mean(coarse)), 4),
            "auc of own columns": round(float(np.mean(alone)), 4),
        }
        lost = [a - b for a, b, ok in zip(ranks, alone, found, strict=True) if not ok]
        told["gain of auc that refusals cost"] = round(float(np.mean(lost)), 4) if lost else 0.0
    return told


def _label_of(table: Table, kind: str, rows: Rows, number: int, draw: np.random.Generator) -> np.ndarray:
    if kind == "honest" or kind.startswith("one party alone"):
        return table.label
    if kind == "coin":
        return draw.integers(0, 2, len(table.label))
    if kind == "own columns and 20 % coin":
        return _mixed(_own_label(table), 0.2, draw)
    j = number % table.others.shape[1]
    truth = (table.others[:, j] > np.median(table.others[:, j])).astype(np.int64)
    known = np.concatenate([rows.valid[:150], rows.train[:150]])
    if truth[known].min() == truth[known].max():
        return np.zeros_like(truth)
    guess = fit_logistic(table.own[known], truth[known], table.own.shape[1], penalty=10.0)
    label = (guess.logits(table.own) > 0).astype(np.int64)
    label[known] = truth[known]
    return label
