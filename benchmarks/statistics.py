"""Statistics before a model on the credit table: what they cost on shares, how far noise moves them, what attacks read.

    python -m benchmarks.statistics [--quick]

Costs are of 30,000 common rows and 23 columns: three parties on shares, two parties on shares (the second one has the
network's and the retailer's columns) without and with a helper, and both in the clear. The alignment is not counted.
Errors are mean absolute differences: of correlations of two parties from those of the same scores without noise, and
from Pearson's, and of information values.

Attacks, on 3,000 rows. *Indicator*: the active party offers a column that is 1 for one person, past the check of its
own program, and computes that person's values at others from its correlations; R² over persons and columns. *Two runs*:
it computes statistics with a person and without, and takes the bin that lost a row; the share of columns whose bin is
right, beside always naming the fullest bin.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks.common import write
from securevfl.algorithms.statistics import columns as own_columns
from securevfl.algorithms.statistics import roles
from securevfl.cut import Protection
from securevfl.report.column_statistics import ColumnStatistics, StatisticsRecord
from securevfl.run import join_parties
from securevfl.run.simulation import RunOutcome, run_parties
from securevfl.run.statistics_record import statistics_record

__all__ = ["compute", "join_two"]

_EPSILONS = (0.5, 1.0, 2.0, 4.0)
_DELTA = 1e-5
_HARDLY = 300.0
"""ε at which noise is hardly there: its correlations are those of scores."""


def compute(protection: Protection, people: sv.Parties, **settings: Any) -> tuple[StatisticsRecord, dict[str, float]]:
    """Statistics, and what they cost.

    Args:
        protection: of the job.
        people: all parties.
        settings: of the statistics.
    """
    job = sv.Job(algorithm=sv.Statistics(**settings), protection=protection, seed=0)
    aligned = join_parties(people, job)
    begin, spent = time.perf_counter(), time.process_time()
    ran: RunOutcome = run_parties(job, people, aligned, run="statistics")
    cost = {
        "seconds": time.perf_counter() - begin,
        "CPU seconds": time.process_time() - spent,
        "MB": sum(e.bytes for one in ran.ledgers.values() for e in one.iter_entries() if e.way == "sent") / 1e6,
    }
    found = statistics_record(ran.trained, ran.trained[people.active.name])
    if found is None:
        raise RuntimeError("no statistics")
    return found, cost | {"rows": float(found.rows), "columns": float(len(found.columns))}


def join_two(people: sv.Parties) -> sv.Parties:
    """The parties as two: the passive ones' columns at one."""
    first, *others = people.passive
    place = {name: row for row, name in enumerate(first.ids)}
    columns = dict(first.columns)
    for other in others:
        order = np.argsort([place[name] for name in other.ids])
        columns |= {name: np.asarray(values)[order] for name, values in other.columns.items()}
    return sv.Parties.of(people.active, replace(first, name="partner", columns=columns))


def _measure_errors(exact: StatisticsRecord, people: sv.Parties) -> dict[str, dict[str, float]]:
    found = {}
    scores, _ = compute(sv.Shares(dp=_make_noise(_HARDLY)), people)
    for epsilon in _EPSILONS:
        noisy, _ = compute(sv.Shares(dp=_make_noise(epsilon)), people)
        value = {one.column: one.iv for one in exact.columns}
        gaps = [
            abs(one.iv - float(value[one.column] or 0))
            for one in noisy.columns
            if one.iv is not None and value.get(one.column) is not None and one.party != noisy.active
        ]
        found[f"{epsilon:g}"] = {
            "correlation noise": noisy.correlation_error,
            "count noise": noisy.count_error,
            "correlation error": _mean_gap(scores, noisy),
            "correlation error, from Pearson's": _mean_gap(exact, noisy),
            "IV error": float(np.mean(gaps)),
            "rank correlation of IV": _rank_agreement(value, noisy.columns),
        }
    return found


def _mean_gap(exact: StatisticsRecord, noisy: StatisticsRecord) -> float:
    """Of correlations of two parties: with noise they are of scores, exactly of values."""
    places = {name: place for place, name in enumerate(exact.names)}
    gaps = []
    for i, first in enumerate(noisy.names):
        for j, second in enumerate(noisy.names[:i]):
            one, other = noisy.correlations[i][j], None
            if first in places and second in places:
                other = exact.correlations[places[first]][places[second]]
            if one is not None and other is not None and first.split(".")[0] != second.split(".")[0]:
                gaps.append(abs(one - other))
    return float(np.mean(gaps))


def _rank_agreement(value: dict[str, float | None], columns: Sequence[ColumnStatistics]) -> float:
    pairs = [(value[one.column], one.iv) for one in columns if one.iv is not None and value.get(one.column) is not None]
    ranks = np.argsort(np.argsort(np.array(pairs, dtype=float), axis=0), axis=0)
    return float(np.corrcoef(ranks.T)[0, 1])


def _make_noise(epsilon: float | None) -> sv.DP | None:
    return None if epsilon is None else sv.DP(model=sv.Gaussian(epsilon=epsilon, delta=_DELTA))


@contextmanager
def _unchecked_column(person: str, ids: Sequence[str]) -> Iterator[None]:
    """Let the active party offer one more column, 1 for a person, without its program's check."""
    cut = roles.StatisticsActive.cut_exactly

    def cheat(self: Any) -> list[own_columns.OwnColumn]:
        found = cut(self)
        names = [ids[row] for row in self.rows_in_table]
        values = np.array([name == person for name in names], dtype=float)
        scores = np.clip((values - values.mean()) / values.std(), -own_columns.FARTHEST, own_columns.FARTHEST)
        found.append(
            own_columns.OwnColumn(
                name="spy",
                is_number=True,
                missing=0,
                codes=np.zeros(len(values), np.int64),
                labels=["all"],
                levels=((0,),),
                scores=scores,
                present=np.ones(len(values), bool),
            )
        )
        return found

    roles.StatisticsActive.cut_exactly = cheat  # type: ignore[method-assign]
    try:
        yield
    finally:
        roles.StatisticsActive.cut_exactly = cut  # type: ignore[method-assign]


def _measure_leak(people: sv.Parties, persons: Sequence[str], epsilon: float | None) -> float:
    """R² of the values that an indicator's correlations give."""
    guessed, true = [], []
    job = sv.Job(algorithm=sv.Statistics(), protection=sv.Shares(), seed=0)
    rows = join_parties(people, job).parties[people.active.name].rows
    ids = list(people.active.ids)
    for person in persons:
        roles.StatisticsActive.rows_in_table = rows  # type: ignore[attr-defined]
        with _unchecked_column(person, ids):
            found, _ = compute(sv.Shares(dp=_make_noise(epsilon)), people, vif=False)
        at = found.names.index(f"{found.active}.spy")
        for table in people.passive:
            row = list(table.ids).index(person)
            for name, values in table.columns.items():
                full = f"{table.name}.{name}"
                if full not in found.names:
                    continue
                value = found.correlations[at][found.names.index(full)]
                numbers = np.asarray(values, dtype=float)
                guessed.append(float(value or 0) * np.sqrt(found.rows))
                true.append((numbers[row] - numbers.mean()) / numbers.std())
    real = np.array(true)
    best = np.array(guessed)
    if epsilon is not None:  # an attacker that knows the noise shrinks what it reads
        noise = found.correlation_error * np.sqrt(found.rows)
        best = best / (1 + noise**2)
    return float(1 - np.square(real - best).sum() / np.square(real - real.mean()).sum())


def _two_runs(people: sv.Parties, persons: Sequence[str], epsilon: float | None) -> dict[str, float]:
    """How often the bin that lost a row is the person's."""
    hits, fullest, count = 0, 0, 0
    for person in persons:
        with_, _ = compute(sv.Shares(dp=_make_noise(epsilon)), people, vif=False)
        without, _ = compute(sv.Shares(dp=_make_noise(epsilon)), _leave_out(people, person), vif=False)
        other = {one.column: one for one in without.columns}
        for one in with_.columns:
            if one.party == with_.active or not one.bins or one.kind != "numbers":
                continue
            values = next(table for table in people.passive if table.name == one.party)
            value = float(np.asarray(values.columns[one.column], dtype=float)[list(values.ids).index(person)])
            count += 1
            biggest = max(one.bins, key=lambda part: part.rows)
            fullest += _is_inside(value, biggest.bin)
            again = other[one.column].bins
            if len(again) == len(one.bins):
                lost = [left.rows - right.rows for left, right in zip(one.bins, again, strict=True)]
                hits += _is_inside(value, one.bins[int(np.argmax(lost))].bin)
            else:
                hits += _is_inside(value, biggest.bin)
    return {"right bins": hits / count, "fullest bin": fullest / count}


def _is_inside(value: float, words: str) -> bool:
    low, _, high = words.removesuffix(", missing").partition(" to ")
    if low == "missing":
        return False
    margin = 1e-4 * max(abs(float(low)), abs(float(high or low)), 1e-9)
    return float(low) - margin <= value <= float(high or low) + margin


def _leave_out(people: sv.Parties, person: str) -> sv.Parties:
    active = people.active
    kept = np.flatnonzero(np.array([name != person for name in active.ids]))
    columns = {name: values[kept] for name, values in active.columns.items()}
    label = None if active.label is None else active.label[kept]
    ids = [active.ids[row] for row in kept]
    return sv.Parties.of(replace(active, ids=ids, columns=columns, label=label), *people.passive)


def main(*, quick: bool) -> None:
    """Measure and write.

    Args:
        quick: fewer rows and persons.
    """
    rows = 2_000 if quick else 30_000
    three = sv.datasets.default_credit(overlap=1.0, seed=0, rows=rows)
    two = join_two(three)
    kinds: dict[str, tuple[Protection, sv.Parties]] = {
        "in the clear, three": (sv.Plain(), three),
        "shares of three": (sv.Shares(), three),
        "in the clear, two": (sv.Plain(), two),
        "shares of two": (sv.Shares(computing=2), two),
        "shares of two, helper": (sv.Shares(computing=2, helper="notary"), two),
        "shares of three, ε = 1": (sv.Shares(dp=_make_noise(1.0)), three),
    }
    costs, exact = {}, None
    for name, (protection, people) in kinds.items():
        found, costs[name] = compute(protection, people)
        exact = found if name == "shares of three" else exact
    if exact is None:
        raise RuntimeError("no exact figures")
    small = sv.datasets.default_credit(overlap=1.0, seed=1, rows=1_000 if quick else 3_000)
    persons = [str(small.active.ids[row]) for row in range(1 if quick else 8)]
    attacks = {
        what: {"indicator R²": _measure_leak(small, persons, epsilon), **_two_runs(small, persons, epsilon)}
        for what, epsilon in (("exact", None), ("ε = 4", 4.0), ("ε = 1", 1.0))
    }
    write("statistics", {"costs": costs, "errors": _measure_errors(exact, three), "attacks": attacks})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and persons")
    main(quick=parser.parse_args().quick)
