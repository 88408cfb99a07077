"""Attacks on the rules of today, again by somebody who did not write them: all within the protocol."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from securevfl_crypto.ring import decode_words

import securevfl as sv
from benchmarks.asking.attacks import Attack, numbers
from benchmarks.asking.readers import explained
from benchmarks.asking.runs import Asked, Asker, job_on_shares
from benchmarks.asking.tables import Rows, Table
from securevfl.shares import metrics, programs
from securevfl.shares.course import SharedCourse

__all__ = ["THIRD"]

_PEOPLE = 6
_EPOCHS = 100
_DEBUG, _METRICS = False, "rounded"
_EDGES = np.array(metrics.EDGES)
_JUMPS = np.array(metrics._slope_changes()) / 2**10
_LR, _MOM = 1.0, 0.0


@contextmanager
def _weights_of_own_run() -> Iterator[list[np.ndarray]]:
    """The first layer before each set of metrics, (columns + 1, outputs), of a run whose parties are all the
    attacker's own."""
    found: list[np.ndarray] = []
    parts: dict[int, list[np.ndarray]] = defaultdict(list)
    honest = SharedCourse.validate

    async def validated(this: Any, sizes: Any, words: Any) -> Any:
        if this.network is not None:
            (layer,) = this.network.weights.values()
            parts[this.epoch].append(layer.mine)
            if len(parts[this.epoch]) == 3:
                found.append(decode_words(sum(parts[this.epoch][1:], parts[this.epoch][0])))
        return await honest(this, sizes, words)

    with patch.object(SharedCourse, "validate", validated):
        yield found


@contextmanager
def _losses() -> Iterator[list[float]]:
    """The log-losses that are opened to the asker."""
    found: list[float] = []
    honest = programs.SharesActive.evaluate_rows

    async def evaluated(this: Any, rows: Any, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        got: dict[str, float] = await honest(this, rows, keep=keep, judge=judge)
        if judge:
            found.append(got["log_loss"] if "log_loss" in got else got[programs.BEST])
        return got

    with patch.object(programs.SharesActive, "evaluate_rows", evaluated):
        yield found


def one_unknown_row(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """Everybody whose rows train and validate is known to the asker but one person who validates. The asker runs the
    job by itself, with all parties, so it knows the weights; what the known rows leave of each epoch's log-loss is the
    loss of that person: an equation in the person's columns for each set of metrics. The columns that solve the
    equations best are read."""
    people, epochs = (2, 30) if quick else (_PEOPLE, _EPOCHS)
    rows = table.draw_rows(400, 200, 1, seed)
    targets = table.draw_rows(600, 1, people + 1, seed).test[1:]
    train, known = rows.train, rows.valid[1:]
    coin = np.random.default_rng([seed, 31]).integers(0, 2, len(table.label))
    whole = table.whole
    mean, spread = whole[train].mean(axis=0), whole[train].std(axis=0)
    read, truth, logits, sets, counted, guessed = [], [], [], 0, [], []
    last = Asked()
    for number, person in enumerate(targets):
        asked = Rows(train, np.concatenate([known, [person]]), rows.test)
        terms: dict[str, Any] = {"metrics": _METRICS, "lr": _LR, "momentum": _MOM, "epochs": epochs, "batch_size": 32, "keep": "last"}
        terms["seed"] = seed + number
        asker = Asker(rules)
        job = job_on_shares(rules, table.parties(asked, label=coin), sv.LogisticRegression(), **terms)
        with _losses() as heard:
            last = asker.train(job, table.parties(asked, label=coin), numbers(asked))
        if not heard:
            return last.figures()
        counted.append(_count(asker, table, asked, person))
        blank = _with_blank_row(table, person)
        own = job_on_shares(
            "off", blank.parties(asked, label=coin), sv.LogisticRegression(), **(terms | {"metrics": "rounded"})
        )
        with _weights_of_own_run() as weights:
            Asker("off").train(own, blank.parties(asked, label=coin), numbers(asked))
        x = ((whole - mean) / spread).clip(-5, 5)
        solve = _solve if _METRICS == "rounded" else _weigh
        found = solve(x, np.hstack(weights), np.array(heard), known, person, coin, table, train)
        read.append(found)
        guessed.append(_guess(x, table, train, person))
        truth.append(x[person, table.own.shape[1] :])
        logits.append(float((x[person] @ np.hstack(weights)[:-1] + np.hstack(weights)[-1]).std()))
        sets += len(heard)
    estimate, true = np.array(read), np.array(truth)
    unexplained, columns = (estimate - true) ** 2, np.maximum(true**2, 0)
    return {
        "people": len(targets),
        "sets of metrics": sets,
        "numbers counted for each": counted,
        "deviation of the person's logits over epochs": round(float(np.mean(logits)), 2),
        "R2 of all columns": round(float(1 - unexplained.sum() / columns.sum()), 3),
        "R2 by the mean of known rows": round(
            float(1 - ((np.array(guessed) - true) ** 2).sum() / columns.sum()), 3
        ),
        "median error": round(float(np.median(np.abs(estimate - true))), 3),
        "correlation": round(float(np.corrcoef(estimate.ravel(), true.ravel())[0, 1]), 3),
        "last": last.words[:160],
    }


def _count(asker: Asker, table: Table, asked: Rows, person: int) -> int:
    people = table.parties(asked)
    return int(asker.counted(people, next(iter(table.passive)), [f"p{person:06d}"])[0])


def _with_blank_row(table: Table, person: int) -> Table:
    """The table as the asker has it: of one person it has its own columns alone."""
    passive = {name: x.copy() for name, x in table.passive.items()}
    for x in passive.values():
        x[person] = 0
    return Table(table.name, table.own, passive, table.label)


def _solve(
    x: np.ndarray,
    weights: np.ndarray,
    losses: np.ndarray,
    known: np.ndarray,
    person: int,
    labels: np.ndarray,
    table: Table,
    train: np.ndarray,
) -> np.ndarray:
    """The person's passive columns that fit the losses, (d,)."""
    from scipy.optimize import least_squares

    own = table.own.shape[1]
    steps = min(weights.shape[1], len(losses))
    w, bias = weights[:-1, :steps], weights[-1, :steps]

    def loss(z: np.ndarray, y: np.ndarray | int) -> np.ndarray:
        found: np.ndarray = np.maximum(z[..., None] - _EDGES, 0) @ _JUMPS - y * z
        return found

    z = x[known] @ w + bias
    y = labels[known][:, None]
    rest = losses[:steps] * (len(known) + 1) - loss(z, y).sum(axis=0)
    if _DEBUG:
        full = x[person] @ w + bias
        print(np.round(rest[:12], 2), np.round(loss(full, labels[person])[:12], 2), np.abs(z).max(), (rest-loss(full, labels[person])).std())
    partly = x[person, :own] @ w[:own] + bias
    covariance = np.cov(x[train][:, own:].T) + 0.05 * np.eye(x.shape[1] - own)
    whiten = np.linalg.cholesky(np.linalg.inv(covariance)).T
    error = 0.1

    def residual(v: np.ndarray) -> np.ndarray:
        misfit = (loss(partly + v @ w[own:], labels[person]) - rest) / error
        return np.concatenate([misfit, whiten @ v])

    tries = [least_squares(residual, start, loss="soft_l1") for start in _starts(x[train][:, own:])]
    return min(tries, key=lambda one: one.cost).x


def _weigh(
    x: np.ndarray,
    weights: np.ndarray,
    bits: np.ndarray,
    known: np.ndarray,
    person: int,
    labels: np.ndarray,
    table: Table,
    train: np.ndarray,
) -> np.ndarray:
    """The mean of likely rows with which the known ones would give these bits: an epoch's AUC is the best so far."""
    own = table.own.shape[1]
    steps = min(weights.shape[1], len(bits))
    w, bias = weights[:-1, :steps], weights[-1, :steps]
    z, y = x[known] @ w + bias, labels[known]
    above = (z[:, :, None] > _EDGES).astype(np.int64)
    true, every = above[y == 1].sum(axis=0), above.sum(axis=0)
    full = np.concatenate([np.full((steps, 1), len(known)), every, np.zeros((steps, 1), np.int64)], axis=1)
    good = np.concatenate([np.full((steps, 1), int(y.sum())), true, np.zeros((steps, 1), np.int64)], axis=1)
    kinds = np.arange(len(_EDGES) + 1)  # how many edges the person's logit exceeds
    more = (kinds[:, None] >= np.arange(len(_EDGES) + 2)[None, :]).astype(np.int64)  # (kinds, edges + 2)
    good_with = good[:, None, :] + more * int(labels[person])
    bad_with = (full - good)[:, None, :] + more * (1 - int(labels[person]))
    area = ((bad_with[..., :-1] - bad_with[..., 1:]) * (good_with[..., :-1] + good_with[..., 1:])).sum(axis=-1) / 2
    auc = area / (good_with[..., 0] * bad_with[..., 0])  # (steps, kinds)
    draw = np.random.default_rng(5)
    both = np.concatenate([train, known])
    rows = x[both][draw.integers(0, len(both), 40000)][:, own:]
    rows = rows + 0.3 * draw.normal(size=rows.shape)
    logits = x[person, :own] @ w[:own] + bias + rows @ w[own:]
    kind = (logits[:, :, None] > _EDGES).sum(axis=-1)
    figures = np.round(auc[np.arange(steps), kind] * 2**10) / 2**10
    best = np.maximum.accumulate(figures, axis=1)
    said = np.concatenate([np.ones((len(rows), 1)), figures[:, 1:] > best[:, :-1]], axis=1)
    wrong = (said != bits[:steps]).sum(axis=1)
    weight = np.exp(-2.0 * (wrong - wrong.min()))
    if _DEBUG:
        print("bits", int(bits[:steps].sum()), "of", steps, "wrong", wrong.min(), np.median(wrong))
    return (rows * weight[:, None]).sum(axis=0) / weight.sum()


def _guess(x: np.ndarray, table: Table, train: np.ndarray, person: int) -> np.ndarray:
    """The person's passive columns from its own ones, by ridge regression on the rows that train."""
    own = table.own.shape[1]
    a, b = x[train][:, :own], x[train][:, own:]
    found: np.ndarray = x[person, :own] @ np.linalg.solve(a.T @ a + len(a) * 0.1 * np.eye(own), a.T @ b)
    return found


def _starts(columns: np.ndarray) -> Iterator[np.ndarray]:
    yield np.zeros(columns.shape[1])
    yield from columns[:20]


THIRD: Mapping[str, Attack] = {one.__name__.replace("_", " "): one for one in (one_unknown_row,)}
"""Name → attack on real shares."""
