"""Sweep files: TOML in, the cells of a grid out: data sets, or own tables, × methods × positions × seeds. Every mistake
of a file is told at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from securevfl_net.fields import nearest

from securevfl.config import Config, Mistaken
from securevfl.cut import Protection
from securevfl.data import Parties, datasets
from securevfl.errors import InputError, PolicyError
from securevfl.experiments.kept_tables import tables_digest
from securevfl.experiments.sweep_sections import Axis, DataSection, MethodSection, SweepSections
from securevfl.experiments.sweep_tables import OWN, over_own_tables, own_policies, own_roster, task_of
from securevfl.jobfile.job_file import PartySection, load_parties, right_parties
from securevfl.jobfile.job_roster import Roster, refusals
from securevfl.jobfile.toml_text import raise_all, read_sections, read_toml
from securevfl.party import Job, JobOptions, wrong_parties
from securevfl.report import Claim, PaperFigure
from securevfl.training import Algorithm, algorithms, find_algorithm

__all__ = ["Spec", "Sweep", "read_sweep", "read_sweep_sections"]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One cell of a sweep, in plain values.

    Attributes:
        data: label of the data set.
        method: label of the method.
        x: position on the axis.
        seed: of the job and of the data's partition.
        source: name of the data set and its options.
        algorithm: name and settings.
        protection: name and settings.
        job: further settings of the job.
        more: of a job over own tables: `align`, `link`, `policies`.
    """

    data: str
    method: str
    x: float
    seed: int
    source: Mapping[str, Any]
    algorithm: Mapping[str, Any]
    protection: Mapping[str, Any]
    job: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """A digest of all of it: a cell that ran with other settings is another one."""
        parts = dataclasses.asdict(self)
        if not self.more:  # cells of earlier versions have none
            del parts["more"]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def build(self) -> Job:
        """The job.

        Raises:
            InputError: settings that its parts refuse, all of them in one message.
            PolicyError: a protection that the algorithm cannot have.
        """
        if self.more:
            whole = {**self.job, **self.more, "algorithm": self.algorithm, "protection": self.protection}
            return Job.of({**whole, "seed": self.seed})
        parts: list[tuple[str, type[Config], Mapping[str, Any]]] = [
            ("algorithm", Algorithm, self.algorithm),
            ("protection", Protection, self.protection),
            ("job", JobOptions, {**self.job, "seed": self.seed}),
        ]
        made: dict[str, Any] = {}
        found: list[str] = []
        for name, kind, values in parts:
            try:
                made[name] = kind.of(values, name)
            except Mistaken as error:
                found += error.moved(name)
        if found:
            raise Mistaken("", found)
        options: JobOptions = made.pop("job")
        return options.job(**made)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a sweep file asks for.

    Attributes:
        name: of the sweep; its results go to ``runs/<name>`` unless told otherwise.
        title: of the page.
        size: ``"quick"`` or ``"paper"``.
        axis: what is swept.
        specs: all cells, in order.
        claims: of the papers, to be tried.
        paper: figures of the papers.
        notes: for the reader.
        settings: the file's content.
        task: of all jobs, which says what own labels are.
        party: the sections of own tables; none where the file names data sets.
        parties: own tables, once they are loaded.
    """

    name: str
    title: str
    size: str
    axis: Axis
    specs: Sequence[Spec]
    claims: Sequence[Claim]
    paper: Sequence[PaperFigure]
    notes: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    party: Sequence[PartySection] = ()
    task: str = "classification"
    parties: Parties | None = field(default=None, repr=False)


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
    source = {OWN: tables_digest(parties)}
    return dataclasses.replace(
        sweep, parties=parties, specs=[dataclasses.replace(spec, source=source) for spec in sweep.specs]
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
        roster, mistakes = own_roster(sections, content)
        sections = over_own_tables(sections)
        found += mistakes
    if not sections.axis.values and "axis" not in broken:
        found.append("[axis] has no values: give a list, such as [0.01, 0.05, 0.2]")
    found += _names(sections)
    more = own_policies(sections.party)
    pairs = [
        (data, method)
        for data in sections.data
        for method in sections.method
        if (data.only is None or method.title in data.only) and method.algorithm in algorithms()
    ]
    specs: list[Spec] = []
    for data, method in pairs:
        try:
            specs += [dataclasses.replace(spec, more=more) for spec in _cells(sections, data, method, device)]
        except InputError as error:
            found.append(str(error))
    if not specs and not found:
        found.append("the file asks for no cell: it needs [[data]] and [[method]] sections, and seeds")
    mistakes, refused = _mistakes(specs, roster)
    sweep = Sweep(
        name=sections.name or file.stem,
        title=sections.title or sections.name or file.stem,
        size=sections.size,
        axis=sections.axis,
        specs=specs,
        claims=sections.claim,
        paper=[figure for section in sections.paper for figure in section.figures()],
        notes=sections.notes,
        settings={key: content[key] for key in ("job", "data", "method", "seeds") if key in content},
        party=sections.party,
        task=task_of(sections),
    )
    return sweep, list(dict.fromkeys(found + mistakes)), refused


def _names(sections: SweepSections) -> list[str]:
    """Names that do not exist, or stand for two things."""
    titles = [method.title for method in sections.method]
    found = [
        f"method[{i}].algorithm is {method.algorithm!r}{nearest(method.algorithm, algorithms())}"
        for i, method in enumerate(sections.method)
        if method.algorithm not in algorithms()
    ]
    for i, data in enumerate(sections.data):
        for where, names in (("only", data.only or ()), ("methods", tuple(data.methods))):
            unknown = [name for name in names if name not in titles]
            found += [f"data[{i}].{where} names {name!r}{nearest(name, titles)}" for name in unknown]
    for what, shown in (("methods", titles), ("data sets", [data.title for data in sections.data])):
        doubled = sorted({name for name in shown if shown.count(name) > 1})
        found += [f"two {what} are called {name!r}; give each a label of its own" for name in doubled]
    return found


def _cells(sections: SweepSections, data: DataSection, method: MethodSection, device: str) -> Iterator[Spec]:
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
        for seed in sections.seeds:
            yield Spec(
                data=data.title,
                method=method.title,
                x=axis.number(x),
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


def _mistakes(specs: Sequence[Spec], roster: Roster | None) -> tuple[list[str], list[str]]:
    """What is wrong with cells, and which protections are refused.

    Args:
        specs: the cells.
        roster: who takes part, where tables are own ones.
    """
    found: list[str] = []
    refused: list[str] = []
    seen = set()
    for spec in specs:
        run = (spec.data, spec.method, spec.x, spec.seed)
        if run in seen:
            found.append(
                f"{spec.method} on {spec.data} has position {spec.x:g} with seed {spec.seed} twice: leave one out"
            )
        seen.add(run)
        options = dict(spec.source)
        if OWN not in options:
            found += datasets.mistakes(options.pop("name"), options, f"data {spec.data!r}")
        try:
            job = spec.build()
            if roster is not None and spec.seed == specs[0].seed:
                wrong = wrong_parties(job.algorithm, roster.owners, roster.passive)
                found += [f"method {spec.method!r}: {mistake}" for mistake in wrong]
                refused += [f"method {spec.method!r}: {rule}" for rule in ([] if wrong else refusals(job, roster))]
        except Mistaken as error:
            found += [f"method {spec.method!r}: {mistake}" for mistake in error.moved("")]
        except InputError as error:
            found.append(f"method {spec.method!r}: {error}")
        except PolicyError as error:
            refused.append(f"method {spec.method!r}: {error}")
    return found, list(dict.fromkeys(refused))
