"""Sweep files: TOML in, the cells of a grid out: data sets, or own tables, × methods × positions × seeds. Every mistake
of a file is told at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from securevfl_net.fields import suggest_nearest

from securevfl.config import Mistaken
from securevfl.data import datasets
from securevfl.errors import InputError, PolicyError
from securevfl.experiments.cells import Cell, Sweep
from securevfl.experiments.sweep_sections import (
    OWN,
    MethodSection,
    SweepDataSection,
    SweepSections,
    describe_policies,
    read_roster,
    read_task,
    use_own_tables,
)
from securevfl.experiments.table_store import digest_tables
from securevfl.jobfile.job_file import load_parties, right_parties
from securevfl.jobfile.job_roster import policy_refusals
from securevfl.jobfile.toml_text import raise_all, read_sections, read_toml
from securevfl.party import wrong_parties
from securevfl.run.roster import Roster
from securevfl.training import find_algorithm, registered_algorithms

__all__ = ["list_recorded_cells", "read_sweep", "read_sweep_sections"]

_KEPT = ("axis", "job", "data", "method", "seeds")
"""The settings of a sweep file that a record keeps, for `list_recorded_cells`."""


def read_sweep(path: str | Path, *, device: str = "cpu") -> Sweep:
    """Read a sweep file, and build every job in it once, so that mistakes show before anything runs. Own tables that
    it names are loaded.

    Args:
        path: the file.
        device: where plain tensors live, ``"cpu"`` or ``"cuda"``.

    Raises:
        InputError: no such file, not TOML, or mistakes, all of them in one message; or what loading tables raises, each
            party's first mistake.
        PolicyError: a method whose algorithm cannot have its protection, or that a party's policy refuses.
    """
    file = Path(path)
    sweep, found, refusals = read_sweep_sections(file, device=device)
    raise_all(file, found)
    if refusals:
        raise PolicyError("; ".join(refusals))
    if not sweep.party:
        return sweep
    try:
        parties = load_parties(sweep.party, sweep.task, file.parent)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    source = {OWN: digest_tables(parties)}
    return dataclasses.replace(
        sweep, parties=parties, cells=[dataclasses.replace(cell, source=source) for cell in sweep.cells]
    )


def read_sweep_sections(file: Path, *, device: str) -> tuple[Sweep, list[str], list[str]]:
    """The sweep as far as it is right, every mistake, and protections that algorithms refuse.

    Raises:
        InputError: no such file, or not TOML.
    """
    content = read_toml(file, "sweep", "examples/experiments")
    sections, broken, found = read_sections(SweepSections, content, ["data", "party", "method", "claim", "paper"])
    if "party" in broken:  # those that are right
        sections = sections.replace(party=right_parties(content["party"]))
    roster: Roster | None = None
    if "party" in content:
        roster, mistakes = read_roster(sections, content)
        sections = use_own_tables(sections)
        found += mistakes
    if not sections.axis.values and "axis" not in broken:
        found.append("[axis] has no values: give a list, such as [0.01, 0.05, 0.2]")
    found += _check_names(sections)
    more = describe_policies(sections.party)
    pairs = [
        (data, method)
        for data in sections.data
        for method in sections.method
        if (data.only is None or method.title in data.only) and method.algorithm in registered_algorithms()
    ]
    cells: list[Cell] = []
    for data, method in pairs:
        try:
            cells += [dataclasses.replace(cell, more=more) for cell in _list_cells(sections, data, method, device)]
        except InputError as error:
            found.append(str(error))
    if not cells and not found:
        found.append("the file asks for no cell: it needs [[data]] and [[method]] sections, and seeds")
    mistakes, refused = _check_cells(cells, roster)
    sweep = Sweep(
        name=sections.name or file.stem,
        title=sections.title or sections.name or file.stem,
        size=sections.size,
        axis=sections.axis,
        cells=cells,
        claims=sections.claim,
        paper=[figure for section in sections.paper for figure in section.iter_figures()],
        notes=sections.notes,
        settings={key: content[key] for key in _KEPT if key in content},
        party=sections.party,
        task=read_task(sections),
    )
    return sweep, list(dict.fromkeys(found + mistakes)), refused


def list_recorded_cells(settings: Mapping[str, Any], axis: Mapping[str, Any]) -> list[Cell]:
    """The cells that a sweep's record is of, from the settings in it: a cell whose settings changed has another digest.

    Args:
        settings: `SweepRecord.job`.
        axis: the ``[axis]`` section, for records of version 0.2 and before, which have none.
    """
    content = {"axis": axis, **{key: settings[key] for key in _KEPT if key in settings}}
    sections, _, _ = read_sections(SweepSections, content, ["data", "method"])
    cells: list[Cell] = []
    for data in sections.data:
        for method in sections.method:
            if method.algorithm in registered_algorithms() and (data.only is None or method.title in data.only):
                cells += _list_cells(sections, data, method, "cpu")
    return cells


def _check_names(sections: SweepSections) -> list[str]:
    """Names that do not exist, or stand for two things."""
    titles = [method.title for method in sections.method]
    found = [
        f"method[{i}].algorithm is {method.algorithm!r}{suggest_nearest(method.algorithm, registered_algorithms())}"
        for i, method in enumerate(sections.method)
        if method.algorithm not in registered_algorithms()
    ]
    for i, data in enumerate(sections.data):
        for where, names in (("only", data.only or ()), ("methods", tuple(data.methods))):
            unknown = [name for name in names if name not in titles]
            found += [f"data[{i}].{where} names {name!r}{suggest_nearest(name, titles)}" for name in unknown]
    for what, shown in (("methods", titles), ("data sets", [data.title for data in sections.data])):
        doubled = sorted({name for name in shown if shown.count(name) > 1})
        found += [f"two {what} are called {name!r}; give each a label of its own" for name in doubled]
    return found


def _list_cells(sections: SweepSections, data: SweepDataSection, method: MethodSection, device: str) -> Iterator[Cell]:
    """The cells of one method on one data set.

    Raises:
        InputError: the algorithm cannot be loaded, or a position is no name on the axis.
    """
    axis = sections.axis
    fields = find_algorithm(method.algorithm).__struct_fields__
    general = {key: value for key, value in data.algorithm.items() if key in fields}
    for x in axis.values if method.values is None else method.values:
        if isinstance(x, str) and x not in axis.values:
            raise InputError(f"method {method.title!r}: values has {x!r}, which is none of the axis")
        chosen = method.protection or axis.protection.get(str(x), "plain")
        protection = {"name": chosen} if isinstance(chosen, str) else dict(chosen)
        for seed in sections.seeds if method.seeds is None else method.seeds:
            yield Cell(
                data=data.title,
                method=method.title,
                x=axis.position_number(x),
                seed=seed,
                source={OWN: ""}
                if sections.party
                else {"name": data.name, **axis.of_data(x), "seed": seed, **data.options, **method.data},
                algorithm={
                    "name": method.algorithm,
                    **general,
                    **method.settings,
                    **data.methods.get(method.title, {}),
                },
                protection=protection,
                job={**sections.job, **data.job, **method.job, **({} if device == "cpu" else {"device": device})},
            )


def _check_cells(cells: Sequence[Cell], roster: Roster | None) -> tuple[list[str], list[str]]:
    """What is wrong with cells, and which protections are refused.

    Args:
        cells: the cells.
        roster: who takes part, where tables are own ones.
    """
    found: list[str] = []
    refused: list[str] = []
    seen = set()
    for cell in cells:
        run = (cell.data, cell.method, cell.x, cell.seed)
        if run in seen:
            found.append(
                f"{cell.method} on {cell.data} has position {cell.x:g} with seed {cell.seed} twice: leave one out"
            )
        seen.add(run)
        options = dict(cell.source)
        if OWN not in options:
            found += datasets.find_mistakes(options.pop("name"), options, f"data {cell.data!r}")
        try:
            job = cell.build_job()
            if roster is not None and cell.seed == cells[0].seed:
                wrong = wrong_parties(job.algorithm, roster.owners, roster.passive, job.protection)
                found += [f"method {cell.method!r}: {mistake}" for mistake in wrong]
                refused += [
                    f"method {cell.method!r}: {rule}" for rule in ([] if wrong else policy_refusals(job, roster))
                ]
        except Mistaken as error:
            found += [f"method {cell.method!r}: {mistake}" for mistake in error.at_path("")]
        except InputError as error:
            found.append(f"method {cell.method!r}: {error}")
        except PolicyError as error:
            refused.append(f"method {cell.method!r}: {error}")
    return found, list(dict.fromkeys(refused))
