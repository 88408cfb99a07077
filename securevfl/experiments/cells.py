"""An experiment is a table of cells. A cell is a job on some rows with one seed; its digest names its result.

Sweep files, grids of settings and cross-validation all list cells here. `pool` runs them, and `study` shows the
figures.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from securevfl_net.durable import write_atomic

from securevfl.config import Config, Mistaken
from securevfl.cut import Protection
from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.sweep_sections import Axis
from securevfl.jobfile.job_file import PartySection
from securevfl.party import Job, JobOptions, check_trains
from securevfl.report import CellFigures, Claim, Failed, PaperFigure, SweepRecord
from securevfl.run.machine import describe_machine, package_versions
from securevfl.training import Algorithm, Task

__all__ = ["Cell", "CellError", "FinishedCells", "Sweep", "find_metric", "make_record"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of an experiment, in plain values that can be stored, hashed and sent to a worker.

    Attributes:
        data: label of the data set.
        method: label of the method.
        x: position on the axis.
        seed: of the job and of the data's partition.
        source: name of the data set and its options; of own tables, their digest.
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

    @classmethod
    def of_job(cls, job: Job, *, data: str, method: str, x: float, seed: int, source: Mapping[str, Any]) -> Cell:
        """The cell that runs a job with another seed.

        Args:
            job: what to run.
            data, method, x, seed, source: see the attributes.
        """
        terms = job.describe()
        more = {part: terms.pop(part) for part in ("align", "link", "policies")}
        algorithm, protection = terms.pop("algorithm"), terms.pop("protection")
        del terms["seed"]
        return cls(
            data=data,
            method=method,
            x=x,
            seed=seed,
            source=source,
            algorithm=algorithm,
            protection=protection,
            job=terms,
            more=more,
        )

    @cached_property
    def digest(self) -> str:
        """Identifies the cell among stored results: a cell with any other setting has another digest."""
        parts = dataclasses.asdict(self)
        if not self.more:  # keeps the digests of cells over named data sets, which have nothing here
            del parts["more"]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def source_name(self) -> str:
        """Cells with the same name here run on the same rows."""
        return json.dumps([self.data, dict(self.source)], sort_keys=True, default=str)

    def build_job(self) -> Job:
        """Build the job.

        Raises:
            InputError: settings that its parts refuse, all of them in one message.
            PolicyError: a protection that the algorithm does not support.
        """
        if self.more:
            terms = {**self.job, **self.more, "algorithm": self.algorithm, "protection": self.protection}
            return Job.from_values({**terms, "seed": self.seed})
        parts: list[tuple[str, type[Config], Mapping[str, Any]]] = [
            ("algorithm", Algorithm, self.algorithm),
            ("protection", Protection, self.protection),
            ("job", JobOptions, {**self.job, "seed": self.seed}),
        ]
        made: dict[str, Any] = {}
        found: list[str] = []
        for name, kind, values in parts:
            try:
                made[name] = kind.from_values(values, name)
            except Mistaken as error:
                found += error.at_path(name)
        if found:
            raise Mistaken("", found)
        options: JobOptions = made.pop("job")
        return options.build_job(**made)


@dataclass(frozen=True)
class CellError:
    """Why a cell failed, as text: some exceptions cannot be sent from one process to another."""

    message: str
    trace: str


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A table of cells, and how its page presents them.

    Attributes:
        name: of the sweep; the command writes its results to ``runs/<name>`` by default.
        title: of the page.
        size: ``"quick"`` or ``"paper"``.
        axis: what is swept.
        cells: all of them, in order.
        claims: of the papers, to be tested.
        paper: figures of the papers.
        notes: for the reader.
        settings: the file's content.
        task: of all jobs; decides how own labels are read.
        party: the sections of own tables; none where the file names data sets.
        parties: own tables, once they are loaded.
    """

    name: str
    title: str
    size: str
    axis: Axis
    cells: Sequence[Cell]
    claims: Sequence[Claim]
    paper: Sequence[PaperFigure]
    notes: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    party: Sequence[PartySection] = ()
    task: str = "classification"
    parties: Parties | None = field(default=None, repr=False)


class FinishedCells:
    """The figures of finished cells in a file, one JSON line each, so that an interrupted experiment can resume.

    Args:
        file: ``cells.jsonl`` of the experiment's folder; it need not exist yet.

    Raises:
        InputError: a line is not a finished cell. An incomplete last line is dropped: the power failed while it was
            written.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.figures: dict[str, CellFigures] = {}
        """Digest of a cell → its figures."""
        if not file.exists():
            return
        text = file.read_text(encoding="utf-8")
        complete = text[: text.rfind("\n") + 1]
        if complete != text:
            write_atomic(file, complete.encode())
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                entry = json.loads(line)
                self.figures[entry["key"]] = msgspec.convert(entry["cell"], CellFigures)
            except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
                raise InputError(
                    f"line {number} of {file} is not a finished cell ({error}): use another folder"
                ) from None

    def add(self, cell: Cell, figures: CellFigures) -> None:
        """Append the figures of a cell to the file."""
        self.figures[cell.digest] = figures
        with self._file.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"key": cell.digest, "cell": msgspec.to_builtins(figures)}) + "\n")

    def find_missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that have not finished, in order, except that cells over the same rows follow one another."""
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell.digest not in self.figures:
                groups.setdefault(cell.source_name, []).append(cell)
        return [cell for group in groups.values() for cell in group]


def find_metric(job: Job, classes: int) -> str:
    """The metric that compares cells, larger is better: AUC of two classes, accuracy of more, R² of a number.

    Args:
        job: what runs.
        classes: of the label.

    Raises:
        InputError: the job trains no model.
    """
    check_trains(job.algorithm, "to compare by its test rows")
    return Task(classes).score_name if job.number_loss is None else "r2"


def make_record(
    sweep: Sweep, figures: Mapping[str, CellFigures], errors: Mapping[str, CellError], command: str
) -> SweepRecord:
    """The record of a table of cells, of those that have run so far.

    Args:
        sweep: the cells.
        figures: digest → what a cell measured.
        errors: digest → why a cell failed.
        command: what runs the table again, for the page.
    """
    device = str(sweep.cells[0].job.get("device", "cpu")) if sweep.cells else "cpu"
    return SweepRecord(
        name=sweep.name,
        title=sweep.title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        versions=package_versions(),
        machine=describe_machine(device),
        size=sweep.size,
        axis=sweep.axis.name,
        axis_unit=sweep.axis.unit,
        ticks={str(float(i)): v for i, v in enumerate(sweep.axis.values) if isinstance(v, str)},
        cells=[figures[cell.digest] for cell in sweep.cells if cell.digest in figures],
        paper=list(sweep.paper),
        claims=list(sweep.claims),
        notes=list(sweep.notes),
        job=dict(sweep.settings),
        failed=[
            Failed(data=cell.data, method=cell.method, x=cell.x, seed=cell.seed, error=errors[cell.digest].message)
            for cell in sweep.cells
            if cell.digest in errors
        ],
    )
