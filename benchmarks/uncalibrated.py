"""Multi-VFL's accuracy before scores are calibrated, where label owners are not iid.

    python -m benchmarks.uncalibrated [--quick] [--seeds 0 1 2 3 4]

After training, the toolkit corrects the classes' scores on validation rows (`securevfl.training.calibration`): a
temperature, which changes no accuracy, and an intercept for each class, which does. A model of label owners that have
two classes each is biased to classes, and the intercepts take the bias back. The paper has no such step. This runs the
cells of examples/experiments/multi-vfl.toml without it. Cells stay in results/sweep-multi-vfl-raw.json and are skipped.
"""

from __future__ import annotations

import argparse
import dataclasses
from unittest import mock

from securevfl_net.durable import write_atomic

from benchmarks.common import RESULTS
from benchmarks.evidence_plan import Table
from benchmarks.skip import skip
from securevfl.errors import InputError
from securevfl.experiments.cells import Cell, make_record
from securevfl.experiments.pool import run_cell
from securevfl.report import CellFigures, SweepRecord
from securevfl.training.active_program import ActiveProgram

__all__ = ["FILE", "main", "measure_cell"]

FILE = RESULTS / "sweep-multi-vfl-raw.json"


def measure_cell(cell: Cell) -> CellFigures:
    """Run it without calibration."""
    with mock.patch.object(ActiveProgram, "calibrate", return_value=None):
        return run_cell(cell)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one cell, nothing written")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = options.parse_args()
    of = Table.read("multi-vfl").sweep
    cells = sorted((cell for cell in of.cells if cell.seed in given.seeds), key=lambda cell: cell.seed)
    places = {(cell.data, cell.method, cell.x, cell.seed): cell for cell in of.cells}
    ran: dict[str, CellFigures] = {}
    if FILE.exists() and not given.quick:
        ran = {places[one.data, one.method, one.x, one.seed].digest: one for one in SweepRecord.read(FILE).cells}
    sweep = dataclasses.replace(of, title=f"{of.title}, not calibrated", notes=())
    for cell in cells[:1] if given.quick else cells:
        if cell.digest in ran:
            continue
        try:
            ran[cell.digest] = measure_cell(cell)
        except InputError as error:  # the images are not here
            skip(cell.data, str(error))
        print(f"{cell.data}, {cell.method}, {cell.x:g}, seed {cell.seed}: {ran[cell.digest].value:.4f}", flush=True)
        if not given.quick:
            record = make_record(sweep, ran, {}, "python -m benchmarks.uncalibrated")
            write_atomic(FILE, record.to_json() + b"\n")


if __name__ == "__main__":
    main()
