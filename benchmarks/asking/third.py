"""Attacks on the rules of today, again by somebody who did not write them: all within the protocol."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import least_squares
from securevfl_crypto.ring import decode_words

import securevfl as sv
from benchmarks.asking.attacks import Attack, numbers
from benchmarks.asking.runs import Asked, Asker, job_on_shares
from benchmarks.asking.tables import Rows, Table
from securevfl.shares import metrics, programs
from securevfl.shares.course import SharedCourse

__all__ = ["THIRD", "read_unknown_row"]

_PEOPLE = 6
_EPOCHS = 30
_TERMS: dict[str, Any] = {"lr": 2.0, "momentum": 0.0, "batch_size": 32, "keep": "last"}
"""Steps so large that the weights, which the asker knows, point elsewhere after each epoch."""
_CLIP = 5.0
_LOSS_ERROR = 0.1
"""Of one row's loss, from a mean over 200 rows that is rounded at 2^-10."""
_DRAWN = 40_000
_EDGES = np.array(metrics.EDGES)
_JUMPS = np.array(metrics._slope_changes()) / 2**metrics._SLOPE_BITS


@dataclass(frozen=True, eq=False)
class _Asked:
    """What the asker knows when it solves for a person.

    Attributes:
        x: all columns as they enter, standardised by the rows that train, (n, d); of the person only its own are used.
        own: how many of them are the asker's.
        labels: (n,).
        train, known: rows whose columns it knows; the known ones validate.
        person: the row that validates beside them.
        weights: of each epoch, (d + 1, epochs).
        heard: what was opened after each epoch.
    """

    x: np.ndarray = field(repr=False)
    own: int
    labels: np.ndarray = field(repr=False)
    train: np.ndarray = field(repr=False)
    known: np.ndarray = field(repr=False)
    person: int
    weights: np.ndarray = field(repr=False)
    heard: np.ndarray = field(repr=False)

    @property
    def known_logits(self) -> np.ndarray:
        """Of the known rows after each epoch, (n, epochs)."""
        found: np.ndarray = self.x[self.known] @ self.weights[:-1] + self.weights[-1]
        return found

    def logits(self, columns: np.ndarray) -> np.ndarray:
        """The person's after each epoch, if its columns were these, (…, d) → (…, epochs)."""
        mine: np.ndarray = self.x[self.person, : self.own] @ self.weights[: self.own] + self.weights[-1]
        found: np.ndarray = mine + columns @ self.weights[self.own : -1]
        return found


@contextmanager
def _own_weights() -> Iterator[list[np.ndarray]]:
    """The layer before each set of metrics, (d + 1, 1), of a run whose parties are all the attacker's own."""
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
def _heard() -> Iterator[list[float]]:
    """The log-losses, or bits, that are opened to the asker."""
    found: list[float] = []
    honest = programs.SharesActive.evaluate_rows

    async def evaluated(this: Any, rows: Any, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        got: dict[str, float] = await honest(this, rows, keep=keep, judge=judge)
        if judge:
            found.append(got.get("log_loss", got.get(programs.BEST, 0.0)))
        return got

    with patch.object(programs.SharesActive, "evaluate_rows", evaluated):
        yield found


def one_unknown_row(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """Everybody whose rows train and validate is known to the asker but one person who validates. It runs the job by
    itself, with all parties, so it knows the weights of each epoch; the known rows' part of what is opened then leaves
    an equation in that person's columns. With rounded metrics, which a policy has to allow by as many numbers, and with
    bits, which is what is opened by default."""
    found: dict[str, Any] = {}
    for opened in ("best", "rounded"):
        read = [read_unknown_row(table, opened, seed, number) for number in range(2 if quick else _PEOPLE)]
        truth, got, guess = (np.array([one[k] for one in read]) for k in range(3))
        spread = (truth**2).sum()
        found[opened] = {
            "people": len(read),
            "R2": round(float(1 - ((got - truth) ** 2).sum() / spread), 3),
            "R2 of a guess": round(float(1 - ((guess - truth) ** 2).sum() / spread), 3),
            "numbers counted for each": sorted({one[3] for one in read}),
        }
    return found


def read_unknown_row(
    table: Table, opened: str, seed: int, number: int, epochs: int = _EPOCHS
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Read one person's columns from what the validation of a job opens.

    Args:
        table: asked about.
        opened: ``"best"`` or ``"rounded"``.
        seed: of the rows.
        number: of the person.
        epochs: sets of metrics.

    Returns:
        The passive columns, standardised; what is read; what the asker's own columns alone give; numbers that were
        counted for the person.
    """
    rows = table.draw_rows(400, 200, 20, seed)
    person, train, known = int(rows.test[1 + number]), rows.train, rows.valid[1:]
    asked = Rows(train, np.concatenate([known, [person]]), rows.test[:1])
    coin = np.random.default_rng([seed, 31]).integers(0, 2, len(table.label))
    terms = _TERMS | {"epochs": epochs, "seed": seed + number}
    policies = {name: sv.Policy(max_results=max(epochs, 2), useful="off") for name in table.passive}
    people, asker = table.parties(asked, label=coin), Asker("on")
    job = job_on_shares("on", people, sv.LogisticRegression(), metrics=opened, useful="off", **terms)
    with _heard() as heard:
        last = asker.train(job.replace(policies=policies), people, numbers(asked))
    if not heard:
        raise RuntimeError(f"the attack was refused before anything was opened: {last.words}")
    blank = _with_blank_row(table, person)
    own = blank.parties(asked, label=coin)
    with _own_weights() as weights:
        _run_alone(own, terms, asked)
    whole = table.whole
    x = ((whole - whole[train].mean(axis=0)) / whole[train].std(axis=0)).clip(-_CLIP, _CLIP)
    told = _Asked(
        x=x,
        own=table.own.shape[1],
        labels=coin,
        train=train,
        known=known,
        person=person,
        weights=np.hstack(weights)[:, : len(heard)],
        heard=np.array(heard),
    )
    counted = asker.counted(people, next(iter(table.passive)), [f"p{person:06d}"])
    solved = _weigh_rows(told) if opened == "best" else _solve_losses(told)
    return x[person, told.own :], solved, _guess(told), int(counted[0])


def _run_alone(people: sv.Parties, terms: dict[str, Any], asked: Rows) -> Asked:
    job = job_on_shares("off", people, sv.LogisticRegression(), metrics="rounded", **terms)
    return Asker("off").train(job, people, numbers(asked))


def _with_blank_row(table: Table, person: int) -> Table:
    """The table as the asker has it: of one person it has its own columns alone."""
    passive = {name: x.copy() for name, x in table.passive.items()}
    for x in passive.values():
        x[person] = 0
    return Table(table.name, table.own, passive, table.label)


def _loss(z: np.ndarray, y: np.ndarray | int) -> np.ndarray:
    """The log-loss as it is computed on shares, by chords."""
    found: np.ndarray = np.maximum(z[..., None] - _EDGES, 0) @ _JUMPS - y * z
    return found


def _solve_losses(told: _Asked) -> np.ndarray:
    """The columns that fit the losses which the known rows leave, (d,), near what columns are like."""
    known = _loss(told.known_logits, told.labels[told.known][:, None]).sum(axis=0)
    rest = told.heard * (len(told.known) + 1) - known
    others = told.x[told.train][:, told.own :]
    covariance = np.cov(others.T) + 0.05 * np.eye(others.shape[1])
    whiten = np.linalg.cholesky(np.linalg.inv(covariance)).T

    def misfit(columns: np.ndarray) -> np.ndarray:
        found = _loss(told.logits(columns), told.labels[told.person]) - rest
        return np.concatenate([found / _LOSS_ERROR, whiten @ columns])

    starts = [np.zeros(others.shape[1]), *others[:3]]
    best = min((least_squares(misfit, start, loss="soft_l1") for start in starts), key=lambda one: float(one.cost))
    found: np.ndarray = best.x
    return found


def _weigh_rows(told: _Asked) -> np.ndarray:
    """The mean of the rows with which the AUCs would give these bits, (d,), of many that are like the known ones."""
    draw, both = np.random.default_rng(5), np.concatenate([told.train, told.known])
    rows = told.x[both][draw.integers(0, len(both), _DRAWN)][:, told.own :]
    rows = rows + 0.3 * draw.normal(size=rows.shape)
    places = (told.logits(rows)[:, :, None] > _EDGES).sum(axis=-1)
    figures = _areas(told)[np.arange(len(told.heard)), places]
    best = np.maximum.accumulate(np.round(figures * 2**metrics.METRIC_BITS), axis=1)
    said = np.concatenate([np.ones((len(rows), 1)), best[:, 1:] > best[:, :-1]], axis=1)
    wrong = (said != told.heard).sum(axis=1)
    weight = np.exp(-2.0 * (wrong - wrong.min()))
    mean: np.ndarray = (rows * weight[:, None]).sum(axis=0) / weight.sum()
    return mean


def _areas(told: _Asked) -> np.ndarray:
    """The AUC after each epoch, by the number of edges that the person's logit exceeds, (epochs, edges + 1)."""
    y, steps = told.labels[told.known], len(told.heard)
    above = told.known_logits[:, :, None] > _EDGES
    none = np.zeros((steps, 1), np.int64)
    every = np.concatenate([np.full((steps, 1), len(y)), above.sum(axis=0), none], axis=1)
    true = np.concatenate([np.full((steps, 1), y.sum()), above[y == 1].sum(axis=0), none], axis=1)
    more = np.tri(len(_EDGES) + 1, len(_EDGES) + 2, dtype=np.int64)
    mine = int(told.labels[told.person])
    good = true[:, None, :] + more * mine
    bad = (every - true)[:, None, :] + more * (1 - mine)
    pairs = (bad[..., :-1] - bad[..., 1:]) * (good[..., :-1] + good[..., 1:])
    found: np.ndarray = pairs.sum(axis=-1) / 2 / (good[..., 0] * bad[..., 0])
    return found


def _guess(told: _Asked) -> np.ndarray:
    """The person's columns from the asker's own ones, by ridge regression on the rows that train, (d,)."""
    mine, others = told.x[told.train][:, : told.own], told.x[told.train][:, told.own :]
    square = mine.T @ mine + 0.1 * len(mine) * np.eye(told.own)
    found: np.ndarray = told.x[told.person, : told.own] @ np.linalg.solve(square, mine.T @ others)
    return found


THIRD: Mapping[str, Attack] = {"one unknown row": one_unknown_row}
"""Name → attack on real shares."""
