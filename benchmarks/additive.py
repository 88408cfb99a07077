"""The additive model on shares: AUC by ε, rows and table, and what an epoch costs.

    python -m benchmarks.additive [--quick] [--seeds 3] [--tables credit] [--rows 18000 4000] [--only auc] [--shares]

*AUC*: the test rows of a job, with its own edges and masses within ε, ranges and levels declared as the table's, and
the noise of three computing parties. Parties set up as in a job; their epochs then run in the clear, which gives the
shapes of a run on shares word by word (`tests/shares/additive`), or on shares with ``--shares``. Beside it
scikit-learn's `HistGradientBoostingClassifier` on the pooled columns of the same rows, and on the active party's.
*Cost*: one epoch's sums at three computing parties in one process, with and without the check of what is dealt; CPU
seconds are of all parties together.

Runs that the results file has are not run again: a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from securevfl_crypto.replicated import Computing, deal_shares, run_three

import securevfl as sv
from benchmarks.common import before, data, write
from securevfl.algorithms.additive.clear import train_in_clear
from securevfl.algorithms.additive.shapes import to_logits
from securevfl.data import Parties
from securevfl.run import join_parties
from securevfl.run.simulation import run_parties
from securevfl.shares.additive.contrasts import split_contrasts
from securevfl.shares.additive.noise import PartyNoise
from securevfl.shares.additive.ranged import join_bits, split_bits
from securevfl.shares.additive.sums import SharedRows, find_violations, sum_contrasts
from securevfl.testing.trial import roles_begun

EPSILONS = (None, 8.0, 3.0, 1.0, 0.5)
DELTA = 1e-5
EPOCHS = 60
_TESTED = 0.38


def credit(seed: int, rows: int | None) -> Parties:
    """Default of credit card clients: bank, network and retailer."""
    wanted = None if rows is None else round(rows / 0.6)
    return sv.datasets.default_credit(overlap=1.0, seed=seed, rows=wanted)


TABLES: Mapping[str, Callable[[int, int | None], Parties]] = {"credit": credit}
"""Name → the parties' tables, of which 60 % train."""


def declare_columns(people: Parties) -> dict[str, Any]:
    """Ranges of numbers and levels of categories as a job would declare them: here, those that the table has."""
    ranges, levels = {}, {}
    for table in people.values():
        for column, values in table.columns.items():
            name, array = f"{table.name}.{column}", np.asarray(values)
            if array.dtype.kind in "fiu":
                known = array[np.isfinite(array.astype(np.float64))]
                ranges[name] = (float(known.min()), float(known.max()))
            else:
                levels[name] = tuple(sorted({str(one) for one in array.tolist()}))
    return {"ranges": ranges, "levels": levels}


def make_job(people: Parties, epsilon: float | None, seed: int, epochs: int) -> sv.Job:
    """The job of one run; without ε no noise, and edges from the common rows."""
    dp = None if epsilon is None else sv.DP(model=sv.Gaussian(epsilon=epsilon, delta=DELTA))
    declared = {} if epsilon is None else declare_columns(people)
    return sv.Job(
        algorithm=sv.Additive(**declared),
        protection=sv.Shares(dp=dp, metrics="none"),
        epochs=epochs,
        keep="last",
        valid=0.02,
        test=_TESTED,
        seed=seed,
    )


class _Stops(sv.Observer):
    """Ends a job when its parties have set up."""

    def phase(self, name: str) -> None:
        if name == "training":
            raise _SetUpError


class _SetUpError(Exception):
    """All parties have set up."""


def measure_in_clear(
    table: str, rows: int | None, epsilon: float | None, seed: int, epochs: int
) -> dict[str, Any] | None:
    """One run whose parties set up as in a job and train in the clear; None where there is no table."""
    people = data(lambda: TABLES[table](seed, rows), f"the {table} table")
    if people is None:
        return None
    start = time.perf_counter()
    job = make_job(people, epsilon, seed, epochs)
    with roles_begun() as begun, suppress(sv.PartyFailed):
        run_parties(job, people, join_parties(people, job), run="additive", observer=_Stops())
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    ordered = [roles[one.name] for one in (people.active, *people.passive)]
    active, shapes = ordered[0], [role.shapes.training for role in ordered]
    plan = job.algorithm.plan_sums(  # type: ignore[attr-defined]
        job.protection,
        rows=shapes[0].plan.rows,
        outputs=active.outputs,
        columns=shapes[0].plan.columns,
        epochs=epochs,
    )
    parties = [PartyNoise(plan) for _ in range(3)] if plan.own_sigma else []

    def draw_noise(epoch: int, shape: tuple[int, ...]) -> np.ndarray:
        found: np.ndarray = np.sum([one.draw(shape) for one in parties], axis=0)
        return found

    train_in_clear(shapes, active.targets, epochs, draw_noise if parties else None)
    test = active.table.split.test
    sums = sum(role.sum_shapes(test) for role in ordered)
    # Answers are log-odds rounded at 2^-4 by chance.
    logits = np.floor(to_logits(sums, numeric=False) * 2**4 + np.random.default_rng(seed).random(sums.shape)) / 2**4
    found = active.task.compute_metrics(
        active.task.compute_probabilities(torch.from_numpy(logits)), active.labels(test).cpu().numpy()
    )
    return {
        "table": table,
        "rows": shapes[0].plan.rows,
        "epsilon": epsilon,
        "seed": seed,
        "auc": found["auc"],
        "log_loss": found["log_loss"],
        "seconds": time.perf_counter() - start,
    }


def measure_auc(table: str, rows: int | None, epsilon: float | None, seed: int, epochs: int) -> dict[str, Any] | None:
    """One run; None where there is no table."""
    people = data(lambda: TABLES[table](seed, rows), f"the {table} table")
    if people is None:
        return None
    start = time.perf_counter()
    job = make_job(people, epsilon, seed, epochs)
    ran = run_parties(job, people, join_parties(people, job), run="additive")
    test = ran.trained[people.active.name].test
    return {
        "table": table,
        "rows": len(ran.split.train),
        "epsilon": epsilon,
        "seed": seed,
        "auc": test["auc"],
        "log_loss": test["log_loss"],
        "seconds": time.perf_counter() - start,
    }


def measure_peers(table: str, rows: int | None, seed: int) -> dict[str, Any] | None:
    """Boosted trees of scikit-learn over the same rows, pooled and by the active party's columns alone."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    people = data(lambda: TABLES[table](seed, rows), f"the {table} table")
    if people is None:
        return None
    job = make_job(people, None, seed, 1).replace(protection=sv.Plain(), valid_every=1)
    with roles_begun() as begun:
        ran = run_parties(job, people, join_parties(people, job), run="peers")
    roles: dict[str, Any] = {role.site.name: role for role in begun}
    names = [one.name for one in people.values()]
    train, test = ran.split.train, ran.split.test
    owner = roles[people.active.name]
    y, held = (owner.labels(part).cpu().numpy() for part in (train, test))
    found: dict[str, Any] = {"table": table, "rows": len(train), "seed": seed}
    for what, chosen in (("pooled", names), ("alone", names[:1])):
        both = [np.concatenate([roles[one].columns_of(part) for one in chosen], axis=1) for part in (train, test)]
        fitted = HistGradientBoostingClassifier(random_state=seed).fit(both[0], y)
        found[what] = float(owner.task.compute_metrics(fitted.predict_proba(both[1]), held)["auc"])
    return found


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure_cost(rows: int, columns: Sequence[int], *, bounded: bool, repeat: int = 3) -> dict[str, Any]:
    """One epoch of two classes.

    Args:
        rows: that train.
        columns: of each data party, the intercept with the first.
        bounded: whether what is dealt is checked, as in a job with a budget.
        repeat: how often; the medians count.
    """
    protection = sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=1.0)), metrics="none")
    algorithm = sv.Additive(edges="declared")
    job = algorithm.plan_sums(protection, rows=rows, outputs=1, columns=columns, epochs=EPOCHS)
    tops = [cap + 2 * slack for cap, slack in zip(job.caps, job.slacks, strict=True)]
    rng = np.random.default_rng(0)
    every, one, largest = sum(columns), job.one, job.contrast
    mass = rng.uniform(0.05, 0.5, every)
    side = rng.random((rows, every)) < mass
    contrasts = np.where(side, largest, np.rint(-mass / (1 - mass) * largest)).astype(np.int64)
    parts = [rng.integers(0, top + 1, (rows, 1)) for top in tops]
    y = deal_shares((rng.integers(0, 2, (rows, 1)) * one).astype(np.uint64))
    ends = np.cumsum(columns)
    figures = []
    for _ in range(repeat):
        start = _cpu()
        dealt = []
        for end, width, part, top in zip(ends, columns, parts, tops, strict=True):
            split = split_contrasts(contrasts[:, end - width : end])
            words = [split.bits, part.astype(np.uint64), split.values.view(np.uint64)]
            if bounded:
                words[1:] = [split_bits(part, top), split_bits(split.values + largest, 2 * largest)]
            dealt.append([deal_shares(array) for array in words])
        dealing = _cpu() - start
        start = _cpu()
        run = run_three(_epoch_program(dealt, y, tops, largest, ends, bounded=bounded), openings=_OPENINGS)
        figures.append(
            {
                "dealing cpu": dealing,
                "computing cpu": _cpu() - start,
                "dealt bytes": sum(one.nbytes for party in dealt for array in party for one in array),
                "computing bytes": run.bytes_sent,
                "rounds": run.rounds,
            }
        )
    middle = {name: statistics.median(one[name] for one in figures) for name in figures[0]}
    return {"rows": rows, "columns": list(columns), "bounded": bounded, **middle}


_OPENINGS = {"bounds": 1, "sums 0": 1, "sums 1": 1, "sums 2": 1}


def _epoch_program(
    dealt: Sequence[Sequence[Any]], y: Any, tops: Sequence[int], largest: int, ends: np.ndarray, *, bounded: bool
) -> Callable[[Computing], Any]:
    async def program(party: Computing) -> None:
        from securevfl_crypto.replicated import concatenate

        taken = [[party.read_dealt(one[party.index]) for one in own] for own in dealt]
        await party.confirm("input", *(share for own in taken for share in own))
        bits = concatenate([own[0] for own in taken], axis=1)
        residual = party.read_dealt(y[party.index])
        parts, values = [own[1] for own in taken], [own[2] for own in taken]
        if bounded:
            wrong = await find_violations(party, [bits, *parts, *values], [])
            assert await party.is_zero("bounds", wrong)
            parts = [join_bits(part, top) for part, top in zip(parts, tops, strict=True)]
            values = [
                join_bits(one, 2 * largest) - party.constant(np.full(one.shape[:2], largest, np.uint64))
                for one in values
            ]
        for part in parts:
            residual = residual - part
        noise = np.zeros((bits.shape[1], 1), np.uint64)
        sums = await sum_contrasts(party, [SharedRows(bits, residual)], concatenate(values, axis=1), noise)
        await party.open_each([(f"sums {k}", own, k) for k, own in enumerate(_split(sums, ends))])

    return program


def _split(sums: Any, ends: np.ndarray) -> list[Any]:
    starts = [0, *ends.tolist()]
    return [sums[low:high] for low, high in pairwise(starts)]


def _mean_rows(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """ "table rows, ε" → mean AUC over the seeds."""
    groups: dict[str, list[float]] = {}
    for run in runs:
        strength = "no noise" if run["epsilon"] is None else f"ε = {run['epsilon']:g}"
        groups.setdefault(f"{run['table']} {run['rows']}, {strength}", []).append(run["auc"])
    return {name: statistics.mean(values) for name, values in groups.items()}


def main() -> None:
    """Run what is missing, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, one seed, one ε; nothing is written")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="+", choices=sorted(TABLES), default=sorted(TABLES))
    parser.add_argument("--rows", nargs="+", type=int, default=[18_000])
    parser.add_argument("--shares", action="store_true", help="train on shares, which takes minutes a run")
    parser.add_argument("--only", choices=("auc", "cost"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept: dict[str, Any] = {"runs": [], "peers": [], "costs": []} | ({} if options.quick else before("additive"))
    seeds, sizes, epochs = (1, [2000], 5) if options.quick else (options.seeds, options.rows, EPOCHS)

    def store() -> None:
        if not options.quick:
            figures = {"delta": DELTA, "epochs": EPOCHS, "means": _mean_rows(kept["runs"])}
            write("additive", {**figures, **{name: kept[name] for name in ("runs", "peers", "costs")}}, show=False)

    def missing(part: str, wanted: Mapping[str, Any]) -> bool:
        return not any(all(run.get(name) == value for name, value in wanted.items()) for run in kept[part])

    if options.only != "auc":
        for rows in (2000,) if options.quick else (13_000, 100_000):
            for bounded in (False, True):
                if missing("costs", {"rows": rows, "bounded": bounded}):
                    kept["costs"].append(measure_cost(rows, (6, 6, 12), bounded=bounded))
                    print(kept["costs"][-1], flush=True)
                    store()
    cells = [(t, r, s) for t in options.tables for r in sizes for s in range(seeds)] if options.only != "cost" else []
    for table, rows, seed in cells:
        asked = {"table": table, "asked": rows, "seed": seed}
        if missing("peers", asked):
            found = measure_peers(table, rows, seed)
            if found is None:
                return
            kept["peers"].append(asked | found)
            print(kept["peers"][-1], flush=True)
            store()
        for epsilon in EPSILONS[:2] if options.quick else EPSILONS:
            if missing("runs", asked | {"epsilon": epsilon}):
                run = (measure_auc if options.shares else measure_in_clear)(table, rows, epsilon, seed, epochs)
                if run is None:
                    return
                kept["runs"].append(asked | run)
                print(kept["runs"][-1], flush=True)
                store()
    print(_mean_rows(kept["runs"]))


if __name__ == "__main__":
    main()
