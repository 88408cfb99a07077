"""Sweeps: the cells of a sweep file, or settings of a job tried over own tables. An interrupted sweep resumes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec
from securevfl_net.durable import lock_folder, make_folder, write_atomic

from securevfl.data import Parties
from securevfl.errors import InputError, PolicyError, SecureVFLError
from securevfl.experiments.cells import Cell, CellError, FinishedCells, Sweep, make_record
from securevfl.experiments.grid import Grid, Over, Point, grid_of
from securevfl.experiments.pool import choose_pool, run_cells
from securevfl.experiments.privacy_cost import describe_cost, plan_cost
from securevfl.experiments.study import Study
from securevfl.experiments.sweep_sections import Axis
from securevfl.experiments.table_store import digest_tables
from securevfl.jobfile.job_roster import policy_refusals
from securevfl.party import Job, check_trains, with_default_protection, wrong_parties
from securevfl.report import CellFigures, write_sweep
from securevfl.run.roster import Roster

__all__ = ["Progress", "check_grid", "choose_seeds", "count_missing", "empty_study", "run_sweep", "sweep"]

Progress = Callable[[int, int, CellFigures], None]
"""Called after each cell with cells done, cells in all, and the cell's figures."""

SEEDS = 5
"""With fewer, no difference can be separated from chance (`securevfl.report.statistics`)."""
_MOST_SEEDS = 1_000


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    workers: int = 1,
    pool: str = "",
    command: str = "",
    progress: Progress | None = None,
    parties: Parties | None = None,
) -> Study:
    """Run the cells that have not run yet; write ``cells.jsonl``, ``sweep.json`` and ``report.html`` to `folder`.

    A cell that fails stops no other cell: the record lists it in `failed`, ``failures.log`` has its traceback, and the
    next call runs it again. An interrupted sweep writes ``sweep.json`` with the cells that finished.

    Args:
        sweep: from `read_sweep`.
        folder: of the results; cells found there do not run again.
        workers: processes, one thread each; 1 runs all cells in this process.
        pool: where cells run, in place of `workers`: ``"process:2"``, ``"ray"`` or ``"ray:HOST:PORT"``. A cell whose
            worker is lost runs again, up to three times, and then counts as failed.
        command: what runs the sweep again, for the page.
        progress: hears of each cell as it finishes.
        parties: own tables, which all cells run on, in place of the data sets that they name; those of the sweep
            unless given.

    Raises:
        InputError: another process runs a sweep in this folder, or the pool cannot be opened.
    """
    target = Path(folder)
    parties = sweep.parties if parties is None else parties
    make_folder(target)
    with lock_folder(target, "wait for it to end, or give another folder"):
        finished = FinishedCells(target / "cells.jsonl")
        errors: dict[str, CellError] = {}
        missing = finished.find_missing(sweep.cells)
        where = choose_pool(pool, workers if len(missing) > 1 else 1)
        try:
            for cell, ended in run_cells(missing, where, parties, target):
                if isinstance(ended, CellError):
                    errors[cell.digest] = ended
                    continue
                finished.add(cell, ended)
                if progress is not None:
                    progress(sum(c.digest in finished.figures for c in sweep.cells), len(sweep.cells), ended)
        except BaseException:  # an interrupt: store what there is; drawing the page would take too long
            write_atomic(target / "sweep.json", make_record(sweep, finished.figures, errors, command).to_json())
            raise
        record = make_record(sweep, finished.figures, errors, command)
        write_sweep(record, target)
        traces = "\n".join(error.trace for error in errors.values())
        if traces or (target / "failures.log").exists():
            write_atomic(target / "failures.log", traces.encode())
    return Study(record=record, points=_points_of(sweep))


def _points_of(sweep: Sweep) -> tuple[Point, ...]:
    """What the cells compare: each method at each position on each data set, with the job of its first seed."""
    firsts: dict[tuple[str, str, float], Cell] = {}
    for cell in sweep.cells:
        firsts.setdefault((cell.data, cell.method, cell.x), cell)
    axis = sweep.axis.name if len({x for _, _, x in firsts}) > 1 else ""
    found = []
    for (data, method, x), cell in firsts.items():
        settings = {"data": data, "method": method, **({axis: x} if axis else {})}
        with suppress(SecureVFLError):  # a job that cannot be built has failed as a cell, and has no figures
            found.append(Point(settings=settings, job=cell.build_job(), method=method, x=x, data=data))
    return tuple(found)


def sweep(
    job: Job,
    parties: Parties,
    over: Over,
    *,
    seeds: int | Sequence[int] = SEEDS,
    axis: str | None = None,
    folder: str | Path | None = None,
    workers: int = 1,
    pool: str = "",
    name: str = "sweep",
    title: str = "",
    command: str = "",
    progress: Progress | None = None,
) -> Study:
    """Try settings of a job over own tables: every combination of them, with every seed.

    All tables are in this process; cells run and resume as those of `run_sweep`.

    Args:
        job: what the settings change.
        parties: the parties' tables.
        over: setting → its values: ``{"algorithm.lr": [0.01, 0.1], "protection": ["plain", "bfv"]}``. A setting is a
            path into the job; ``"algorithm"`` and ``"protection"`` take objects or names. With label → value in place
            of a list, tables and plots show the labels: ``{"protection": {"no noise": "plain", "ε = 4":
            sv.Plain(dp=…)}}``.
        seeds: how many, counted from the job's own, or which. A seed draws the split, the batches and, where nothing is
            sealed, the first weights.
        axis: the setting that tables and plots have as their axis; the first with several numbers unless given.
        folder: stores cells as they finish, so that the same sweep resumes there; a temporary one unless given.
        workers: see `run_sweep`.
        pool: see `run_sweep`. Its workers have to see `folder`, which contains the tables while the sweep runs,
            readable by their owner alone.
        name: of the sweep.
        title: of the page.
        command: see `run_sweep`.
        progress: see `run_sweep`.

    Raises:
        InputError: impossible settings, values or seeds, all of them in one message, before anything runs.
        PolicyError: a combination that a policy or an algorithm refuses, before anything runs.
    """
    grid = check_grid(grid_of(job, over, axis), parties)
    numbers = choose_seeds(seeds, job.seed)
    cells = _list_cells(grid, parties, numbers, name, title, over)
    temporary = tempfile.TemporaryDirectory(prefix="securevfl-sweep-") if folder is None else nullcontext(folder)
    with temporary as place:
        ran = run_sweep(cells, place, workers=workers, pool=pool, command=command, progress=progress, parties=parties)
        found = Study(record=ran.record, points=grid.points)
        if ran.record.cells and (words := found.describe_differences()):
            record = msgspec.structs.replace(ran.record, notes=[*ran.record.notes, words])
            found = Study(record=record, points=grid.points)
            if folder is not None:
                found.report(place)
    return found


def empty_study(job: Job, parties: Parties) -> Study:
    """The study of a job that runs with no seed: it names the point, and has no cells.

    Args:
        job: with its protection.
        parties: the parties' tables.
    """
    grid = check_grid(grid_of(job, {}, None), parties)
    cells = _list_cells(grid, parties, (), "sweep", "", {})
    return Study(record=make_record(cells, {}, {}, ""), points=grid.points)


def count_missing(job: Job, parties: Parties, seeds: Sequence[int], folder: Path) -> int:
    """How many runs `sweep` would start in a folder, for a job with no settings to try: those that have not finished.

    Args:
        job: as for `sweep`.
        parties: likewise.
        seeds: which.
        folder: likewise; it need not exist yet.
    """
    cells = _list_cells(check_grid(grid_of(job, {}, None), parties), parties, seeds, "sweep", "", {}).cells
    return len(FinishedCells(folder / "cells.jsonl").find_missing(cells))


def choose_seeds(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    """Seeds: so many from `first` on, or those that are given.

    Raises:
        InputError: none, too many, doubled ones, or no whole numbers from 0.
    """
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= _MOST_SEEDS:
            raise InputError(f"seeds is {seeds}; 1 to {_MOST_SEEDS:,} were expected, or a list of them")
        return tuple(range(first, first + seeds))
    if isinstance(seeds, str | bytes | bool) or not isinstance(seeds, Sequence | range):
        raise InputError(f"seeds is {seeds!r}; give how many, or a list of them")
    found = tuple(seeds)
    wrong = [one for one in found if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < 1 << 63]
    if not found or wrong or len(set(found)) != len(found) or len(found) > _MOST_SEEDS:
        raise InputError(f"seeds is {list(found)[:8]}; different whole numbers from 0 were expected, at least one")
    return found


def check_grid(grid: Grid, parties: Parties) -> Grid:
    """The grid with each job's protection chosen, after a check against the parties and their policies.

    Raises:
        InputError: an algorithm that cannot serve these parties.
        PolicyError: a policy that refuses a job.
    """
    roster = Roster.from_tables(parties)
    points, wrong, refused = [], [], []
    for point in grid.points:
        check_trains(point.job.algorithm, "to compare by its test rows")
        mistakes = wrong_parties(point.job.algorithm, roster.owners, roster.passive, point.job.protection)
        if mistakes:
            wrong += mistakes
            continue
        made = with_default_protection(point.job, roster.owners, roster.passive)
        refused += policy_refusals(made, roster)
        points.append(Point(settings=point.settings, job=made, method=point.method, x=point.x))
    if wrong:
        raise InputError("\n  ".join(dict.fromkeys(wrong)))
    if refused:
        raise PolicyError("\n  ".join(dict.fromkeys(refused)))
    return Grid(axis=grid.axis, points=tuple(points))


def _break_name(name: str) -> str:
    """A name that a narrow column can break."""
    return name.replace("_", " ")


def _list_cells(grid: Grid, parties: Parties, seeds: Sequence[int], name: str, title: str, over: Over) -> Sweep:
    """Every point of a grid with every seed, as a table of cells."""
    source = {"tables": digest_tables(parties)}
    chief = parties.label_owners[0]
    data = (chief.label_name or "own tables")[:80]
    cells = [
        Cell.of_job(point.job, data=data, method=point.method, x=point.x, seed=seed, source=source)
        for point in grid.points
        for seed in seeds
    ]
    passive = [table.name for table in parties.passive]
    costs = [plan_cost(point.job, passive) for point in grid.points]
    words = describe_cost([cost for cost in costs for _ in seeds])
    unit = "category" if grid.axis.labels else ""
    return Sweep(
        name=name,
        title=title or (name if name != "sweep" else f"Settings for {data}"),
        size="own tables",
        axis=Axis(
            name=_break_name(grid.axis.name), unit=unit, values=tuple(map(_break_name, grid.axis.labels)) or (0,)
        ),
        cells=cells,
        claims=(),
        paper=(),
        notes=(
            "Each seed draws its own split: deviations are over splits, batches and first weights together."
            if chief.fold is None
            else "The label owner marks the split: deviations are over batches and first weights, on the same rows.",
            *([words] if words else []),
        ),
        settings={"over": {path: [str(one) for one in values] for path, values in over.items()}, "seeds": list(seeds)},
    )
