"""Whether the figure of a party's own card is at least what attacks get, on tables that did not shape it.

    python -m benchmarks.card_figure [--quick] [--only TABLE|TABLE] [--seeds 1]

For each table, each passive party and each kind of job: the numbers that the job opens of each row go to the active
party, who also has its own columns and knows some whole rows. The gain is the mean share of the spread of the party's
columns that the best of four attackers gets of other rows, less what the best gets from own columns alone. The figure
is `compute_share` of the party's columns and that number of numbers, with the same number of known rows at least.

Jobs are twins in the clear, of scikit-learn: what a job on shares opens but for its rounding. The last kinds are chosen
against the figure: the best linear forms, and a label that packs several columns of few values into one number.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Collection, Iterator

import numpy as np

from benchmarks.card_tables import SplitTable, split_tables
from benchmarks.common import write
from securevfl.attacks.learned_share import JUDGED_ROWS, KNOWN_ROWS, LEVELS, compute_share
from securevfl.attacks.learners import standardise
from securevfl.attacks.measure import Known

__all__ = ["QUICK_KINDS", "answers", "gains", "judge_quickly", "judge_table"]

_MARGIN = 0.01
"""A gain above the figure by less is chance: both are measured on other rows."""


QUICK_KINDS = ("regression, honest label", "regression, coin labels, four jobs", "best linear forms, 1")
"""Of `answers`: those that the gate's quick size judges."""


def judge_quickly() -> list[str]:
    """What is wrong with the figure on one table that comes with scikit-learn; for the gate."""
    found = []
    for table in split_tables("diabetes"):
        for shape in judge_table(table, 1, QUICK_KINDS):
            if not shape["holds"]:
                named = f"{shape['table']}, {shape['party']}, {shape['job']}"
                found.append(f"card, {named}: an attack gains {shape['gain']}, and the figure is {shape['figure']}")
    return found


def judge_table(table: SplitTable, seeds: int = 1, kinds: Collection[str] | None = None) -> Iterator[dict[str, object]]:
    """Every shape of a table: party, kind of job, numbers, figure and gain.

    Args:
        table: whose columns are parted.
        seeds: draws of known rows, whose gains are averaged.
        kinds: of jobs, by name; all of `answers` by default.
    """
    figures: dict[tuple[str, int], float] = {}
    for kind, victims, opened, numbers in answers(table):
        for party in victims if kinds is None or kind in kinds else ():
            columns = table.parties[party]
            asked = min(numbers, columns.shape[1])
            if (party, asked) not in figures:
                figures[party, asked] = compute_share(columns, asked).share
            test = np.arange(len(columns) - len(opened), len(columns))
            found = [gains(table.own[test], opened, columns[test], seed) for seed in range(seeds)]
            gain = float(np.mean(found))
            figure = figures[party, asked]
            yield {
                "table": table.name,
                "party": party,
                "columns": columns.shape[1],
                "job": kind,
                "numbers": numbers,
                "figure": figure,
                "gain": round(gain, 3),
                "holds": gain <= figure + _MARGIN,
            }


def answers(table: SplitTable) -> Iterator[tuple[str, tuple[str, ...], np.ndarray, int]]:
    """Kinds of jobs: name, whose columns are attacked, the numbers that are opened of the last rows, how many."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPClassifier

    x, y = np.hstack([table.own, *table.parties.values()]), table.label
    size, every = len(x), tuple(table.parties)
    train, test = np.arange(size // 2), np.arange(size // 2, size)
    known = train[:KNOWN_ROWS]
    draw = np.random.default_rng(1)
    binary = (y > np.median(y)).astype(int) if 0 < (y > np.median(y)).mean() < 1 else (y > y.min()).astype(int)

    def coins(count: int = 2) -> np.ndarray:
        return draw.integers(0, count, len(train))

    def regressed(rows: np.ndarray, label: np.ndarray, strength: float = 1.0) -> np.ndarray:
        return _log_odds(_fit_logistic(x[rows], label, strength), x[test])

    yield "regression, honest label", every, regressed(train, binary[train]), 1
    parts = np.array_split(train, 3)
    yield (
        "regression, retrained three times",
        every,
        np.hstack([regressed(part, binary[part]) for part in parts]),
        3,
    )
    yield "regression, coin labels, four jobs", every, np.hstack([regressed(train, coins(), 10) for _ in range(4)]), 4
    yield "regression, four coin classes", every, regressed(train, coins(4), 10), 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forty rounds are enough to have learnt something
        network = MLPClassifier((16,), max_iter=40, random_state=0).fit(x[train], binary[train])
    yield "network, honest label", every, _log_odds(network, x[test]), 1
    for often in (2, 4, 8):
        asked = []
        for _ in range(often):
            varied = x[test].copy()
            varied[:, : table.own.shape[1]] = draw.uniform(-4, 4, table.own.shape[1])
            asked.append(_log_odds(network, varied))
        yield f"network, own columns varied {often} times", every, np.hstack(asked), often
    trees = HistGradientBoostingClassifier(max_iter=60).fit(x[train], binary[train])
    yield "boosting, honest label", every, _log_odds(trees, x[test]), 1
    fitted = HistGradientBoostingClassifier(max_iter=60).fit(x[known], coins()[: len(known)])
    yield "boosting, coin labels of known rows", every, _log_odds(fitted, x[test]), 1
    wide = np.random.default_rng(2)
    inner = np.tanh(x[test] @ wide.normal(size=(x.shape[1], 16)) * 0.5)
    yield "network, untrained, two outputs", every, inner @ wide.normal(size=(16, 2)), 2
    for party in every:
        columns = table.parties[party]
        directions = np.linalg.eigh(np.cov(columns.T))[1][:, ::-1]
        forms = columns @ directions
        yield "regression, label a column", (party,), regressed(known, _halves(columns[known, 0])), 1
        yield "regression, label a component", (party,), regressed(known, _halves(forms[known, 0])), 1
        for count in (1, 2):
            yield f"best linear forms, {count}", (party,), forms[test, :count], count
        packed = _pack(columns)
        if packed is not None:
            learnt = Ridge(alpha=1e-6).fit(x[known], packed[known]).predict(x[test])
            yield "regression, label packs columns of few values", (party,), np.round(learnt)[:, None], 1


def gains(own: np.ndarray, opened: np.ndarray, columns: np.ndarray, seed: int) -> float:
    """The mean share of the columns that the best attacker gains by what was opened."""
    rows = np.random.default_rng(seed).permutation(len(columns))
    known = rows[: min(KNOWN_ROWS, len(rows) // 2)]
    judged = rows[len(known) : len(known) + JUDGED_ROWS]
    without = _best_share(own, columns, known, judged, few=False)
    seen = np.hstack([own, standardise(opened)])
    squares = np.hstack([seen, standardise(opened) ** 2, own * standardise(opened)[:, :1]])
    few = opened.shape[1] <= 4  # as many as the figure's trees decode
    got = _best_share(seen, columns, known, judged, few=few)
    got = np.maximum(got, _ridge_share(squares, columns, known, judged))
    if few:
        without = np.maximum(without, _trees_share(own, columns, known, judged))
    return float((np.maximum(got, without) - without).mean())


def _best_share(
    seen: np.ndarray, columns: np.ndarray, known: np.ndarray, judged: np.ndarray, *, few: bool
) -> np.ndarray:
    found = _ridge_share(seen, columns, known, judged)
    return np.maximum(found, _trees_share(seen, columns, known, judged)) if few else found


def _ridge_share(seen: np.ndarray, columns: np.ndarray, known: np.ndarray, judged: np.ndarray) -> np.ndarray:
    from securevfl.attacks.learners import fit_ridge

    estimate = fit_ridge(np.arange(len(seen)), seen, Known(known, columns[known])).values
    return _share(estimate[judged], columns[judged])


def _trees_share(seen: np.ndarray, columns: np.ndarray, known: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """The better of boosted trees, a model a column, and a forest."""
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

    boosted = HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=8, learning_rate=0.1, early_stopping=False)
    each = np.column_stack([boosted.fit(seen[known], one[known]).predict(seen[judged]) for one in columns.T])
    forest = ExtraTreesRegressor(n_estimators=50, min_samples_leaf=2, random_state=0).fit(seen[known], columns[known])
    together = forest.predict(seen[judged]).reshape(len(judged), columns.shape[1])
    return np.maximum(_share(each, columns[judged]), _share(together, columns[judged]))


def _share(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    spread = truth.var(axis=0)
    missed = ((estimate - truth) ** 2).mean(axis=0)
    return np.clip(np.where(spread > 0, 1 - missed / np.maximum(spread, 1e-12), 0.0), 0, 1)


def _fit_logistic(x: np.ndarray, label: np.ndarray, strength: float) -> object:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=200).fit(x, label)


def _log_odds(model: object, x: np.ndarray) -> np.ndarray:
    """Log-odds of a model with two classes, (rows, 1); logits of more."""
    if hasattr(model, "decision_function"):
        found: np.ndarray = model.decision_function(x)
        return found[:, None] if found.ndim == 1 else found
    chances = np.clip(model.predict_proba(x), 1e-6, 1)  # type: ignore[attr-defined]
    odds: np.ndarray = np.log(chances[:, 1:] / chances[:, :1])
    return odds


def _halves(column: np.ndarray) -> np.ndarray:
    above = column > np.median(column)
    return (above if 0 < above.mean() < 1 else column > column.min()).astype(int)


def _pack(columns: np.ndarray) -> np.ndarray | None:
    """One whole number a row that holds the columns of the fewest values; None where no two fit."""
    codes = [np.unique(one, return_inverse=True)[1] for one in columns.T]
    packed, room, held = np.zeros(len(columns)), LEVELS, 0
    for one in sorted(codes, key=lambda one: one.max()):
        levels = int(one.max()) + 1
        if levels > room:
            break
        packed, room, held = packed * levels + one, room // levels, held + 1
    return packed if held > 1 else None


def main() -> int:
    """Run the benchmark; 1 where an attack gets more than the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small table")
    parser.add_argument("--only", default="", help="tables, a|b|c")
    parser.add_argument("--seeds", type=int, default=1, help="draws of known rows")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    start, shapes = time.process_time(), []
    for table in split_tables("diabetes" if asked.quick else asked.only):
        for shape in judge_table(table, 1 if asked.quick else asked.seeds):
            shapes.append(shape)
            print(*shape.values(), sep="; ", flush=True)
    ratios = [float(one["gain"]) / float(one["figure"]) for one in shapes]  # type: ignore[arg-type]
    broken = [one for one in shapes if not one["holds"]]
    summary = {
        "shapes": len(shapes),
        "tables": list(dict.fromkeys(one["table"] for one in shapes)),
        "draws of known rows": 1 if asked.quick else asked.seeds,
        "above the figure": len(broken),
        "gain over figure, median": round(statistics.median(ratios), 2),
        "gain over figure, largest": round(max(ratios), 2),
        "CPU seconds": round(time.process_time() - start),
    }
    write("card_figure", {**summary, "each": shapes}, show=False)
    print(summary)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
