"""Whether the rule of docs/few-rows.md holds on tables that it was not found on.

    python -m benchmarks.held_out_places [--minutes 60] [--methods LABEL …] [--quick]

The rule is *best_with_trees on tables, best on images*, and was found on the places of
examples/experiments/few-rows.toml. Here are all public tables with classes that `benchmarks.ten_tables` has, but the
one that few-rows.toml also has. Each is cut by its columns into those of two parties, as there, and either of them
has the labels; 5 and 20 % of the training rows are common. Methods have the settings that few-rows.toml has for the
credit table, but for its scaling by quantiles; columns are prepared by ``prepare = "auto"``. The pixels of the digits
count as images, so *best with trees* is not trained there; other trees are.

Cells stay in results/sweep-held-out-places.json and are skipped; delete it after a change of settings. Afterwards:
`sweep_pages.py` of tools/pages writes the page again.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from securevfl_net.durable import write_atomic

from benchmarks.evidence_plan import RESULTS, Table
from benchmarks.skip import note
from benchmarks.ten_tables.tables import TABLES
from securevfl.data import Parties, from_pandas
from securevfl.data.overlap import hold_out, limited_overlap
from securevfl.data.resampling import compute_ratio
from securevfl.errors import SecureVFLError
from securevfl.experiments.cells import Cell, CellError, Sweep, make_record
from securevfl.experiments.pool import run_cell
from securevfl.report import CellFigures, SweepRecord

__all__ = ["FILE", "PLACES", "list_cells", "load_place", "main"]

FILE = RESULTS / "sweep-held-out-places.json"
PLACES: Mapping[str, str] = {
    "Breast cancer": "breast cancer",
    "Digits in halves": "digits",
    "Computing jobs": "computing jobs",
    "Consumer credit": "credit",
    "Loans": "loans",
    "Flights": "flights",
}
"""Label of a place → its public table. `OTHER_SIDE` follows where the party of the later columns has the labels."""
OTHER_SIDE = ", other side active"
METHODS = (
    "local",
    "four local, averaged",
    "boosting alone",
    "logistic regression alone",
    "vanilla VFL",
    "local + VFL",
    "random match",
    "RISA",
    "party dropout",
    "LASER-VFL",
    "residual",
    "corrected trees",
    "HybridTree",
    "best",
    "best with trees",
)
"""Those of few-rows.toml that run at the most places there; the others are behind these, or take longest."""
OVERLAPS = (0.05, 0.2)
ROWS = 15_000
"""Most rows of a table: the flights have ten times as many."""
TEST, VALID = 0.2, 0.1
"""Shares of the rows, as in `limited_credit`."""
_TEMPLATE = "Default of credit, 2 parties"
_TREES = "best with trees"


@cache
def _load_table(name: str) -> Any:
    found = TABLES[name].load()
    return found if len(found) <= ROWS else found.sample(ROWS, random_state=0)


def load_place(name: str, *, other: bool, overlap: float, seed: int, alone: bool = False) -> Parties:
    """The tables of two parties with few common rows.

    Args:
        name: of the public table.
        other: whether the party with the table's later columns has the labels.
        overlap: share of the training rows that both parties have.
        seed: chooses rows.
        alone: only the active party, with the same rows.
    """
    public, frame = TABLES[name], _load_table(name).reset_index(drop=True)
    features = [column for column in frame.columns if column != public.label]
    cut = features.index(public.second)
    frame = frame.assign(**{"row no": [f"r{row:06d}" for row in range(len(frame))]})
    active = "second" if other else "first"
    table = from_pandas(frame, name=active, id="row no", label=public.label, prepare="auto")
    parties = limited_overlap(
        table,
        {"first": features[:cut], "second": features[cut:]},
        hold_out(table.rows, valid=VALID, test=TEST, seed=seed),
        overlap=overlap,
        seed=seed,
        validation="overlap",
        description=f"{name}, {public.source}",
    )
    return Parties.of(parties.label_owners[0]) if alone else parties


def list_cells() -> list[Cell]:
    """All cells, seed by seed."""
    found: list[Cell] = []
    for template in Table.read("few-rows").sweep.cells:
        if template.data != _TEMPLATE or template.method not in METHODS or template.x not in OVERLAPS:
            continue
        job = {key: value for key, value in template.job.items() if key != "scale"}
        alone = {key: value for key, value in template.source.items() if key == "alone"}
        for label, name in PLACES.items():
            if template.method == _TREES and name == "digits":
                continue
            for other in (False, True):
                source = {"name": name, "other": other, "overlap": template.x, "seed": template.seed, **alone}
                data = label + OTHER_SIDE * other
                found.append(dataclasses.replace(template, data=data, source=source, job=job))
    return sorted(found, key=lambda cell: cell.seed)


def measure_cell(cell: Cell) -> CellFigures | CellError:
    """Run it; the rows of each seed are drawn from the same table, so tests need their ratio."""
    source = dict(cell.source)
    try:
        found = run_cell(cell, load_place(source.pop("name"), **source))
    except SecureVFLError as error:
        return CellError(str(error), "")
    return msgspec.structs.replace(found, test_ratio=compute_ratio(TEST))


def _make_sweep(cells: Sequence[Cell]) -> Sweep:
    of = Table.read("few-rows").sweep
    title = "Few common rows, on tables that the rule was not found on"
    return dataclasses.replace(
        of, name="held-out-places", title=title, cells=cells, claims=(), paper=(), notes=(), settings={}
    )


def _iter_missing(cells: Sequence[Cell], ran: Mapping[str, CellFigures], methods: Sequence[str]) -> Iterator[Cell]:
    for cell in cells:
        if cell.digest not in ran and (not methods or cell.method in methods):
            yield cell


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one cell of each method, nothing written")
    options.add_argument("--minutes", type=float, default=1e9)
    options.add_argument("--methods", nargs="+", default=(), choices=METHODS, metavar="LABEL", help="; ".join(METHODS))
    given = options.parse_args()
    cells = list_cells()
    if given.quick:
        cells = list({cell.method: cell for cell in cells if cell.source["name"] == "breast cancer"}.values())
    where = {(cell.data, cell.method, cell.x, cell.seed): cell.digest for cell in cells}
    ran: dict[str, CellFigures] = {}
    if FILE.exists() and not given.quick:
        ran = {where[one.data, one.method, one.x, one.seed]: one for one in SweepRecord.read(FILE).cells}
    errors: dict[str, CellError] = {}
    sweep = _make_sweep(cells)
    end = time.monotonic() + 60 * given.minutes
    for cell in _iter_missing(cells, ran, given.methods):
        if time.monotonic() > end:
            note("the rest", "the time is over")
            break
        found = measure_cell(cell)
        said = found.message if isinstance(found, CellError) else f"{found.value:.4f} after {found.seconds:.1f} s"
        print(f"{cell.data}, {cell.method}, {cell.x:g}, seed {cell.seed}: {said}", flush=True)
        if isinstance(found, CellError):
            errors[cell.digest] = found
        else:
            ran[cell.digest] = found
        if not given.quick:
            record = make_record(sweep, ran, errors, "python -m benchmarks.held_out_places")
            write_atomic(FILE, record.to_json() + b"\n")


if __name__ == "__main__":
    main()
