"""Does the scale that is chosen for each column cost anything, and what does preparation take?

    python -m benchmarks.preparation [--part scaling|speed] [--quick] [--data NAME …] [--seeds N]

`scaling`: a split network in the clear with every scale, on the data sets of numbers at hand (blocks taken apart into
columns) and on made tables: normal columns, and columns of which the logarithm, or the amount itself, tells the class.
The metric is AUC on the test rows (accuracy for more than two classes), mean and deviation over seeds: each a split,
first weights and batches of its own. `worse` is the mean over seeds of what "auto" has less than the better of standard
and quantile, by means; `error` the standard error of that mean, corrected for the test rows that seeds share (made
tables share none).

`speed`: 1,000 columns × 30,000 rows, half of them skewed, a fifth with 20 % missing: CPU seconds of one core to fit and
to transform, beside scikit-learn's `SimpleImputer` (with indicators) and `QuantileTransformer` or `StandardScaler` on
the same columns with the same choice; and a column of each other kind of 30,000 rows.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks.common import before, data, write
from securevfl.data import FeatureEncoder
from securevfl.data.resampling import compute_ratio, describe_split
from securevfl.report.statistics import compute_error

__all__ = ["DATA", "SCALES", "made", "main", "scaling", "speed"]

SCALES = ("standard", "quantile", "robust", "auto")


def made(kind: str, seed: int, rows: int = 4_000) -> sv.Parties:
    """Two parties of eight columns each, of which half tell the class.

    Args:
        kind: ``"normal"``; ``"logarithms"`` of lognormal columns, which tell the class; ``"amounts"``, lognormal
            columns that tell it themselves.
        seed: of all that is drawn.
        rows: how many.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, 16))
    values = hidden if kind == "normal" else np.exp((2.0 if kind == "logarithms" else 0.8) * hidden)
    tells = np.zeros(16)
    tells[::2] = rng.choice([-1, 1], 8)
    score = (values if kind == "amounts" else hidden) @ tells
    label = (score / score.std() + rng.normal(size=rows) > np.median(score / score.std())).astype(np.int64)
    ids = [f"i{i}" for i in range(rows)]
    halves = ({f"c{i}": values[:, i] for i in part} for part in (range(8), range(8, 16)))
    bank, shop = (dict(half) for half in halves)
    return sv.Parties.of(
        sv.PartyTable(name="bank", ids=ids, columns=bank, label=label, classes=(0, 1), label_name="y"),
        sv.PartyTable(name="shop", ids=ids, columns=shop),
    )


DATA: Mapping[str, Callable[[int], sv.Parties]] = {
    "credit": lambda seed: sv.datasets.default_credit(seed=seed),
    "breast_cancer": lambda seed: sv.datasets.breast_cancer(seed=seed),
    "vehicle": lambda seed: sv.datasets.fate(table="vehicle_silhouettes", seed=seed),
    "parkinson": lambda seed: sv.datasets.parkinson(seed=seed),
    "handwritten": lambda seed: sv.datasets.handwritten(seed=seed),
    "made, normal": partial(made, "normal"),
    "made, logarithms": partial(made, "logarithms"),
    "made, amounts": partial(made, "amounts"),
}
"""Name → parties by seed."""


def _apart(parties: sv.Parties) -> sv.Parties:
    """Blocks of numbers as columns, so that each is scaled by itself."""
    tables = []
    for table in parties.values():
        columns: dict[str, Any] = {}
        for name, values in table.columns.items():
            block = isinstance(values, np.ndarray) and values.ndim == 2
            columns |= {f"{name}.{i}": values[:, i] for i in range(values.shape[1])} if block else {name: values}
        options = {field: getattr(table, field) for field in ("label", "classes", "label_name", "fold", "categorical")}
        tables.append(sv.PartyTable(name=table.name, ids=table.ids, columns=columns, **options))
    return sv.Parties.of(*tables)


def scaling(names: Sequence[str], seeds: int, epochs: int) -> dict[str, Any]:
    """Metric on the test rows by data and scale."""
    found: dict[str, Any] = {}
    for name in names:
        figures: dict[str, list[float]] = {scale: [] for scale in SCALES}
        metric = ""
        for seed in range(seeds):
            parties = data(partial(DATA[name], seed), f"scaling, {name}")
            if parties is None:
                break
            parties = _apart(parties)
            for scale in SCALES:
                job = sv.Job(
                    algorithm=sv.SplitNN(hidden=16), protection=sv.Plain(), epochs=epochs, seed=seed, scale=scale
                )
                test = sv.simulate(job, parties).run("plain").test
                metric = "auc" if "auc" in test and len(parties.active.classes) == 2 else "accuracy"
                figures[scale].append(test[metric])
        if metric:
            found[name] = _compared(figures, _find_ratio(name)) | {"metric": metric}
            print(name, {scale: f"{statistics.mean(v):.4f}" for scale, v in figures.items()}, found[name]["worse"])
    return found


def _find_ratio(name: str) -> float:
    """Test rows over the other rows that seeds draw them from."""
    split = describe_split({"credit": "default_credit", "vehicle": "fate"}.get(name, name), {})
    if split is None:  # a made table, a new one for each seed
        return 0.0
    return compute_ratio(0.2 * split.drawn if split.tested is None else split.tested)


def _compared(figures: Mapping[str, Sequence[float]], ratio: float) -> dict[str, Any]:
    means = {scale: statistics.mean(values) for scale, values in figures.items()}
    best = max((s for s in ("standard", "quantile") if s in means), key=lambda scale: means[scale], default="auto")
    less = [one - other for one, other in zip(figures[best], figures["auto"], strict=True)]
    spread = statistics.stdev(less) if len(less) > 1 else 0.0
    return {
        "mean": {scale: round(mean, 5) for scale, mean in means.items()},
        "deviation": {
            scale: round(statistics.stdev(values), 5) if len(values) > 1 else 0.0 for scale, values in figures.items()
        },
        "better": best,
        "worse": round(statistics.mean(less), 5),
        "error": round(compute_error(len(less), spread, ratio), 5),
        "ratio": round(ratio, 4),
        "seeds": len(less),
    }


def speed(rows: int, columns: int) -> dict[str, Any]:
    """CPU seconds of preparation, and of scikit-learn on the same columns."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(columns, rows)).astype(np.float32)
    values[::2] = np.exp(values[::2])
    gaps = values[::5]
    gaps[rng.random(gaps.shape) < 0.2] = np.nan
    ids = [f"i{i}" for i in range(rows)]
    wide = {f"c{i}": values[i] for i in range(columns)}
    train = np.arange(rows * 7 // 10)
    found: dict[str, Any] = {"rows": rows, "columns": columns, "ours": _ours(wide, ids, train)}
    found["scikit-learn"] = _theirs(values, train)
    days = np.datetime64("2020-01-01") + rng.integers(0, 2000, rows).astype("timedelta64[D]")
    kinds: dict[str, Any] = {
        "number in a text, all different": np.array([f"{v:,.2f} €" for v in rng.lognormal(8, 1, rows)]),
        "date": days,
        "date in a text": np.array([f"{d[8:]}.{d[5:7]}.{d[:4]}" for d in np.datetime_as_string(days)]),
        "category of 20 levels": np.array([f"l{int(v)}" for v in rng.integers(0, 20, rows)]),
        "category of 5,000 levels": np.array([f"l{int(v)}" for v in rng.integers(0, 5000, rows)]),
    }
    found["one column"] = {name: _ours({"x": column}, ids, train) for name, column in kinds.items()}
    return found


def _ours(columns: Mapping[str, Any], ids: Sequence[str], train: np.ndarray) -> dict[str, float]:
    table = sv.PartyTable(name="a", ids=ids, columns=columns, preparation=sv.Preparation())
    best = {"fit": math.inf, "transform": math.inf}
    for _ in range(3):
        start = time.process_time()
        encoder = FeatureEncoder.fit(table, train)
        middle = time.process_time()
        numbers = encoder.transform(table).shape[1]
        took = {"fit": middle - start, "transform": time.process_time() - middle}
        best = min(best, took, key=lambda one: one["fit"] + one["transform"])
    return {name: round(value, 4) for name, value in best.items()} | {"numbers": numbers}


def _theirs(values: np.ndarray, train: np.ndarray) -> dict[str, float]:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import QuantileTransformer, StandardScaler

    every = list(range(len(values)))
    ranks = QuantileTransformer(n_quantiles=257, output_distribution="normal", random_state=0)
    parts = [("ranks", ranks, every[::2]), ("standard", StandardScaler(), every[1::2])]
    chain = make_pipeline(SimpleImputer(strategy="median"), ColumnTransformer(parts))
    x = np.ascontiguousarray(values.T)
    start = time.process_time()
    chain.fit(x[train])
    middle = time.process_time()
    chain.transform(x)
    return {"fit": round(middle - start, 4), "transform": round(time.process_time() - middle, 4)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["scaling", "speed"], nargs="+", default=["scaling", "speed"])
    parser.add_argument("--data", choices=sorted(DATA), nargs="+", default=list(DATA))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    given = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    figures = before("preparation")
    if "speed" in given.part:
        figures["speed"] = speed(*((3_000, 100) if given.quick else (30_000, 1_000)))
        print(figures["speed"])
    if "scaling" in given.part:
        seeds, epochs = (1, 3) if given.quick else (given.seeds, given.epochs)
        names = ["breast_cancer", "made, logarithms"] if given.quick else given.data
        kept = figures.get("scaling", {})
        figures["scaling"] = (kept if isinstance(kept, dict) else {}) | scaling(names, seeds, epochs)
    write("preparation", figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
