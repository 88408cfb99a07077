"""Whole jobs of sealed boosting: what a tree costs where it sees some of the rows, and with more parties.

    python -m benchmarks.boosting_jobs [--quick] [--only sampling] [--trees 3]

The credit table, 12,945 training rows, 18 passive columns, 32 bins, depth 5, a key of 2048 bits. All parties run in one
process, with links, ledgers and checks. A tree's figures are medians over `--trees` trees after a first one, which
makes tables: seconds, CPU seconds of all parties together, rows that are encrypted, bytes of all messages.

- *sampling*: all rows, 30 % by chance (``rows``), as many by one-side sampling (``goss``), half the columns; nodes
  hidden and shown; the AUC of 100 trees of each, in the clear, over three seeds; the AUC and the number of trees where
  the validation rows say when to stop, over five; and how well a passive party ranks the training rows' labels by how
  often each row was among those that it was told a tree sees.
- *parties*: the 18 columns at one passive party, at two and at four; and six columns at each of one, two and four (of
  these 24, six are there twice).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from securevfl_crypto.sums import SumOwner

import securevfl as sv
from benchmarks.common import before, write
from securevfl.algorithms.boosting import answering
from securevfl.algorithms.boosting.active import BoostingActive
from securevfl.attacks.measure import auc
from securevfl.run import join_parties
from securevfl.run.simulation import RunOutcome, run_parties
from securevfl.testing.trial import roles_begun

__all__ = ["SAMPLING", "one_job", "parties_of", "timed_trees"]

SAMPLING: Mapping[str, dict[str, Any]] = {
    "all rows": {},
    "rows = 0.3": {"rows": 0.3},
    "goss = (0.1, 0.2)": {"goss": (0.1, 0.2)},
    "columns = 0.5": {"columns": 0.5},
    "rows = 0.3, columns = 0.5": {"rows": 0.3, "columns": 0.5},
}
_TREE: dict[str, Any] = {"depth": 5, "bins": 32, "lr": 0.1, "min_hessian": 1e-3}


@contextmanager
def timed_trees() -> Iterator[list[dict[str, float]]]:
    """What each tree inside costs."""
    found: list[dict[str, float]] = []
    grow, encrypt = BoostingActive.add_tree, SumOwner.encrypt_rows
    rows = [0]

    def encrypted(self: Any, values: np.ndarray, node: np.ndarray | None = None) -> np.ndarray:
        rows[0] += len(values)
        return encrypt(self, values, node)

    async def timed(self: Any, output: int, g: np.ndarray, h: np.ndarray) -> None:
        wall, work, before_ = time.perf_counter(), time.process_time(), rows[0]
        await grow(self, output, g, h)
        found.append(
            {
                "seconds": time.perf_counter() - wall,
                "CPU seconds": time.process_time() - work,
                "rows encrypted": float(rows[0] - before_),
            }
        )

    with mock.patch.object(BoostingActive, "add_tree", timed), mock.patch.object(SumOwner, "encrypt", encrypted):
        yield found


def _bytes(ran: RunOutcome, trees: int) -> float:
    """Of all messages that grew trees, of all parties, for a tree."""
    steps = ("boost/gradients", "boost/sums", "boost/nodes", "boost/rows", "boost/splits", "boost/sides", "boost/next")
    entries = [entry for ledger in ran.ledgers.values() for entry in ledger.entries]
    return sum(one.bytes for one in entries if one.way == "sent" and one.what in steps) / trees


@contextmanager
def rows_told() -> Iterator[list[np.ndarray]]:
    """The training rows of each tree, as a passive party knows them."""
    found: list[np.ndarray] = []
    seen = answering.TreeAnswers._receive_summed_rows

    async def watched(self: Any) -> np.ndarray:
        rows = await seen(self)
        if self._role.site.name == "network":
            found.append(rows)
        return rows

    with mock.patch.object(answering.TreeAnswers, "_seen", watched):
        yield found


def quality(people: sv.Parties, rounds: int, **changes: Any) -> dict[str, float]:
    """The AUC of a model in the clear, and of labels ranked by how often a tree saw a row."""
    with rows_told() as told, roles_begun() as roles:
        figures = one_job(people, rounds - 1, sv.Plain(), **changes)
    (y,) = (role.labels(role.table.split.train).numpy() for role in roles if isinstance(role, BoostingActive))
    times = sum(np.bincount(rows, minlength=len(y)) for rows in told)
    return {"AUC": figures["AUC"], "AUC of labels by the rows seen": auc(y == 1, np.asarray(times, dtype=float))}


def stopped(people: sv.Parties, most: int, **changes: Any) -> dict[str, float]:
    """The AUC on the test rows of a model in the clear that stops after 20 trees without a gain on the validation rows,
    and keeps the trees up to the best; how many it keeps, and how many it grew."""
    algorithm = sv.Boosting(**{**_TREE, **changes})
    job = sv.Job(algorithm=algorithm, protection=sv.Plain(), epochs=most, patience=20, keep="best", seed=0)
    ran = run_parties(job, people, join_parties(people, job), run="boosting jobs, stopped")
    bank = ran.trained[people.active.name]
    return {"AUC": bank.test["auc"], "trees": float(bank.best_epoch), "grown": float(len(bank.epochs))}


def one_job(people: sv.Parties, trees: int, protection: sv.Plain | sv.Paillier, **changes: Any) -> dict[str, float]:
    """One job: the median tree after the first, and the AUC on the test rows.

    Args:
        people: the parties.
        trees: how many are grown beside the first.
        protection: of the job.
        changes: of `Boosting`.
    """
    plan: dict[str, Any] = {"epochs": trees + 1, "patience": None, "keep": "last", "valid_every": trees + 1, "seed": 0}
    job = sv.Job(algorithm=sv.Boosting(**{**_TREE, **changes}), protection=protection, **plan)
    with timed_trees() as found:
        ran = run_parties(job, people, join_parties(people, job), run="boosting jobs")
    figures = {name: statistics.median(one[name] for one in found[1:]) for name in found[0]}
    return {
        **figures,
        "MB": _bytes(ran, trees + 1) / 1e6,
        "AUC": ran.trained[people.active.name].test["auc"],
        "training rows": float(len(ran.split.train)),
    }


def parties_of(people: sv.Parties, columns: tuple[int, ...]) -> sv.Parties:
    """The same people with their passive columns dealt out anew.

    Args:
        people: the bank, the network and the retailer.
        columns: how many each passive party gets; from the first again where there are too few.
    """
    places = [{name: at for at, name in enumerate(table.ids)} for table in people.passive]
    common = [name for name in people.active.ids if all(name in place for place in places)]
    chosen = [
        (name, np.asarray(values)[[place[one] for one in common]])
        for table, place in zip(people.passive, places, strict=True)
        for name, values in table.columns.items()
    ]
    where = {name: at for at, name in enumerate(people.active.ids)}
    mine = np.array([where[name] for name in common])
    bank, label = people.active, np.asarray(people.active.label)
    own = {name: np.asarray(values)[mine] for name, values in bank.columns.items()}
    tables, first = [], 0
    for number, count in enumerate(columns):
        held = [chosen[k % len(chosen)] for k in range(first, first + count)]
        tables.append(sv.PartyTable(name=f"party{number + 1}", ids=common, columns=dict(held)))
        first += count
    return sv.Parties.of(replace(bank, ids=common, columns=own, label=label[mine]), *tables)


def sampling(rows: int | None, trees: int, seeds: int, rounds: int) -> dict[str, object]:
    """What seeing fewer rows saves, and what it costs in quality."""
    found: dict[str, object] = {}
    people = sv.datasets.default_credit(overlap=0.85, seed=0, rows=rows)
    for name, changes in SAMPLING.items():
        one: dict[str, object] = {}
        for nodes in ("hidden", "shown"):
            one[f"nodes {nodes}"] = one_job(people, trees, sv.Paillier(bits=2048), nodes=nodes, **changes)
        of_seeds = [
            quality(sv.datasets.default_credit(overlap=0.85, seed=seed, rows=rows), rounds, **changes)
            for seed in range(seeds)
        ]
        one["in the clear"] = {"rounds": rounds, "of seeds": of_seeds}
        one["AUC"] = statistics.fmean(each["AUC"] for each in of_seeds)
        one["stopped"] = stopping(rows, seeds + 2, 2 * rounds, **changes)
        found[name] = one
        print(name, one, flush=True)
    return found


def stopping(clients: int | None, seeds: int, most: int, **changes: Any) -> dict[str, object]:
    """`stopped` over some seeds, and the means."""
    tables = (sv.datasets.default_credit(overlap=0.85, seed=seed, rows=clients) for seed in range(seeds))
    of_seeds = [stopped(people, most, **changes) for people in tables]
    means = {name: statistics.fmean(each[name] for each in of_seeds) for name in of_seeds[0]}
    return {**means, "of seeds": of_seeds}


def growth(rows: int | None, trees: int) -> dict[str, object]:
    """A tree's cost with 1, 2 and 4 passive parties."""
    people = sv.datasets.default_credit(overlap=0.85, seed=0, rows=rows)
    whole = {
        "18 columns in all": {1: (18,), 2: (9, 9), 4: (5, 5, 4, 4)},
        "6 columns each": {n: (6,) * n for n in (1, 2, 4)},
    }
    found: dict[str, object] = {}
    for kind, sizes in whole.items():
        for count, columns in sizes.items():
            dealt = parties_of(people, columns)
            for nodes in ("hidden", "shown"):
                name = f"{kind}, {count} passive, nodes {nodes}"
                found[name] = one_job(dealt, trees, sv.Paillier(bits=2048), nodes=nodes)
                print(name, found[name], flush=True)
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="900 clients, two trees, one seed")
    parser.add_argument("--only", choices=("sampling", "parties"), help="the other's figures stay as they are")
    parser.add_argument("--trees", type=int, default=3)
    asked = parser.parse_args()
    rows, trees = (900, 1) if asked.quick else (None, asked.trees)
    content = before("boosting_jobs") if asked.only else {}
    if asked.only != "parties":
        content["sampling"] = sampling(rows, trees, *((1, 3) if asked.quick else (3, 100)))
    if asked.only != "sampling":
        content["parties"] = growth(rows, trees)
    write("boosting_jobs", content)


if __name__ == "__main__":
    main()
