"""Explain scores: exactly where the model is a sum of terms, else by Shapley values of parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from securevfl.data import Parties, PartyTable
from securevfl.data.column_terms import PartyTerms
from securevfl.errors import InputError, UnknownNameError
from securevfl.party import Job
from securevfl.privacy import ResultBook
from securevfl.run.explained.coalitions import Coalitions, draw_background
from securevfl.run.explained.explanation import Explanation
from securevfl.run.explained.own_terms import build_task, find_own_terms, find_rows
from securevfl.run.model import Model
from securevfl.run.model_parts import ModelPart
from securevfl.run.simulation import Aligned, align_parties, predict_parties, result_books
from securevfl.training.calibration import WHOLE, correction_of

__all__ = ["explain"]

_SPLIT_ROWS = 100
"""Rows that are explained by Shapley values unless identifiers are given."""


def explain(
    model: Model,
    parties: Parties,
    ids: Sequence[str] | None = None,
    *,
    output: str = "",
    method: str = "auto",
    background: int = 16,
    aligned: Aligned | None = None,
    results: str | Path | None = None,
) -> Explanation:
    """Explain scores of common rows: what each party added to each score, and what each of its columns did where the
    party can see that.

    An additive model, a scorecard and a logistic regression are sums of terms, which each party computes from its own
    part of the model: no message is sent but those of aligning, and nothing is opened. Two passive parties whose sum
    alone the protection opens are told together. Other models are split among parties by Shapley values, see
    `run.explained.coalitions`: rows that mix persons are scored as in a prediction, so that the active party can
    subtract answers and learns what each party adds. Under any protection these are answers, counted as such.

    Args:
        model: what a run learned.
        parties: tables, those of training or new ones; the active one needs no labels.
        ids: the active party's identifiers of the rows; by default all common rows, or 100 of them by Shapley values.
        output: name of the class whose score is explained; by default the second of two.
        method: ``"terms"``, ``"shapley"``, or ``"auto"``: terms where the model has them.
        background: how many common rows Shapley values compare a row with.
        aligned: an alignment of these tables to use again.
        results: see `simulate`; answers to mixed rows count as all answers do.

    Raises:
        InputError: other parties or columns than in training, a person who is not common to all, a model that has no
            terms where they are asked for, one that answers classes alone, or more than 6 parties.
        UnknownNameError: no such class.
        PolicyError: a party answers no more about a row.
        SecureVFLError: alignment or prediction failed.
    """
    if method not in ("auto", "terms", "shapley"):
        raise InputError(f"method is {method!r}: give 'auto', 'terms' or 'shapley'")
    _check_parties(model, parties)
    column = _find_class(tuple(map(str, model.parts[parties.active.name]["names"])), output)
    found = aligned or align_parties(parties, model.job, predicts=True)
    every = np.arange(found.common_rows)
    asked = _Asked(model, parties, found, every if ids is None else _find_common(parties, found, ids), column)
    own, why = asked.find_terms()
    if method == "terms" and why:
        raise InputError(why)
    if not why and method != "shapley":
        return _add_terms(asked, own)
    if ids is None:
        asked = replace(asked, explained=draw_background(_SPLIT_ROWS, found.common_rows, model.job.seed + 1, ()))
        own, _ = asked.find_terms()
    found_scores = None if results is None else result_books(results, parties)
    return _split_scores(asked, own, why or "asked for", background, found_scores)


@dataclass(frozen=True)
class _Asked:
    """The rows whose scores are explained.

    Attributes:
        model: that scores them.
        parties: all parties' tables.
        aligned: their common rows.
        explained: positions of the rows among the common ones, (n,).
        column: of the scores, which of them is explained.
    """

    model: Model
    parties: Parties
    aligned: Aligned
    explained: np.ndarray = field(repr=False)
    column: int

    @property
    def active(self) -> PartyTable:
        """The active party's table."""
        return self.parties.active

    @property
    def part(self) -> Mapping[str, Any]:
        """The active party's part of the model."""
        return self.model.parts[self.active.name]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes."""
        return tuple(map(str, self.part["names"]))

    @property
    def title(self) -> str:
        """Of the job."""
        return f"{self.model.job.algorithm.title}, {self.model.job.protection.title}"

    def rows_of(self, party: str) -> np.ndarray:
        """Numbers of the rows in a party's table, (n,)."""
        found: np.ndarray = self.aligned.parties[party].rows[self.explained]
        return found

    def find_terms(self) -> tuple[dict[str, PartyTerms], str]:
        """Party → terms of its own columns; and why some party has none."""
        own, why = {}, ""
        for name, table in self.parties.items():
            part = ModelPart(party=name, job=self.model.job, run="", tree=self.model.parts[name])
            try:
                own[name] = find_own_terms(part, table, self.rows_of(name))
            except InputError as error:
                why = why or str(error)
        return own, why


def _check_parties(model: Model, parties: Parties) -> None:
    owners = [name for name in model.parts if name != model.coordinator]
    if set(owners) != set(parties):
        raise InputError(
            f"the model belongs to {', '.join(owners)}; the tables to {', '.join(parties)}: give those of the same "
            "parties"
        )
    if model.coordinator and model.coordinator not in model.parts:
        raise InputError(f"{model.coordinator!r}, which has no data, has a part of this model: add it to the others")


def _find_class(names: Sequence[str], output: str) -> int:
    if output:
        if output not in names:
            raise UnknownNameError("class", output, names)
        return list(names).index(output)
    if len(names) > 2:
        raise InputError(f"the model has {len(names)} classes: name one whose score to explain ({', '.join(names)})")
    return len(names) - 1


def _find_common(parties: Parties, aligned: Aligned, ids: Sequence[str]) -> np.ndarray:
    """Positions of persons among the common rows, (n,)."""
    active = parties.active
    rows = find_rows(active, ids)
    place = {row: at for at, row in enumerate(aligned.parties[active.name].rows.tolist())}
    lacking = [one for one, row in zip(ids, rows.tolist(), strict=True) if row not in place]
    if lacking:
        raise InputError(
            f"{len(lacking)} of these {len(ids)} persons are not common to all parties, the first is {lacking[0]!r}: "
            "explain rows that all parties have"
        )
    return np.array([place[row] for row in rows.tolist()], np.int64)


def _add_terms(asked: _Asked, own: Mapping[str, PartyTerms]) -> Explanation:
    """Add up the parties' terms; two passive parties stay one where the protection opens their sum alone."""
    active, job, task = asked.active, asked.model.job, build_task(asked.model.job, asked.part)
    sums = np.asarray(sum(one.start + one.totals for one in own.values()))
    logits = torch.from_numpy(job.algorithm.sums_to_logits(sums, numeric=task.is_numeric))
    scores = correction_of(asked.part, WHOLE).apply(task.compute_probabilities(logits))
    output = 0 if task.outputs == 1 else asked.column
    whole, baseline = sums[:, output], sum(float(one.start[output]) for one in own.values())
    unit = own[active.name].unit
    if task.outputs == 1 and not task.is_numeric and asked.column == 0:  # the model's sum is that of the second class
        own = {name: one.flip() for name, one in own.items()}
        whole, baseline = (1 - whole, 1 - baseline) if unit == "probability" else (-whole, -baseline)
    passive = [name for name in own if name != active.name]
    joined = len(passive) > 1 and (job.protection.is_sealed or job.protection.on_shares)
    groups = [[active.name], passive] if joined else [[active.name], *([name] for name in passive)]
    return Explanation(
        method="terms",
        title=asked.title,
        ids=active.ids_of(asked.rows_of(active.name)),
        output="" if task.is_numeric else asked.names[asked.column],
        unit=unit,
        scores=scores[:, asked.column],
        sums=whole,
        baseline=baseline,
        players=tuple(" + ".join(group) for group in groups),
        totals=np.stack([sum(own[name].totals[:, output] for name in group) for group in groups], axis=1),
        own=dict(own),
        place=output,
    )


def _split_scores(
    asked: _Asked, own: Mapping[str, PartyTerms], why: str, background: int, books: Mapping[str, ResultBook] | None
) -> Explanation:
    """Score rows that mix persons, and split the explained rows' scores among the parties."""
    job, active, aligned, names = asked.model.job, asked.active, asked.aligned, asked.names
    _check_answers(job, len(names))
    players = (active.name, *sorted(name for name in asked.parties if name != active.name))
    others = draw_background(background, aligned.common_rows, job.seed, asked.explained.tolist())
    sets = Coalitions(players=players, explained=asked.explained, background=others)
    mixed = {
        name: {owner: replace(one, rows=one.rows[sets.places(name)]) for owner, one in found.items()}
        for name, found in aligned.alignments.items()
    }
    scores, _ = predict_parties(
        job, asked.parties, replace(aligned, alignments=mixed), asked.model.parts, run="explain", results=books
    )
    values, baseline = sets.split(scores[:, asked.column])
    whole = scores[: len(asked.explained), asked.column]
    numeric = job.plan.number is not None
    return Explanation(
        method="shapley",
        title=asked.title,
        ids=active.ids_of(asked.rows_of(active.name)),
        output="" if numeric else names[asked.column],
        unit="the target" if numeric else "probability",
        scores=whole,
        sums=whole,
        baseline=baseline,
        players=players,
        totals=values,
        own=dict(own),
        place=0 if len(names) <= 2 else asked.column,
        why=why,
        background=len(others),
        answers={name: max(sets.answers(name)) for name in players[1:]},
    )


def _check_answers(job: Job, classes: int) -> None:
    """Refuse models whose answers are classes: no values add up to them."""
    if job.protection.answers_classes(classes):
        raise InputError(
            "the model answers classes and no probabilities, and no values add up to a class: explain a model whose "
            "protection has answers = 'probabilities'"
        )
