"""Run each cell, and the undisturbed run that it is compared with."""

from __future__ import annotations

import importlib
import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.faults.asked import Reference, judge
from benchmarks.faults.cells import Cell
from benchmarks.faults.course import Course, Told
from benchmarks.faults.jobs import KINDS, JobKind, create_parties
from benchmarks.faults.party import Moment

__all__ = ["Runs", "load_everything"]

_LOADED = (
    "matplotlib.pyplot",
    "matplotlib.backends.backend_svg",
    "jinja2",
    "prometheus_client",
    "pandas",
    "pyarrow.pandas_compat",
    "sklearn.ensemble",
    "sklearn.metrics",
    "scipy.stats",
    "securevfl.algorithms",
    "securevfl.auditing",
    "securevfl.cli.parties",
    "securevfl.cli.serving",
    "securevfl.serving.access",
    "securevfl.serving.listening",
    "securevfl.serving.metrics",
    "securevfl.serving.process",
    "securevfl.serving.process_tasks",
    "securevfl.serving.scoring",
    "securevfl_psi",
    "typer._adapters",
)


class UndisturbedFailed(Exception):
    """The run without a fault did not reach its end, so no cell can be held against it."""


def load_everything() -> None:
    """Load what parties load, once; every party is a copy of this process."""
    torch.set_num_threads(1)
    for name in _LOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    cli = importlib.import_module("securevfl.cli")
    with suppress(SystemExit), redirect_stdout(io.StringIO()):
        cli.main(["status", "--help"])


class Runs:
    """Cells of the matrix, and what they share.

    Args:
        folder: for all of it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sources: dict[tuple[str, bool], Path] = {}
        self._failed: dict[tuple[str, str], UndisturbedFailed] = {}
        self._references: dict[tuple[str, str], tuple[Reference, dict[str, Any], float]] = {}

    def run_cell(self, cell: Cell, patch: Callable[[], None] | None = None) -> dict[str, Any]:
        """Run one cell; what came of it, for JSON."""
        # An authority's list revokes certificates; pinned ones are rotated.
        kind = replace(KINDS[cell.kind], issued=cell.fault == "certificate revoked")
        try:
            reference, points, seconds = self._reference(kind, cell.phase)
        except UndisturbedFailed as error:
            return asdict(cell) | {"name": cell.name, "happened": False, "broken": [f"undisturbed: {error}"]}
        victim = reference.names[cell.victim]
        most = points.get(victim, {}).get(cell.phase, 0)
        found: dict[str, Any] = asdict(cell) | {"name": cell.name, "victim": victim}
        if not most:
            return found | {"happened": False, "broken": [], "why": f"{victim} reaches no point of {cell.phase}"}
        at = {"first": 1, "middle": (most + 1) // 2, "last": most}[cell.place]
        others = [name for name in reference.names if name != victim]
        folder = self.folder / "cell"
        course = Course(
            self._source(kind, trained=cell.phase in ("prediction", "serving")),
            folder,
            phase=cell.phase,
            victim=victim,
            fault=cell.fault,
            moment=Moment(cell.phase, at),
            deadline=45 + 4 * seconds,
            patch=patch,
        )
        told = course.run()
        broken = judge(folder, cell.phase, cell.fault, victim, others[0], told, reference)
        found |= {"happened": told.happened, "broken": broken, "codes": told.codes, "left": told.left}
        return found | {"seconds": told.seconds, "cpu": told.cpu, "at": f"{at} of {most}"}

    def _source(self, kind: JobKind, *, trained: bool) -> Path:
        key = kind.name, trained
        if key not in self._sources:
            folder = self.folder / f"{kind.name.replace(' ', '-')}-{'trained' if trained else 'new'}"
            if trained:
                reference, _, _ = self._reference(kind, "training")
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(reference.folder, folder)
                for pattern in ("*.jsonl", "*.out", "collected"):
                    for file in folder.glob(pattern):
                        if not file.name.endswith("results.jsonl"):
                            shutil.rmtree(file) if file.is_dir() else file.unlink()
                common = sorted(set.intersection(*(_read_ids(folder / f"{name}.csv") for name in reference.names)))
                (folder / "customers.txt").write_text("\n".join(common))
            else:
                create_parties(kind, folder)
                _warm(kind, folder)
                create_parties(kind, folder)
            self._sources[key] = folder
        return self._sources[key]

    def _reference(self, kind: JobKind, phase: str) -> tuple[Reference, dict[str, Any], float]:
        """The undisturbed run, the points that each party reaches in it, and its seconds."""
        whose = phase if phase in ("prediction", "serving") else "training"
        key = kind.name, whose
        if key in self._failed:
            raise self._failed[key]
        if key not in self._references:
            source = self._source(kind, trained=whose != "training")
            folder = self.folder / f"{kind.name.replace(' ', '-')}-{whose}-undisturbed"
            told = Course(source, folder, phase=whose, deadline=120).run()
            wanted = 75 if whose == "serving" else 0
            if not told.ended or any(codes != [wanted] for codes in told.codes.values()):
                self._failed[key] = UndisturbedFailed(f"ended with {told.codes}: {_tails(told)}")
                raise self._failed[key]
            points = {
                name: json.loads((folder / f"{name}.points.jsonl").read_text().splitlines()[-1]) for name in told.codes
            }
            reference = Reference(folder, sorted(told.codes), kind.is_exact, kind.protection != "noise")
            self._references[key] = reference, points, told.seconds
        return self._references[key]


def _warm(kind: JobKind, folder: Path) -> None:
    """Run the job in this process, so that everything is compiled and loaded before copies are made of it."""

    create_parties(kind, folder).over_memory()


def _read_ids(table: Path) -> set[str]:
    return {line.split(",")[0] for line in table.read_text().splitlines()[1:]}


def _tails(told: Told) -> str:
    return " | ".join(f"{name}: {text[-600:]}" for name, text in told.texts.items())
