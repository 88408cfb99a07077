"""What is asked on real shares, all within the protocol but one: the attacks of the second audit, each as one job or a
few, and the honest job beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
from securevfl_crypto.ring import decode_words

import securevfl as sv
from benchmarks.asking.readers import KNOWN, columns_read, log_odds, solved
from benchmarks.asking.runs import Asked, Asker, job_on_shares, listening
from benchmarks.asking.tables import Rows, Table
from securevfl.attacks.learners import fit_classifier
from securevfl.attacks.measure import Known, auc
from securevfl.shares import programs

__all__ = ["ATTACKS", "Attack", "Lies", "in_order", "numbers"]

Attack = Callable[[Table, str, int, bool], dict[str, Any]]
"""Table, rules, seed, whether the size is the quick one → figures."""

_LABELLED = 72


def numbers(rows: Rows) -> dict[str, int]:
    """Identifier → number of a row, as `Table.parties` names rows."""
    return {f"p{row:06d}": int(row) for row in rows.all}


def _read(table: Table, rows: np.ndarray, answers: np.ndarray | None, seed: int) -> dict[str, Any]:
    """R² of the passive parties' columns, for each number of known records that fits the answered rows."""
    return {
        f"known {known}": table.spread(columns_read(table, rows, answers, known=known, seed=seed))
        for known in KNOWN
        if known + 50 <= len(rows)
    }


def untrained(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """24 classes by a coin, one step of next to nothing: the job opens x·W₀, and W₀ follows from the public seed."""
    classes = 24
    rows = table.draw_rows(400, 600, 400, seed)
    label = np.random.default_rng([seed, 1]).integers(0, classes, len(table.label))
    people = table.parties(rows, label=label, classes=classes)
    job = job_on_shares(
        rules, people, sv.LogisticRegression(), lr=2.0**-13, epochs=1, batch_size=4096, seed=seed, keep="last"
    )
    with listening() as heard:
        asked = Asker(rules).train(job, people, numbers(rows))
    found = asked.figures()
    if asked.refused or heard.shape is None:
        return found
    answers = log_odds(asked.probabilities)
    dealt = [np.concatenate(heard.tested[name]) for name in people]
    (layer,) = heard.shape.first_weights(seed).values()
    own, others = dealt[0], np.hstack(dealt[1:])
    each = solved(answers, own, decode_words(layer), others)
    return (
        found
        | {"sd": round(float(answers.std()), 5), "without a known record": table.spread(each)}
        | _read(table, asked.rows, answers, seed)
    )


def classes(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """Twelve classes by a coin in one job: twelve numbers of each row."""
    many = 12
    rows = table.draw_rows(400 if quick else 600, 200, 500, seed)
    label = np.random.default_rng([seed, 2]).integers(0, many, len(table.label))
    people = table.parties(rows, label=label, classes=many)
    job = job_on_shares(rules, people, sv.LogisticRegression(), epochs=2, batch_size=128, seed=seed, keep="last")
    asked = Asker(rules).train(job, people, numbers(rows))
    if asked.refused:
        return asked.figures()
    return asked.figures() | _read(table, asked.rows, log_odds(asked.probabilities), seed)


def jobs(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """Jobs with labels by a coin, all about the same rows."""
    count = 3 if quick else 24
    rows, asker, given = table.draw_rows(400, 200, 400, seed), Asker(rules), []
    last = Asked()
    seconds = 0.0
    for number in range(count):
        label = np.random.default_rng([seed, number, 4]).integers(0, 2, len(table.label))
        people = table.parties(rows, label=label)
        job = job_on_shares(
            rules, people, sv.LogisticRegression(), epochs=1, batch_size=128, seed=seed + number, keep="last"
        )
        last = asker.train(job, people, numbers(rows))
        seconds += last.seconds
        if "max_results" in last.words:
            break
        if not last.refused:
            given.append(in_order(last, rows.test))
    found = last.figures() | {"jobs": number + 1, "jobs answered": len(given), "cpu_seconds": round(seconds, 2)}
    return found | _read(table, rows.test, np.hstack(given) if given else None, seed)


def own_columns(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """One honest model, asked again about the same rows with other values in the asker's own columns."""
    count = 3 if quick else 24
    rows, asker = table.draw_rows(1600, 400, 400, seed), Asker(rules)
    people = table.parties(rows)
    job = job_on_shares(rules, people, sv.SplitNN(hidden=16), epochs=2 if quick else 4, batch_size=128, seed=seed)
    first = asker.train(job, people, numbers(rows))
    if first.refused:
        return first.figures()
    only = Rows(rows.train[:0], rows.valid[:0], rows.test)
    again = asker.predict(0, table.parties(only), numbers(only))
    given, refused = [in_order(first, rows.test)], again
    alike = float("nan") if again.refused else float(np.abs(in_order(again, rows.test) - given[0]).max())
    draw = np.random.default_rng([seed, 6])
    for _ in range(count if not again.refused else 0):
        other = np.repeat(draw.uniform(-4, 4, (1, table.own.shape[1])), len(table.own), axis=0)
        refused = asker.predict(0, table.parties(only, own=other), numbers(only))
        if refused.refused:
            break
        given.append(in_order(refused, rows.test))
    told = {"refused": refused.refused, "words": refused.words[:400]} if refused.refused else {}
    return (
        first.figures()
        | told
        | {"asked again": count + 1, "answered": len(given) + (not again.refused), "same question moves by": alike}
        | _read(table, rows.test, np.hstack(given), seed)
    )


def label_is_a_column(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """The label is a passive column above its median, known for 72 rows; the others' labels are by a coin or absent.

    The known rows train and validate; where the rules ask for more rows, made-up ones fill up.
    """
    names = [f"{party} {j}" for party, x in table.passive.items() for j in range(x.shape[1])]
    j = int(np.random.default_rng([seed, 12]).integers(0, len(names)))
    truth = (table.others[:, j] > np.median(table.others[:, j])).astype(np.int64)
    pad = 0 if rules == "before" else 1
    rows = table.draw_rows(_LABELLED * 8 // 9 + pad * 340, _LABELLED // 9 + pad * 192, 500, seed)
    known = np.concatenate([rows.train[: _LABELLED * 8 // 9], rows.valid[: _LABELLED // 9]])
    label = np.random.default_rng([seed, 8]).integers(0, 2, len(truth))
    label[known] = truth[known]
    people = table.parties(rows, label=label)
    asked = Asked(refused="not asked")
    for lr in (1.0, 0.3):
        epochs = 10 if quick else 40
        job = job_on_shares(rules, people, sv.LogisticRegression(), lr=lr, epochs=epochs, batch_size=32, seed=seed)
        asked = Asker(rules).train(job, people, numbers(rows))
        if asked.refused != "RangeError":
            break
    alone = fit_classifier(np.arange(len(truth)), table.own, Known(known, truth[known]), 2).values[:, 1]
    found = asked.figures() | {"column": names[j]}
    found.pop("auc", None)
    of_rows = rows.test
    found["own columns alone"] = round(auc(truth[of_rows] == 1, alone[of_rows]), 4)
    if not asked.refused:
        score = in_order(asked, of_rows)[:, 0]
        found["attribute"] = round(auc(truth[of_rows] == 1, score), 4)
    return found


def metrics(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """A party that does not follow the protocol: it deals the target of one validation row as ± 2¹² in turn, and the
    log-losses of two epochs open this row's logit. Where targets are dealt once, it deals 2¹² once."""
    rows = table.draw_rows(400, 200, 100, seed)
    people = table.parties(rows)
    job = job_on_shares(
        rules, people, sv.LogisticRegression(), lr=2.0**-13, epochs=4, batch_size=4096, seed=seed, keep="last"
    )
    lies = Lies(2.0**12, len(rows.train))
    with lies.told(), listening() as heard:
        asked = Asker(rules).train(job, people, numbers(rows))
    found = asked.figures()
    found.pop("auc", None)
    if asked.refused or heard.shape is None:
        return found
    (layer,) = heard.shape.first_weights(seed).values()
    weights = decode_words(layer)[:, 0]
    x, train = table.whole, table.whole[rows.train]
    logits = ((x - train.mean(axis=0)) / train.std(axis=0)) @ weights[:-1] + weights[-1]
    steps = -np.diff(np.array(lies.losses)) * len(rows.valid) / (2 * lies.size)
    read = float(np.mean(steps * (-1.0) ** np.arange(len(steps)) * -1))
    true = float(logits[asked.valid[0]])
    return found | {
        "logit": round(true, 4),
        "error of the logit": round(abs(abs(read) - abs(true)), 4),
        "sd of logits": round(float(logits[asked.valid].std()), 4),
    }


class Lies:
    """Deals one validation target far outside of 0 and 1, with the other sign in each epoch.

    Args:
        size: of the target.
        trained: rows that train, whose targets are dealt before those of validation rows.

    Attributes:
        losses: log-losses that were opened.
    """

    def __init__(self, size: float, trained: int) -> None:
        self.size = size
        self.trained = trained
        self.losses: list[float] = []
        self._sign = 1.0

    def told(self) -> Any:
        """Make the active party lie, inside."""
        honest, words, lies = programs.SharesActive.evaluate_rows, programs.SharesActive._words_to_score, self
        if hasattr(programs, "encode_kept"):
            once = programs.encode_kept

            def kept(dealt: np.ndarray, rule: Any) -> np.ndarray:
                found = once(dealt, rule).copy()
                found[lies.trained, 0] = round(lies.size)
                return found

            return patch.object(programs, "encode_kept", kept)

        def scored(this: Any, parts: Any) -> Any:
            encode = words(this, parts)

            def encode_batch(number: int) -> list[np.ndarray]:
                inputs, targets = encode(number)
                return [inputs, lies.changed(targets) if number == 0 else targets]

            return encode_batch

        async def evaluated(this: Any, rows: Any, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
            found: dict[str, float] = await honest(this, rows, keep=keep, judge=judge)
            if judge:
                lies.losses.append(found.get("log_loss", 0.0))
                lies._sign = -lies._sign
            return found

        return patch.multiple(programs.SharesActive, _words_to_score=scored, evaluate_rows=evaluated)

    def changed(self, targets: np.ndarray) -> np.ndarray:
        """Targets with the false one, the first."""
        false = targets.copy()
        false[0, 0] = np.array([round(self._sign * self.size * 2**16)], np.int64).view(np.uint64)[0]
        return false


def honest(table: Table, rules: str, seed: int, quick: bool) -> dict[str, Any]:
    """The honest job at several sizes: its AUC, or that it was refused."""
    found: dict[str, Any] = {}
    for train, valid in ((800, 200),) if quick else ((800, 200), (1600, 400), (6400, 1600)):
        rows = table.draw_rows(train, valid, 1000, seed)
        people = table.parties(rows)
        job = job_on_shares(rules, people, sv.LogisticRegression(), epochs=5, batch_size=128, seed=seed)
        found[f"{train}+{valid}"] = Asker(rules).train(job, people, numbers(rows)).figures()
    return found


def in_order(asked: Asked, rows: np.ndarray) -> np.ndarray:
    """Log-odds of these rows, (n, numbers)."""
    place = {int(row): i for i, row in enumerate(asked.rows)}
    found: np.ndarray = log_odds(asked.probabilities)[[place[int(row)] for row in rows]]
    return found


def _each() -> Iterator[tuple[str, Attack]]:
    for one in (untrained, classes, jobs, own_columns, label_is_a_column, metrics, honest):
        yield one.__name__.replace("_", " "), one


ATTACKS: Mapping[str, Attack] = dict(_each())
"""Name → attack on real shares."""
