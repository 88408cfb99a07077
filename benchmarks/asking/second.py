"""Attacks on the rules themselves, by somebody who did not write them: all within the protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import securevfl as sv
from benchmarks.asking.attacks import Attack, in_order, numbers
from benchmarks.asking.readers import columns_read
from benchmarks.asking.runs import Asked, Asker, job_on_shares
from benchmarks.asking.tables import Rows, Table
from securevfl.attacks.learners import fit_classifier
from securevfl.attacks.measure import Known, auc
from securevfl.shares import programs

__all__ = ["SECOND"]

_MANY = 60
_MARKS = 8


def one_test_row(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """Jobs with coin labels whose test fold is one row that nobody cares for: each try counts for that row alone. The
    first two models that pass answer about all other rows."""
    rows, asker = table.draw_rows(400, 200, 400, seed), Asker(rules)
    given: list[np.ndarray] = []
    tries, last = 0, Asked()
    for number in range(4 if quick else _MANY):
        spent = rows.test[number : number + 1]
        label = np.random.default_rng([seed, number, 4]).integers(0, 2, len(table.label))
        one = Rows(rows.train, rows.valid, spent)
        people = table.parties(one, label=label)
        job = job_on_shares(rules, people, sv.LogisticRegression(), epochs=1, batch_size=128, seed=number, keep="last")
        tries, last = tries + 1, asker.train(job, people, numbers(one))
        if last.refused:
            continue
        asked = Rows(rows.train[:0], rows.valid[:0], rows.test[_MANY:])
        last = asker.predict(len(asker.models) - 1, table.parties(asked), numbers(asked))
        if last.refused:
            break
        given.append(in_order(last, asked.test))
    found = {"tries": tries, "models that answered": len(given), "last refusal": last.words[:160]}
    return found | {
        f"known {known}": table.spread(
            columns_read(table, rows.test[_MANY:], np.hstack(given) if given else None, known=known, seed=seed)
        )
        for known in (72, 200)
    }


def no_test_row(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """A job without a test row has nothing to answer, so its model need not prove useful; it is asked afterwards."""
    rows, asker = table.draw_rows(400, 200, 300, seed), Asker(rules)
    label = np.random.default_rng([seed, 4]).integers(0, 2, len(table.label))
    none = Rows(rows.train, rows.valid, rows.test[:0])
    people = table.parties(none, label=label)
    job = job_on_shares(rules, people, sv.LogisticRegression(), epochs=1, batch_size=128, seed=seed, keep="last")
    first = asker.train(job, people, numbers(none))
    if not asker.models:
        return first.figures()
    only = Rows(rows.train[:0], rows.valid[:0], rows.test)
    return {"trained": not first.refused} | asker.predict(0, table.parties(only), numbers(only)).figures()


def marked_padding(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """The label is a passive column that is known for 150 rows. Made-up labels fill up to the least rows, and own
    columns mark these rows and their label, so that the model predicts them without the partner and forgets them."""
    names = [f"{party} {j}" for party, x in table.passive.items() for j in range(x.shape[1])]
    j = int(np.random.default_rng([seed, 12]).integers(0, len(names)))
    truth = (table.others[:, j] > np.median(table.others[:, j])).astype(np.int64)
    rows = table.draw_rows(400, 200, 500, seed)
    known = np.concatenate([rows.train[:90], rows.valid[:60]])
    label = np.random.default_rng([seed, 8]).integers(0, 2, len(truth))
    label[known] = truth[known]
    marks = np.zeros(len(truth))
    both = np.concatenate([rows.train, rows.valid])
    marks[both] = np.where(np.isin(both, known), 0, 2 * label[both] - 1)
    found: dict[str, Any] = {"column": names[j]}
    alone = fit_classifier(np.arange(len(truth)), table.own, Known(known, truth[known]), 2).values[:, 1]
    found["own columns alone"] = round(auc(truth[rows.test] == 1, alone[rows.test]), 4)
    for what, own in (("marked", np.tile(marks[:, None], (1, _MARKS))), ("not marked", table.own)):
        people = table.parties(rows, label=label, own=own)
        job = job_on_shares(
            rules, people, sv.LogisticRegression(), lr=0.5, epochs=40, batch_size=64, seed=seed, keep="last",
            valid_every=40,
        )  # fmt: skip
        asked = Asker(rules).train(job, people, numbers(rows))
        found[what] = (
            asked.words[:120]
            if asked.refused
            else round(auc(truth[rows.test] == 1, in_order(asked, rows.test)[:, 0]), 4)
        )
    return found


def metrics_of_two_labels(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """Two jobs that differ in one person's validation label: their log-losses differ by that person's logit over the
    number of rows, in each of up to 100 sets of metrics. Each job's count as one number of each validation row."""
    epochs = 20 if quick else 100
    rows = table.draw_rows(400, 200, 1, seed)
    person = int(rows.valid[7])
    coin = np.random.default_rng([seed, 1]).integers(0, 2, len(table.label))
    losses: list[list[float]] = []
    counted = []
    sets = 0
    for flip in (0, 1):
        label = coin.copy()
        label[person] = flip
        people, asker = table.parties(rows, label=label), Asker(rules)
        job = job_on_shares(
            rules, people, sv.LogisticRegression(), lr=0.5, momentum=0.5, epochs=epochs, batch_size=512, seed=seed,
            keep="last", metrics="rounded",
        )  # fmt: skip
        heard: list[float] = []
        with _metrics_heard(heard):
            asked = asker.train(job, people, numbers(rows))
        losses.append(heard)
        sets += len(heard)
        if rules != "before" and not (asked.refused and not heard):
            counted.append(int(asker.counted(people, next(iter(table.passive)), [f"p{person:06d}"])[0]))
    shared = min(len(one) for one in losses)
    if not shared:
        return {"sets": sets, "refused": asked.refused, "words": asked.words[:200]}
    moved = (np.array(losses[0][:shared]) - np.array(losses[1][:shared])) * len(rows.valid)
    return {
        "sets": sets,
        "logit of the person, mean over epochs": round(float(moved.mean()), 3),
        "error of that": round(float(moved.std() / np.sqrt(len(moved))), 3),
        "numbers counted for the person": counted,
    }


def _metrics_heard(into: list[float]) -> Any:
    honest = programs.SharesActive.evaluate_rows

    async def evaluated(this: Any, rows: Any, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        found: dict[str, float] = await honest(this, rows, keep=keep, judge=judge)
        if judge:
            into.append(found.get("log_loss", math.nan))
        return found

    return patch.object(programs.SharesActive, "evaluate_rows", evaluated)


def another_name(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """The asker comes back under a second name, as a second organisation would, until it is refused under each."""
    rows, asker = table.draw_rows(400, 200, 300, seed), Asker(rules)
    answers, last = [], Asked()
    for name in ("bank", "bank2", "bank3"):
        got = 0
        for number in range(3):
            people = _renamed(table.parties(rows), name)
            job = _counted_alone(rules, people, seed=number)
            last = asker.train(job, people, numbers(rows))
            got += not last.refused
        answers.append(got)
    return {"answers under each name": answers, "words": last.words[:300]}


def _counted_alone(rules: str, people: sv.Parties, seed: int) -> sv.Job:
    """A job whose model need not prove useful, which all policies accept: only the count is left."""
    job = job_on_shares(rules, people, sv.LogisticRegression(), epochs=1, batch_size=128, seed=seed, useful="off")
    return job.replace(policies={name: sv.Policy(useful="off") for name in people})


def _renamed(people: sv.Parties, name: str) -> sv.Parties:
    return sv.Parties.of(replace(people.active, name=name), *people.passive)


def changed_rows(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """The same people with own columns moved by 10⁻⁹, then under other identifiers at all parties."""
    rows, asker = table.draw_rows(400, 200, 300, seed), Asker(rules)
    people = table.parties(rows)
    job = _counted_alone(rules, people, seed=seed)
    first = asker.train(job, people, numbers(rows))
    if first.refused:
        return first.figures()
    only = Rows(rows.train[:0], rows.valid[:0], rows.test)
    moved = [asker.predict(0, table.parties(only, own=table.own + k * 1e-9), numbers(only)) for k in (1, 2, 3)]
    names = np.array([f"q{row:06d}" for row in range(len(table.label))])
    other = asker.predict(0, table.parties(only, names=names), {name: row for row, name in enumerate(names.tolist())})
    return {
        "answers of four with own columns moved": 1 + sum(not one.refused for one in moved),
        "answered under other identifiers": not other.refused,
    }


def model_in_parts(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """The model is handed out to its parties at the end."""
    rows, asker = table.draw_rows(400, 200, 300, seed), Asker(rules)
    people = table.parties(rows)
    job = job_on_shares(rules, people, sv.LogisticRegression(), epochs=8, batch_size=128, seed=seed, model="parts")
    return asker.train(job, people, numbers(rows)).figures()


SECOND: Mapping[str, Attack] = {
    one.__name__.replace("_", " "): one
    for one in (
        one_test_row,
        no_test_row,
        marked_padding,
        metrics_of_two_labels,
        another_name,
        changed_rows,
        model_in_parts,
    )
}
"""Name → attack on real shares."""
