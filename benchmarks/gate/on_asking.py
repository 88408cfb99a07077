"""What an active party may ask on shares, between organisations, by default: each attack as a small real job. A rule
holds if the party that it protects refuses, or answers so little; a control is the same attack with the rule taken
away, and has to succeed, or the attack proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from securevfl_crypto.ring import decode_words, encode_words

import securevfl as sv
from benchmarks.asking import attacks
from benchmarks.asking.readers import log_odds, solved
from benchmarks.asking.runs import Asked, Asker, listening
from benchmarks.asking.tables import Rows, Table, credit
from securevfl.privacy import Policy
from securevfl.privacy.policy import DEFAULT_RESULTS
from securevfl.shares import NetworkShape

__all__ = ["Asking", "ask_all", "judge_asking"]

_FLAT = 2.0**-4
"""Deviation of answers that are worth nothing: less than their grain."""
_SOLVED = 0.95
"""R² that a control has to reach, and one less that a rule has to stay below."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a question."""

    name: str
    refused: str
    """words of the refusal; empty where it was answered"""
    answers: int
    """of each row"""
    spread: float = 0.0
    """deviation of the answers"""
    solved: float = 0.0
    """R² of columns without a known record"""
    counted: tuple[int, int] = (0, 0)
    """fewest and most numbers of a test row in a passive party's book"""
    others_counted: int = 0
    """most numbers of a row that was not asked about"""
    wanted: str = ""
    """the rule that has to refuse, as its refusal names it; empty where answers are allowed"""
    most: int = DEFAULT_RESULTS
    """answers of each row that are allowed"""
    flat: bool = False
    """whether answers have to be worth nothing"""
    control: bool = False


def ask_all() -> Iterator[Asking]:
    """Every question, on the credit table."""
    table = credit()
    rows = table.draw_rows(400, 600, 300, 0)
    yield _untrained(table, rows, control=False)
    yield _untrained(table, rows, control=True)
    for question in (_all_classes, _one_class, _many_jobs, _own_columns, _false_target):
        yield question(table, rows)


def judge_asking(found: list[Asking]) -> list[str]:
    """What is wrong, in words; empty where every rule holds and every control succeeds."""
    broken = []
    for one in found:
        if one.control:
            if one.solved < _SOLVED:
                broken.append(f"positive control: {one.name} solves columns with R² {one.solved:.2f}, not {_SOLVED}")
            continue
        if one.wanted and one.wanted not in one.refused:
            broken.append(f"{one.name}: {one.wanted!r} has to refuse it, and it got {one.refused or 'answers'!r:.120}")
        if one.answers > one.most:
            broken.append(f"{one.name}: {one.answers} answers of each row, and {one.most} are allowed")
        if one.flat and (one.solved > 1 - _SOLVED or one.spread > _FLAT):
            broken.append(f"{one.name}: answers have deviation {one.spread:.3f} and solve R² {one.solved:.2f}")
        if one.counted != (one.answers, one.answers) or one.others_counted:
            broken.append(
                f"{one.name}: the book has {one.counted[0]} to {one.counted[1]} numbers of each row that was answered "
                f"{one.answers} times, and {one.others_counted} of others"
            )
    return broken


def _names(rows: np.ndarray) -> list[str]:
    return [f"p{row:06d}" for row in rows]


def _ask(
    name: str, table: Table, rows: Rows, people: sv.Parties, asker: Asker, last: Asked, answers: int, **more: Any
) -> Asking:
    """The figures of a question, with what the network's book has."""
    counted = asker.counted(people, "network", _names(rows.test))
    others = asker.counted(people, "network", _names(rows.train))  # metrics count a number of rows that validate
    refused = f"{last.refused}: {last.words}" if last.refused else ""
    return Asking(
        name=name,
        refused=refused,
        answers=answers,
        counted=(int(counted.min()), int(counted.max())),
        others_counted=int(others.max()),
        **more,
    )


def _job(people: sv.Parties, *, lenient: bool, lr: float = 0.2, **terms: Any) -> sv.Job:
    """A job on shares; a lenient one asks for no proof of usefulness, and all policies accept that."""
    own = {name: terms.pop(name) for name in ("answers",) if name in terms}
    if lenient:
        own["useful"] = "off"
    policies = {name: Policy(useful="off") for name in people} if lenient else {}
    terms = {"algorithm": sv.LogisticRegression(), "epochs": 1, "batch_size": 4096, "keep": "last"} | terms
    return sv.Job(protection=sv.Shares(lr=lr, **own), policies=policies, **terms)


@contextmanager
def _random_last_layer() -> Iterator[None]:
    """First weights of the last layer are random, and everybody knows them."""
    honest = NetworkShape.first_weights

    def random(self: NetworkShape, seed: int) -> dict[str, np.ndarray]:
        found = dict(honest(self, seed))
        name = self.top_layers()[-1].name
        weights = np.random.default_rng(seed).normal(size=found[name].shape) / np.sqrt(len(found[name]))
        return found | {name: encode_words(weights)}

    with mock.patch.object(NetworkShape, "first_weights", random):
        yield


def _untrained(table: Table, rows: Rows, *, control: bool) -> Asking:
    """24 coin classes and a step of next to nothing, with the logits as answers: x·W₀ with W₀ known."""
    label = np.random.default_rng(1).integers(0, 24, len(table.label))
    people, asker = table.parties(rows, label=label, classes=24), Asker("on")
    job = _job(people, lenient=True, lr=2.0**-13, answers="probabilities")
    job = job.replace(policies={name: Policy(useful="off", max_results="unlimited") for name in people})
    with listening() as heard:
        if control:
            with _random_last_layer():
                asked = asker.train(job, people, attacks.numbers(rows))
                weights = next(iter(heard.shape.first_weights(job.seed).values())) if heard.shape else None
        else:
            asked = asker.train(job, people, attacks.numbers(rows))
            weights = next(iter(heard.shape.first_weights(job.seed).values())) if heard.shape else None
    read, spread = 0.0, 0.0
    if not asked.refused and weights is not None:
        answers = log_odds(asked.probabilities)
        dealt = [np.concatenate(heard.tested[name]) for name in people]
        read = float(solved(answers, dealt[0], decode_words(weights), np.hstack(dealt[1:])).mean())
        spread = float(answers.std())
    name = "an untrained job with 24 classes" + (", last layer at random" if control else "")
    return _ask(
        name, table, rows, people, asker, asked, 24, most=24, solved=read, spread=spread, flat=True, control=control
    )


def _all_classes(table: Table, rows: Rows) -> Asking:
    """The probabilities of twelve coin classes are twelve numbers."""
    label = np.random.default_rng(2).integers(0, 12, len(table.label))
    people, asker = table.parties(rows, label=label, classes=12), Asker("on")
    asked = asker.train(_job(people, lenient=True, answers="probabilities"), people, attacks.numbers(rows))
    answers = 0 if asked.refused else 12
    return _ask("12 coin classes", table, rows, people, asker, asked, answers, wanted="max_results")


def _one_class(table: Table, rows: Rows) -> Asking:
    """By default the likeliest of twelve classes is answered: one number."""
    label = np.random.default_rng(2).integers(0, 12, len(table.label))
    people, asker = table.parties(rows, label=label, classes=12), Asker("on")
    asked = asker.train(_job(people, lenient=True), people, attacks.numbers(rows))
    alone = np.isclose(asked.probabilities.max(axis=1, initial=0.0), 1.0, atol=1e-6).all()
    return _ask("12 coin classes, the class alone", table, rows, people, asker, asked, 1 if alone else 12, most=1)


def _many_jobs(table: Table, rows: Rows) -> Asking:
    """Three jobs with coin labels about the same rows: the third is refused."""
    asker, answers, asked, people = Asker("on"), 0, Asked(), table.parties(rows)
    for number in range(3):
        label = np.random.default_rng(number).integers(0, 2, len(table.label))
        people = table.parties(rows, label=label)
        asked = asker.train(_job(people, lenient=True, seed=number), people, attacks.numbers(rows))
        answers += not asked.refused
    return _ask("three jobs with coin labels", table, rows, people, asker, asked, answers, wanted="max_results")


def _own_columns(table: Table, rows: Rows) -> Asking:
    """One model, asked three times more about the same rows with other own columns."""
    asker, people = Asker("on"), table.parties(rows)
    asked = asker.train(_job(people, lenient=True), people, attacks.numbers(rows))
    answers = int(not asked.refused)
    only = Rows(rows.train[:0], rows.valid[:0], rows.test)
    for number in range(2 if answers else 0):
        asked = asker.predict(0, table.parties(only, own=table.own + number + 1), attacks.numbers(only))
        answers += not asked.refused
    return _ask("own columns varied", table, rows, people, asker, asked, answers, wanted="max_results")


def _false_target(table: Table, rows: Rows) -> Asking:
    """A validation target of 2¹² is found on shares before anything is opened."""
    asker, people = Asker("on"), table.parties(rows)
    with attacks.Lies(2.0**12, len(rows.train)).told():
        asked = asker.train(_job(people, lenient=False), people, attacks.numbers(rows))
    wanted = "refuses to train on the targets"
    return _ask("a false target", table, rows, people, asker, asked, 0 if asked.refused else 1, wanted=wanted)
