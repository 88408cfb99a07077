"""`sweep`: settings of a job tried over own tables, each with several seeds; mean ± deviation as table, frame and plot.

Cells run as those of a sweep file do (`securevfl.experiments.sweep`): they resume where an earlier run broke off, can
run on a pool, and one that fails does not stop the others. All tables are in this process, and rows are joined in the
clear.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec

from securevfl.data import Parties
from securevfl.errors import InputError, PolicyError
from securevfl.experiments.grid import Grid, Over, Point, grid_of
from securevfl.experiments.kept_tables import tables_digest
from securevfl.experiments.selection_cost import cost_in_words, planned_cost
from securevfl.experiments.sweep import finished, run_sweep
from securevfl.experiments.sweep_file import Spec, Sweep
from securevfl.experiments.sweep_result import SweepResult
from securevfl.experiments.sweep_sections import Axis
from securevfl.jobfile.job_roster import Roster, refusals
from securevfl.party import Job, settled, wrong_parties
from securevfl.report import Cell

__all__ = ["missing", "ready", "seeds_of", "sweep"]

SEEDS = 5
"""Below five, no difference can be told from chance (`securevfl.report.statistics`)."""
_MOST_SEEDS = 1_000


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
    progress: Callable[[int, int, Cell], None] | None = None,
) -> SweepResult:
    """Try settings of a job over own tables: every combination of them, with every seed.

    Args:
        job: what the settings change.
        parties: the parties' tables.
        over: setting → its values: ``{"algorithm.lr": [0.01, 0.1], "protection": ["plain", "bfv"]}``. A setting is a
            path into the job; ``"algorithm"`` and ``"protection"`` take objects or names. With label → value in place
            of a list, labels are shown: ``{"protection": {"no noise": "plain", "ε = 4": sv.Plain(dp=…)}}``.
        seeds: how many, counted from the job's own, or which. A seed draws the split, the batches and, where nothing is
            sealed, the first weights.
        axis: the setting that tables and plots have as their axis; the first with several numbers unless given.
        folder: where cells are kept as they finish: the same sweep goes on there; a temporary one unless given.
        workers: processes, one thread each; 1 runs in this one.
        pool: who runs cells, in place of `workers`: see `run_sweep`. Its workers have to see `folder`, where the tables
            are while it runs, for their owner alone.
        name: of the sweep.
        title: of the page.
        command: what makes it again, for the page.
        progress: called after each cell with cells done, cells in all, and the cell.

    Raises:
        InputError: settings, values or seeds that cannot be, all of them in one message, before anything runs.
        PolicyError: a combination that a policy or an algorithm refuses, before anything runs.
    """
    grid = ready(grid_of(job, over, axis), parties)
    numbers = seeds_of(seeds, job.seed)
    marked = any(table.fold is not None for table in parties.label_owners)
    overlap = 0.0 if marked else job.test / (1 - job.test)
    asked = _asked(grid, parties, numbers, name, title, over)
    with tempfile.TemporaryDirectory(prefix="securevfl-sweep-") if folder is None else nullcontext(folder) as place:
        record = run_sweep(
            asked, place, workers=workers, pool=pool, command=command, progress=progress, parties=parties
        )
        found = SweepResult(record=record, points=grid.points, overlap=overlap)
        if record.cells and (words := found.in_words()):
            record = msgspec.structs.replace(record, notes=[*record.notes, words])
            found = SweepResult(record=record, points=grid.points, overlap=overlap)
            if folder is not None:
                found.report(place)
    return found


def missing(job: Job, parties: Parties, seeds: Sequence[int], folder: Path) -> int:
    """How many runs of a job `sweep` would begin in a folder, with no settings to try: those that have not ended there.

    Args:
        job: as for `sweep`.
        parties: likewise.
        seeds: which.
        folder: likewise; it need not be there yet.
    """
    asked = _asked(ready(grid_of(job, {}, None), parties), parties, seeds, "sweep", "", {})
    ended = finished(folder / "cells.jsonl")
    return sum(spec.key not in ended for spec in asked.specs)


def seeds_of(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
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


def ready(grid: Grid, parties: Parties) -> Grid:
    """The grid with each job's protection settled, and held against the parties and their policies.

    Raises:
        InputError: an algorithm that cannot serve these parties.
        PolicyError: a policy that refuses one.
    """
    owners = [table.name for table in parties.label_owners]
    passive = [table.name for table in parties.passive]
    books = frozenset(name for name, table in parties.items() if table.book is not None)
    roster = Roster(owners=owners, passive=passive, books=books)
    points, wrong, refused = [], [], []
    for point in grid.points:
        mistakes = wrong_parties(point.job.algorithm, owners, passive)
        if mistakes:
            wrong += mistakes
            continue
        made = settled(point.job, owners, passive)
        refused += refusals(made, roster)
        points.append(Point(settings=point.settings, job=made, method=point.method, x=point.x))
    if wrong:
        raise InputError("\n  ".join(dict.fromkeys(wrong)))
    if refused:
        raise PolicyError("\n  ".join(dict.fromkeys(refused)))
    return Grid(axis=grid.axis, points=tuple(points))


def _spaced(name: str) -> str:
    """A name that a narrow column can break."""
    return name.replace("_", " ")


def _asked(grid: Grid, parties: Parties, seeds: Sequence[int], name: str, title: str, over: Over) -> Sweep:
    """The grid as what runs sweeps reads."""
    source = {"tables": tables_digest(parties)}
    chief = parties.label_owners[0]
    data = (chief.label_name or "own tables")[:80]
    specs = []
    for point in grid.points:
        terms = point.job.describe()
        more = {part: terms.pop(part) for part in ("align", "link", "policies")}
        whole, sealed = terms.pop("algorithm"), terms.pop("protection")
        del terms["seed"]
        specs += [
            Spec(
                data=data,
                method=point.method,
                x=point.x,
                seed=seed,
                source=source,
                algorithm=whole,
                protection=sealed,
                job=terms,
                more=more,
            )
            for seed in seeds
        ]
    passive = [table.name for table in parties.passive]
    cost = [planned_cost(point.job, passive) for point in grid.points]
    words = cost_in_words([one for one in cost for _ in seeds])
    unit = "category" if grid.axis.labels else ""
    return Sweep(
        name=name,
        title=title or (name if name != "sweep" else f"Settings for {data}"),
        size="own tables",
        axis=Axis(name=_spaced(grid.axis.name), unit=unit, values=tuple(map(_spaced, grid.axis.labels)) or (0,)),
        specs=specs,
        claims=(),
        paper=(),
        notes=(
            "Each seed draws a split of its own: deviations are over splits, batches and first weights together."
            if chief.fold is None
            else "The label owner marks the split: deviations are over batches and first weights, on the same rows.",
            *([words] if words else []),
        ),
        settings={"over": {path: [str(one) for one in values] for path, values in over.items()}, "seeds": list(seeds)},
    )
