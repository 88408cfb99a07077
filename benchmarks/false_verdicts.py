"""How often tests over seeds decide between methods that are equal, on real tables that the seeds split again.

    python -m benchmarks.false_verdicts [--quick] [--repeats 400] [--only TABLE …] [--looks]

Four methods see the same rows of a real table. For each of them, each value of each row is hidden with a chance of 0.3,
once for all seeds. The methods are therefore exchangeable: no test can rightly decide between them on average. Yet on
the rows at hand one is a little better, in every seed that tests these rows, as real methods are. Every seed splits the
rows as sweeps do; a ridge classifier learns from all training rows, or from few of them. Reported: the share of
single tests that decide at 5 %, and of pages, one table's pairs of methods each, that hold any verdict after Holm's
correction; by Student's t, and by the corrected t of `securevfl.report.statistics`.

`--looks` measures something else, into results/false_looks.json: pages that are tested after every further seed, and
stop where a verdict is reached.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

import securevfl as sv
from benchmarks.common import before, data, write
from securevfl.data.overlap import hold_out
from securevfl.data.resampling import compute_ratio, describe_split
from securevfl.data.table import TEST, TRAIN
from securevfl.report.statistics import FEWEST, LEVEL, judge_family, run_paired_test

__all__ = ["CASES", "SEEDS", "Case", "Table", "differences", "measure", "measure_mean", "read_table"]

METHODS = 4
HIDDEN = 0.3
"""The chance that a method does not see a value."""
SEEDS = (5, 10, 20)
_RIDGE = 10.0


@dataclass(frozen=True)
class Table:
    """Rows of a real table: standardised features (rows, columns), classes from 0, and how many rows only train."""

    x: np.ndarray
    y: np.ndarray
    only_train: int = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table, and how seeds draw from it.

    Attributes:
        name: of the data set.
        options: of its function, that decide what seeds share.
        training: share of the training rows that the models learn from.
        sampled: rows that a seed draws before it splits them; None for all.
        tested: rows that a seed draws of those that only test; None where a split decides.
    """

    name: str
    options: Mapping[str, float]
    training: float = 1.0
    sampled: int | None = None
    tested: int | None = None

    @property
    def ratio(self) -> float:
        """What sweeps of this data set store."""
        split = describe_split(self.name, self.options)
        if split is None:
            raise ValueError(f"nothing is known of how seeds split {self.name}")
        return compute_ratio(0.2 * split.drawn if split.tested is None else split.tested)

    def draw(self, table: Table, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and test rows of a seed."""
        draw = np.random.default_rng([seed, 1])
        if self.tested is not None:
            train = draw.permutation(table.only_train)[: self.sampled]
            test = table.only_train + draw.permutation(len(table.y) - table.only_train)[: self.tested]
        else:
            rows = draw.permutation(len(table.y))[: self.sampled]
            fold = hold_out(len(rows), valid=0.1, test=0.2, seed=seed)
            train, test = rows[fold == TRAIN], rows[fold == TEST]
        return train[: max(2, round(len(train) * self.training))], test


CASES: Mapping[str, Case] = {
    "breast cancer": Case(name="breast_cancer", options={"overlap": 1.0}),
    "breast cancer, a third trains": Case(name="breast_cancer", options={"overlap": 1.0}, training=0.33),
    "Parkinson's speech": Case(name="parkinson", options={}),
    "Parkinson's speech, a fifth trains": Case(name="parkinson", options={}, training=0.2),
    "Handwritten": Case(name="handwritten", options={}),
    "Handwritten, 5 % train": Case(name="handwritten", options={}, training=0.05),
    "credit": Case(name="limited_credit", options={}),
    "credit, 5 % train": Case(name="limited_credit", options={}, training=0.05),
    "credit, 6,000 of 30,000 clients": Case(name="limited_credit", options={"rows": 6_000}, sampled=6_000),
    "MNIST": Case(name="mnist", options={"test_rows": 2_000}, sampled=3_600, tested=2_000),
    "MNIST, 5 % train": Case(name="mnist", options={"test_rows": 2_000}, sampled=3_600, tested=2_000, training=0.05),
}
AVERAGED = ("breast cancer", "Parkinson's speech", "Handwritten")
"""Cases whose differences are also averaged, seed by seed."""
MEAN = f"mean of {len(AVERAGED)} tables"
LOOKED_AT = ("breast cancer", "breast cancer, a third trains", "Parkinson's speech", "Handwritten, 5 % train")
"""Cases of `--looks`: it makes sixteen tests of each pair."""
_LOADERS: Mapping[str, Callable[[], sv.Parties]] = {
    "breast_cancer": lambda: sv.datasets.breast_cancer(overlap=1.0),
    "parkinson": lambda: sv.datasets.parkinson(overlap=1.0),
    "handwritten": lambda: sv.datasets.handwritten(overlap=1.0),
    "limited_credit": lambda: sv.datasets.limited_credit(overlap=1.0),
    "mnist": lambda: sv.datasets.mnist(overlap=1.0),
}
_COLUMNS = 40
"""Of a table, at most, spread over all of them: the learner has to be cheap."""


def read_table(name: str) -> Table:
    """A named data set as one table, its rows in the order of the active party's ids; images as 98 means of pixels.

    Raises:
        InputError: its files are not here.
    """
    parties = _LOADERS[name]()
    chief = parties.active
    ids = sorted(chief.ids)
    blocks = []
    for table in parties.values():
        at = {one: row for row, one in enumerate(table.ids)}
        rows = [at[one] for one in ids]
        blocks += [_numbers(column)[rows] for column in table.columns.values()]
    x = np.concatenate(blocks, axis=1)
    spread = x.std(axis=0)
    x, spread = x[:, spread > 1e-9], spread[spread > 1e-9]
    x = (x - x.mean(axis=0)) / spread
    if chief.label is None:
        raise ValueError(f"{name} has no labels")
    at = {one: row for row, one in enumerate(chief.ids)}
    y = chief.label[[at[one] for one in ids]]
    only_train = sum(one.startswith("train-") for one in ids)
    if only_train:  # ids sort "test-…" before "train-…"
        order = np.r_[len(ids) - only_train : len(ids), 0 : len(ids) - only_train]
        x, y = x[order], y[order]
    step = max(1, x.shape[1] // _COLUMNS)
    return Table(x[:, ::step], y.astype(int), only_train)


def _numbers(column: np.ndarray) -> np.ndarray:
    """A column as (rows, numbers): codes of categories, means of 4 × 2 pixels."""
    if column.dtype.kind in "US":
        return np.unique(column, return_inverse=True)[1][:, None].astype(float)
    if column.ndim == 3:
        rows, height, width = column.shape
        return column.reshape(rows, height // 4, 4, width // 2, 2).mean(axis=(2, 4)).reshape(rows, -1)
    return column.reshape(len(column), -1).astype(float)


def _score(x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, classes: int) -> float:
    """Accuracy, or AUC of two classes, of a ridge classifier."""
    mean = x[train].mean(axis=0)
    a, b = x[train] - mean, np.eye(classes)[y[train]]
    weights = np.linalg.solve(a.T @ a + _RIDGE * np.eye(a.shape[1]), a.T @ (b - b.mean(axis=0)))
    scores = (x[test] - mean) @ weights + b.mean(axis=0)
    truth = y[test]
    if classes > 2:
        return float((scores.argmax(axis=1) == truth).mean())
    ones = int(truth.sum())
    ranks = rankdata(scores[:, 1])[truth == 1].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * (len(truth) - ones)))


def differences(case: Case, table: Table, repeat: int, seeds: int) -> np.ndarray:
    """Differences of all pairs of methods on one hiding of values, (pairs, seeds).

    Args:
        case: how seeds draw rows.
        table: the rows.
        repeat: which hiding, and which seeds.
        seeds: how many.
    """
    draw = np.random.default_rng([repeat, 2])
    classes = int(table.y.max()) + 1
    rows = [case.draw(table, 1000 * repeat + seed) for seed in range(seeds)]
    used = np.unique(np.concatenate([one for pair in rows for one in pair]))
    place = np.zeros(len(table.y), dtype=int)
    place[used] = np.arange(len(used))
    found = np.empty((METHODS, seeds))
    for method in range(METHODS):
        seen = table.x[used] * (draw.random((len(used), table.x.shape[1])) >= HIDDEN)
        for seed, (train, test) in enumerate(rows):
            found[method, seed] = _score(seen, table.y[used], place[train], place[test], classes)
    return np.array([found[i] - found[k] for i, k in itertools.combinations(range(METHODS), 2)])


def measure(case: Case, table: Table, repeats: int, seeds: tuple[int, ...] = SEEDS) -> dict[str, object]:
    """How often single tests and pages decide, by number of seeds, and the correlation of two seeds' differences.

    Args:
        case: how seeds draw rows.
        table: the rows.
        repeats: pages.
        seeds: numbers of seeds to look at.
    """
    return _summarise_pages(
        [differences(case, table, repeat, max(seeds)) for repeat in range(repeats)], case.ratio, seeds
    )


def measure_mean(repeats: int, seeds: tuple[int, ...] = SEEDS, names: Sequence[str] = AVERAGED) -> dict[str, object]:
    """The same of differences averaged over several tables, seed by seed, as the page of the papers' claims has them.

    Args:
        repeats: pages.
        seeds: numbers of seeds to look at.
        names: of cases.
    """
    cases = [CASES[name] for name in names]
    tables = [read_table(case.name) for case in cases]
    every = [
        np.mean([differences(case, table, r, max(seeds)) for case, table in zip(cases, tables, strict=True)], axis=0)
        for r in range(repeats)
    ]
    return _summarise_pages(every, max(case.ratio for case in cases), seeds)


def measure_looks(every: Sequence[np.ndarray], ratio: float) -> dict[str, dict[str, float]]:
    """Shares of tests and pages that decide: with all seeds, and at any look, one after each seed from the fifth on.

    Args:
        every: differences of each page, (pairs, seeds).
        ratio: see `run_paired_test`.
    """
    found = {"once": {"single": 0.0, "pages": 0.0}, "looks": {"single": 0.0, "pages": 0.0}}
    for page in every:
        pairs, seeds = page.shape
        tests = [[run_paired_test(pair[:n].tolist(), ratio=ratio) for pair in page] for n in range(FEWEST, seeds + 1)]
        single = np.array([[(test.p or 0.0) <= LEVEL for test in look] for look in tests])
        whole = [any(one.verdict != "undecided" for one in judge_family(look)) for look in tests]
        for name, chosen in (("once", slice(-1, None)), ("looks", slice(None))):
            found[name]["single"] += float(single[chosen].any(axis=0).sum()) / pairs / len(every)
            found[name]["pages"] += any(whole[chosen]) / len(every)
    return found


def _summarise_pages(every: list[np.ndarray], ratio: float, seeds: tuple[int, ...]) -> dict[str, object]:
    """Shares of tests and pages that decide, from the differences of all pages, (pairs, seeds) each."""
    repeats = len(every)
    found: dict[str, object] = {"repeats": repeats, "ratio": ratio, "correlation": _correlation(every)}
    found["assumed correlation"] = ratio / (1 + ratio)
    for n in seeds:
        for name, assumed in (("Student", 0.0), ("corrected", ratio)):
            single = pages = 0
            for page in every:
                tests = [run_paired_test(pair[:n].tolist(), ratio=assumed) for pair in page]
                single += sum((test.p or 0.0) <= LEVEL for test in tests)
                pages += any(one.verdict != "undecided" for one in judge_family(tests))
            found[f"{name}, {n} seeds"] = {
                "single": single / (repeats * len(every[0])),
                "pages": pages / repeats,
            }
    return found


def _correlation(every: list[np.ndarray]) -> float:
    """Between the differences of two seeds, over all pages: their mean is 0, for the methods are exchangeable."""
    values = np.array(every)  # (pages, pairs, seeds)
    n = values.shape[2]
    total = (values.sum(axis=2) ** 2).mean()
    return float((total / (values**2).sum(axis=2).mean() - 1) / (n - 1))


def run(repeats: int, only: Collection[str], seeds: tuple[int, ...]) -> Iterator[tuple[str, dict[str, object]]]:
    """Each case whose files are here: its name and figures."""
    read: dict[str, Table | None] = {}
    for name, case in CASES.items():
        if only and name not in only:
            continue
        if case.name not in read:
            read.clear()
            read[case.name] = data(lambda wanted=case.name: read_table(wanted), name)  # type: ignore[misc]
        table = read[case.name]
        if table is not None:
            yield name, measure(case, table, repeats, seeds)
    if not only or MEAN in only:
        mean = data(lambda: measure_mean(repeats, seeds), MEAN)
        if mean is not None:
            yield MEAN, mean


def run_looks(repeats: int, only: Collection[str]) -> None:
    """Measure and write each case of `LOOKED_AT`, or those of `only`."""
    for name in only or LOOKED_AT:
        case = CASES[name]
        table = data(lambda wanted=case.name: read_table(wanted), name)  # type: ignore[misc]
        if table is None:
            continue
        pages = [differences(case, table, repeat, max(SEEDS)) for repeat in range(repeats)]
        found = {"repeats": repeats, **measure_looks(pages, case.ratio)}
        print(name, found, flush=True)
        write("false_looks", before("false_looks") | {name: found}, show=False)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="20 pages of two tables")
    options.add_argument("--repeats", type=int, default=400, help="pages of each table")
    options.add_argument("--only", nargs="+", default=[], help="tables")
    options.add_argument("--looks", action="store_true", help="pages that stop where a verdict is reached")
    given = options.parse_args()
    if given.looks:
        run_looks(20 if given.quick else given.repeats, given.only)
        return
    quick = ["breast cancer", "Handwritten, 5 % train"]
    for name, found in run(20 if given.quick else given.repeats, quick if given.quick else given.only, SEEDS):
        print(name, found, flush=True)
        write("false_verdicts", before("false_verdicts") | {name: found}, show=False)


if __name__ == "__main__":
    main()
