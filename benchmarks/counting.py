"""What counting answered numbers costs a prediction: CPU seconds in the result book, of those of the whole call.

    python -m benchmarks.counting [--quick]

Three parties with six columns each, all in one process, which align 10^5 rows and have them answered by a logistic
regression, on shares and in plain. Each turn predicts without a book, into a new book, and into a book that has counted
as many other people. What is counted without a book, in memory, is taken off. The least CPU time of three turns counts.
Five minutes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import securevfl as sv
from benchmarks.common import write
from securevfl.cut import Protection
from securevfl.data import from_pandas
from securevfl.privacy import OpenedValues, ResultBook

_COUNTING = (
    (
        OpenedValues,
        ("__init__", "check_plan", "count_opening", "_count_people", "fits_budget", "ledger_facts", "summary_sentence"),
    ),
    (ResultBook, ("__init__", "running", "granted", "count_opened", "add", "begin_run")),
)
_NAMES = ("bank", "network", "retailer")


@contextmanager
def _timed() -> Iterator[list[float]]:
    """CPU seconds in all that counts, added up in one number."""
    spent, inside = [0.0], [False]

    def timing(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(*values: Any, **options: Any) -> Any:
            if inside[0]:
                return call(*values, **options)
            inside[0], start = True, time.process_time()
            try:
                return call(*values, **options)
            finally:
                inside[0] = False
                spent[0] += time.process_time() - start

        return run

    before = [(of, name, getattr(of, name)) for of, names in _COUNTING for name in names]
    for of, name, call in before:
        setattr(of, name, timing(call))
    try:
        yield spent
    finally:
        for of, name, call in before:
            setattr(of, name, call)


def _frames(rows: int, first: int, *, labelled: bool) -> dict[str, pd.DataFrame]:
    draw = np.random.default_rng(first)
    x = draw.normal(size=(rows, 18))
    ids = [f"customer-{number:08d}" for number in first + draw.permutation(rows)]
    found = {
        name: pd.DataFrame({"id": ids, **{f"c{k}": x[:, 6 * at + k] for k in range(6)}})
        for at, name in enumerate(_NAMES)
    }
    if labelled:
        found["bank"]["y"] = (x.sum(axis=1) + 2 * draw.normal(size=rows) > 0).astype(int)
    return found


def _new_rows(rows: int, first: int) -> sv.Parties:
    frames = _frames(rows, first, labelled=False)
    return sv.Parties.of(*(from_pandas(frame, name=name, id="id") for name, frame in frames.items()), active="bank")


def _predict(model: sv.Model, parties: sv.Parties, folder: Path | None) -> dict[str, float]:
    with _timed() as spent:
        start = time.process_time()
        sv.predict(model, parties, results=folder)
        return {"cpu": time.process_time() - start, "counting": spent[0]}


def _measure(protection: Protection, rows: int, turns: int) -> dict[str, object]:
    """Figures of one protection."""
    policies = {name: sv.Policy(max_results=100_000) for name in _NAMES[1:]}
    job = sv.Job(algorithm=sv.LogisticRegression(), protection=protection, epochs=2, batch_size=128, policies=policies)
    trained = sv.Parties.from_pandas(_frames(2000, 10**7, labelled=True), id="id", label="y")
    model = sv.simulate(job, trained).model()
    some, others = _new_rows(rows, 0), _new_rows(rows, rows)
    found: dict[str, list[dict[str, float]]] = {"no book": [], "new book": [], "book of others": []}
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            for kind, parties, book in zip(
                found, (some, others, some), (None, Path(folder), Path(folder)), strict=True
            ):
                found[kind].append(_predict(model, parties, book))
    least = {
        kind: {key: round(min(one[key] for one in each), 4) for key in ("cpu", "counting")}
        for kind, each in found.items()
    }
    none = least["no book"]
    shares = {kind: round((least[kind]["counting"] - none["counting"]) / none["cpu"], 4) for kind in list(least)[1:]}
    return {"seconds": least, "counting, of the prediction without a book": shares}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5,000 rows, one turn")
    quick = parser.parse_args().quick
    rows, turns = (5000, 1) if quick else (100_000, 3)
    found: dict[str, object] = {}
    for name, protection in (("shares", sv.Shares(useful="off")), ("plain", sv.Plain())):
        found[name] = _measure(protection, rows, turns)
        print(name, found[name], flush=True)
    write("counting", {"rows": rows, "protections": found})


if __name__ == "__main__":
    main()
