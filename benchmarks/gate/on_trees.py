"""Attacks on boosted trees: what passive parties make of the splits and nodes that they see, and the active party of
the sides and sums that it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from benchmarks.gate.cells import Cell
from benchmarks.gate.judge import Figures, Got
from securevfl.algorithms.boosting import answering, asking
from securevfl.attacks import label_inference
from securevfl.attacks.learners import fit_classifier, fit_ridge
from securevfl.attacks.measure import Estimate, Known, auc, auc_error, draw_known, r_squared, score_ranking
from securevfl.party_context import PartySecret
from securevfl.run import join_parties
from securevfl.run.simulation import run_parties
from securevfl.testing.trial import roles_begun

__all__ = ["EQUATIONS", "Sights", "cells_read", "cells_solved", "guess_cells", "measure", "solve_cells", "watch"]

_KNOWN_LABELS, _KNOWN_RECORDS = 40, 72
_TIED = 1e-6
"""Estimates of a row's bins that differ by less are equal. Anything from 1e-9 to 1e-3 gives the same share."""
EQUATIONS = "cells: equations of sums by bin"
Said = Callable[[str, str], tuple[str, bool]]
"""Learner, whose data it is → the severity that the job states, and whether ``leaks = false`` admits it."""


@dataclass
class Sights:
    """What parties saw of the training rows.

    Attributes:
        places: passive party → node of each row, −1 for none, (n,), at each question; none where nodes are hidden.
        sides: passive party → whether rows go left at its chosen splits, bool (splits, n).
        sums: at the active party: passive party → what it was answered, int64 (nodes, codes, 2), with the slot of each
            row and the values of the tree.
    """

    places: dict[str, list[np.ndarray]] = field(default_factory=dict, repr=False)
    sides: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    sums: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = field(default_factory=dict, repr=False)


@contextmanager
def watch() -> Iterator[Sights]:
    """Record what the parties of boosting jobs inside see."""
    sights = Sights()
    answer, received = answering.TreeAnswers._send_sums, asking.TreeQueries._receive_sums
    slots: dict[int, np.ndarray] = {}
    of = asking.TreeQueries._theirs_of

    async def answered(self: Any, codes: np.ndarray, place: np.ndarray | None, nodes: int) -> None:
        if place is not None:
            whole = np.full(len(self._role.codes), -1)
            whole[self._rows] = place
            sights.places.setdefault(self._role.site.name, []).append(whole)
        await answer(self, codes, place, nodes)

    async def asked(self: Any, nodes: Any, slot: np.ndarray, totals: np.ndarray, **rest: Any) -> np.ndarray:
        slots[id(self)] = slot
        return await of(self, nodes, slot, totals, **rest)

    async def heard(self: Any, link: Any, *rest: Any, **more: Any) -> np.ndarray:
        sums = await received(self, link, *rest, **more)
        sights.sums.setdefault(link.peer, []).append((sums.copy(), slots[id(self)].copy(), self._values.copy()))
        return sums

    with (
        mock.patch.object(answering.TreeAnswers, "_send_sums", answered),
        mock.patch.object(asking.TreeQueries, "_theirs_of", asked),
        mock.patch.object(asking.TreeQueries, "_receive_sums", heard),
    ):
        yield sights


def cells_read(sights: Sights, name: str, codes: np.ndarray, counts: tuple[int, ...]) -> float:
    """Share of a passive party's cells that the active party reads off sums: bins whose sums are those of one row, and
    of no other in the node.

    Args:
        sights: of a run.
        name: the party.
        codes: of its training rows, (n, columns): the truth. Codes that are read wrong do not count.
        counts: of its columns.
    """
    read = np.zeros(codes.shape, dtype=bool)
    starts = np.concatenate([[0], np.cumsum(counts)])
    for sums, slot, values in sights.sums.get(name, []):
        for node in range(len(sums)):
            here = np.flatnonzero(slot == node)
            of_rows: dict[tuple[int, int], int] = {}
            for row in here.tolist():
                pair = (int(values[row, 0]), int(values[row, 1]))
                of_rows[pair] = -1 if pair in of_rows else row
            for j in range(codes.shape[1]):
                for code in range(counts[j]):
                    row = of_rows.get(tuple(sums[node, starts[j] + code].tolist()), -1)
                    if row >= 0 and codes[row, j] == code:
                        read[row, j] = True
    return float(read.mean())


def cells_solved(
    sights: Sights, name: str, codes: np.ndarray, counts: tuple[int, ...], *, merged: bool = False
) -> float:
    """Share of a passive party's cells that the active party gets right from all sums together: it knows every row's
    gradients, so each sum of a bin is a linear equation in who is in that bin, and other trees give other equations.

    Args:
        sights: of a run.
        name: the party.
        codes: of its training rows, (n, columns): the truth, groups of bins where these were put together.
        counts: of its columns.
        merged: whether bins were put together by node: then only sums over all rows are used, whose groups stay.
    """
    known, told = [], []
    for sums, slot, values in sights.sums.get(name, []):
        for node in range(len(sums)):
            if merged and (slot != 0).any():
                continue
            for k in range(values.shape[1]):
                known.append(np.where(slot == node, values[:, k], 0).astype(np.float64))
                told.append(sums[node, :, k].astype(np.float64))
    return solve_cells(known, told, codes, counts)


def solve_cells(
    known: Sequence[np.ndarray], told: Sequence[np.ndarray], codes: np.ndarray, counts: Sequence[int]
) -> float:
    """Share of cells that the equations *sum of `known` over the rows of a bin = `told`* give right.

    Args:
        known: of each equation the values of all rows, float64 (n,).
        told: of each equation the sums of all bins, float64 (bins of all columns,).
        codes: (n, columns), the truth.
        counts: bins of each column.
    """
    lengths = [float(np.linalg.norm(one)) for one in known]
    if not any(lengths):
        return 0.0
    equations = np.stack([one / length for one, length in zip(known, lengths, strict=True) if length])
    right = np.stack([one / length for one, length in zip(told, lengths, strict=True) if length])
    solved, starts = np.linalg.pinv(equations, rcond=1e-6), np.concatenate([[0], np.cumsum(counts)])
    correct = []
    for j, count in enumerate(counts):
        even = np.full((len(codes), count), 1 / count)
        found = even + solved @ (right[:, starts[j] : starts[j + 1]] - equations @ even)
        # Rows whose gradients never differed tie exactly. Rounding would pick one of the tied bins, and another one on
        # another CPU; a tie counts as the chance of guessing right instead.
        best = found >= found.max(axis=1, keepdims=True) - _TIED
        correct.append(best[np.arange(len(codes)), codes[:, j]] / best.sum(axis=1))
    return float(np.mean(correct))


def guess_cells(codes: np.ndarray) -> float:
    """Share of cells that whoever guesses each column's most frequent bin gets right."""
    return float(np.mean([np.bincount(column).max() / len(column) for column in codes.T]))


def measure(cell: Cell, rows: int, said: Callable[[str, list[str]], Said]) -> Figures:
    """Run a cell of trees and attack it.

    Args:
        cell: of the matrix. A sealed one runs in the clear, in the same integers, and what Paillier hides is left out.
        rows: of the credit table.
        said: active party and passive ones → what the job says of itself.
    """
    job, people = cell.job, cell.parties(rows)
    with watch() as sights, roles_begun() as begun:
        ran = run_parties(
            job,
            people,
            join_parties(people, job),
            run="gate",
            secrets={name: PartySecret.from_seed(job.seed, name) for name in people},
        )
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    owner, train = people.active.name, ran.split.train
    bank = roles[owner]
    y, own = bank.labels(train).numpy(), bank.columns_of(train)
    names = [table.name for table in people.passive]
    stated = said(owner, names)
    places = np.arange(len(train))
    labels, features = [], []
    boosting: Any = job.algorithm
    shown = not cell.sealed or boosting.nodes == "shown"
    for name in names:
        role = roles[name]
        x = role.columns_of(train)
        sides = np.concatenate([tree.goes_left(x) for tree in role.forest.trees]).T.astype(np.float64)
        seen = _nodes_seen(sights.places.get(name, [])) if shown else sides
        known = draw_known(places, y, _KNOWN_LABELS, cell.seed)
        labels.append(_labels(cell, places, seen, x, y, known, stated(name, owner)))
        if not cell.sealed:
            labels.append(_in_the_clear(y, stated(name, owner)))
        features.append(
            _features(places, sides, own, x, draw_known(places, x, _KNOWN_RECORDS, cell.seed), stated(owner, name))
        )
    return Figures(
        name=cell.name,
        data=cell.data,
        algorithm=cell.algorithm,
        protection=cell.protection,
        seed=cell.seed,
        labels=max(labels, key=lambda got: got.value - max(got.without, 0.5)),
        features=max(features, key=lambda got: got.value - max(got.without, 0.0)),
        sums=_sums(sights, roles, owner, names, stated) if cell.algorithm == "boosting" else msgspec.UNSET,
    )


def _sums(sights: Sights, roles: dict[str, Any], owner: str, names: list[str], stated: Said) -> Got:
    """What the active party solves for, of the partner of whom it gains most."""
    found = []
    for name in names:
        codes, counts = roles[name].codes, roles[name].bins.code_counts
        severity, admitted = stated(owner, name)
        found.append(
            Got(
                severity=severity,  # type: ignore[arg-type]
                value=cells_solved(sights, name, codes, counts),
                without=guess_cells(codes),
                attack=EQUATIONS,
                admitted=admitted,
            )
        )
    return max(found, key=lambda got: got.value - got.without)


def _nodes_seen(places: list[np.ndarray]) -> np.ndarray:
    """Which nodes each row stood in, 0 or 1, (n, nodes of all questions)."""
    return np.concatenate(
        [(place[:, None] == np.arange(place.max() + 1)).astype(np.float64) for place in places], axis=1
    )


def _labels(
    cell: Cell, rows: np.ndarray, seen: np.ndarray, x: np.ndarray, y: np.ndarray, known: Known, told: tuple[str, bool]
) -> Got:
    without = max(0.5, score_ranking(fit_classifier(rows, x, known, 2).exclude_rows(known.rows), y, 2)[0])
    tried: dict[str, tuple[float, float]] = {}
    if seen.shape[1]:
        middle = seen - seen.mean(axis=0)
        attacks = {
            "labels: spectral over nodes": Estimate(
                rows, label_inference.project_on_first_singular(middle), either_way=True
            ),
            "labels: learned from 40": fit_classifier(rows, seen, known, 2),
            "labels: learned from 40 with own columns": fit_classifier(rows, np.hstack([seen, x]), known, 2),
        }
        tried = {name: score_ranking(one.exclude_rows(known.rows), y, 2) for name, one in attacks.items()}
    name, (value, error) = max(tried.items(), key=lambda item: item[1][0], default=("nothing to attack", (0.5, 0.0)))
    severity, admitted = told
    return Got(severity=severity, value=value, without=without, error=error, attack=name, admitted=admitted)  # type: ignore[arg-type]


def _in_the_clear(y: np.ndarray, told: tuple[str, bool]) -> Got:
    """The sign of a row's gradient, which a passive party is sent, is the label."""
    score = y.astype(np.float64)
    value = auc(y == 1, score)
    error = auc_error(value, int((y == 1).sum()), int((y == 0).sum()))
    severity, admitted = told
    return Got(severity=severity, value=value, without=0.5, error=error, attack="labels: sign of g", admitted=admitted)  # type: ignore[arg-type]


def _features(
    rows: np.ndarray, sides: np.ndarray, own: np.ndarray, x: np.ndarray, known: Known, told: tuple[str, bool]
) -> Got:
    """A passive party's columns from the sides of its chosen splits, and known records."""
    severity, admitted = told

    def explained(estimate: Estimate) -> float:
        rest = estimate.exclude_rows(known.rows)
        return r_squared(rest.values, x[rest.rows])

    without = explained(fit_ridge(rows, own, known))
    value = explained(fit_ridge(rows, np.hstack([sides, own]), known)) if sides.shape[1] else 0.0
    return Got(severity=severity, value=value, without=without, attack="features: sides of splits", admitted=admitted)  # type: ignore[arg-type]
