"""Sweeps: a grid of data sets × methods × positions × seeds, run cell by cell and resumed where it broke off.

Alignment is by a join in the clear: it would find the same rows by the protocol, in more time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import torch

from securevfl.cut import PROTECTIONS
from securevfl.data import datasets
from securevfl.errors import InputError, PartyFailed, SecureVFLError, UnknownNameError
from securevfl.jobs.machine import machine, versions
from securevfl.jobs.simulation import join_parties, run_parties
from securevfl.jobs.toml import build, choice, known
from securevfl.party import Job
from securevfl.privacy import DP
from securevfl.report import Cell, Claim, PaperFigure, SweepRecord, write_sweep
from securevfl.training import Algorithm, Task, algorithms, find_algorithm

__all__ = ["Spec", "Sweep", "read_sweep", "run_sweep"]

_TOP = ("axis", "claim", "data", "job", "method", "name", "notes", "paper", "seeds", "size", "title")
_AXIS = ("name", "option", "ticks", "unit", "values")
_DATA = ("algorithm", "job", "label", "methods", "name", "only", "options")
_METHOD = ("algorithm", "data", "job", "label", "protection", "settings", "values")


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
    """

    data: str
    method: str
    x: float
    seed: int
    source: Mapping[str, Any]
    algorithm: Mapping[str, Any]
    protection: Mapping[str, Any]
    job: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A digest of all of it: a cell that ran with other settings is another one."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def build(self) -> Job:
        """The job.

        Raises:
            InputError: settings that its parts refuse.
        """
        protection = dict(self.protection)
        if "dp" in protection:
            protection["dp"] = build(DP, protection["dp"], "protection.dp")
        values = {
            "algorithm": Algorithm.of(self.algorithm, "algorithm"),
            "protection": choice(protection, "protection", PROTECTIONS),
            "seed": self.seed,
        }
        job: Job = build(Job, dict(self.job) | values, "job")
        return job


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a sweep file asks for.

    Attributes:
        name: of the sweep; its results go to ``runs/<name>`` unless told otherwise.
        title: of the page.
        size: ``"quick"`` or ``"paper"``.
        axis: name, unit and ticks of the axis.
        specs: all cells, in order.
        claims: of the papers, to be tried.
        paper: figures of the papers.
        notes: for the reader.
        settings: the file's content.
    """

    name: str
    title: str
    size: str
    axis: Mapping[str, Any]
    specs: Sequence[Spec]
    claims: Sequence[Claim]
    paper: Sequence[PaperFigure]
    notes: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_sweep(path: str | Path, *, device: str = "cpu") -> Sweep:
    """Read a sweep file, and build every job in it once, so that mistakes show before anything runs.

    Args:
        path: the file.
        device: where plain tensors live, ``"cpu"`` or ``"cuda"``.

    Raises:
        InputError: no such file, not TOML, or values that cannot be used; says where.
        UnknownNameError: a name that does not exist; says which is nearest.
    """
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: name a sweep file, see examples/experiments") from None
    except (IsADirectoryError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{file} is not a sweep file: {error}") from None
    known("section", content, _TOP)
    axis = content.get("axis", {})
    known("key in [axis]", axis, _AXIS)
    if not isinstance(axis.get("values"), list) or not axis["values"]:
        raise InputError("[axis] has no values: give a list, such as [0.01, 0.05, 0.2]")
    seeds = content.get("seeds", [0])
    specs = [
        spec
        for data in _sections(content, "data", _DATA)
        for method in _sections(content, "method", _METHOD)
        for spec in _cells(content, axis, data, method, seeds, device)
    ]
    if not specs:
        raise InputError(f"{file} asks for no cell: it needs [[data]] and [[method]] sections")
    for spec in specs:
        spec.build()
    return Sweep(
        name=content.get("name", file.stem),
        title=content.get("title", file.stem),
        size=content.get("size", "quick"),
        axis=axis,
        specs=specs,
        claims=[_struct(Claim, section, "claim") for section in content.get("claim", [])],
        paper=list(_paper(content.get("paper", []))),
        notes=content.get("notes", []),
        settings={key: content[key] for key in ("job", "data", "method", "seeds") if key in content},
    )


def _sections(content: Mapping[str, Any], name: str, keys: Sequence[str]) -> list[dict[str, Any]]:
    sections = content.get(name, [])
    if not isinstance(sections, list) or not all(isinstance(section, dict) for section in sections):
        raise InputError(f"{name} sections are written [[{name}]], with double brackets, once for each")
    for section in sections:
        known(f"key in [[{name}]]", section, keys)
    return sections


def _cells(
    content: Mapping[str, Any],
    axis: Mapping[str, Any],
    data: dict[str, Any],
    method: dict[str, Any],
    seeds: list[int],
    device: str,
) -> Iterator[Spec]:
    """The cells of one method on one data set."""
    for section, what, key in ((data, "data", "name"), (method, "method", "algorithm")):
        if key not in section:
            raise InputError(f"a [[{what}]] section names none: add {key} = …")
    name = str(method.get("algorithm"))
    label = method.get("label", name)
    if label not in data.get("only", [label]):
        return
    if name not in algorithms():
        raise UnknownNameError("algorithm", name, algorithms())
    fields = set(find_algorithm(name).__struct_fields__)
    general = {key: value for key, value in data.get("algorithm", {}).items() if key in fields}
    own = method.get("settings", {}) | data.get("methods", {}).get(label, {})
    option = axis.get("option", "overlap")
    where = {} if device == "cpu" else {"device": device}
    for x in method.get("values", axis["values"]):
        number = float(axis["values"].index(x)) if isinstance(x, str) else float(x)
        for seed in seeds:
            source = {"name": data["name"], option: x, "seed": seed} | data.get("options", {}) | method.get("data", {})
            yield Spec(
                data=data.get("label", data["name"]),
                method=str(label),
                x=number,
                seed=seed,
                source=source,
                algorithm={"name": name} | general | own,
                protection=_named(method.get("protection", "plain")),
                job=dict(content.get("job", {})) | data.get("job", {}) | method.get("job", {}) | where,
            )


def _named(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {"name": value}


def _struct(kind: Any, section: object, where: str) -> Any:
    try:
        return msgspec.convert(section, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"[[{where}]]: {error}") from None


def _paper(sections: Sequence[Mapping[str, Any]]) -> Iterator[PaperFigure]:
    """Figures of a paper: one section for each method, x → value in per cent."""
    for section in sections:
        for x, value in section.get("percent", {}).items():
            plain = {key: section[key] for key in ("data", "method", "source") if key in section}
            yield _struct(PaperFigure, plain | {"x": float(x), "value": value / 100}, "paper")


def run_cell(spec: Spec) -> Cell:
    """Run one cell.

    Raises:
        SecureVFLError: whatever ended it.
    """
    began = time.perf_counter()
    job = spec.build()
    source = dict(spec.source)
    parties = datasets.load(source.pop("name"), **source)
    chief = parties.label_owners[0]
    ran = run_parties(job, parties, join_parties(parties, job), run="sweep")
    trained = ran.trained[chief.name]
    metric = Task(len(chief.classes)).score
    return Cell(
        data=spec.data,
        method=spec.method,
        x=spec.x,
        seed=spec.seed,
        value=trained.test[metric],
        valid=trained.epochs[trained.best_epoch - 1].valid[metric] if trained.best_epoch else 0.0,
        metric=metric,
        epochs=len(trained.epochs),
        best_epoch=trained.best_epoch,
        seconds=round(time.perf_counter() - began, 2),
        extra={"rows trained": float(trained.rows)} | trained.extra,
    )


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    workers: int = 1,
    command: str = "",
    progress: Callable[[int, int, Cell], None] | None = None,
) -> SweepRecord:
    """Run the cells that have not run yet; write ``cells.jsonl``, ``sweep.json`` and ``report.html`` to `folder`.

    Args:
        sweep: from `read_sweep`.
        folder: of the results; cells found there are not run again.
        workers: processes, one thread each; 1 runs in this one.
        command: what makes it again, for the page.
        progress: called after each cell with cells done, cells in all, and the cell.

    Raises:
        SecureVFLError: a cell failed; the others' results are kept.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    file = target / "cells.jsonl"
    done = _finished(file)
    todo = [spec for spec in sweep.specs if spec.key not in done]
    with file.open("a", encoding="utf-8") as log:
        for spec, cell in _run(todo, workers):
            done[spec.key] = cell
            log.write(json.dumps({"key": spec.key, "cell": msgspec.to_builtins(cell)}) + "\n")
            log.flush()
            if progress is not None:
                progress(sum(s.key in done for s in sweep.specs), len(sweep.specs), cell)
    record = SweepRecord(
        name=sweep.name,
        title=sweep.title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        versions=versions(),
        machine=machine(str(sweep.specs[0].job.get("device", "cpu"))),
        size=sweep.size,
        axis=str(sweep.axis.get("name", "overlap")),
        axis_unit=str(sweep.axis.get("unit", "%")),
        ticks={str(float(i)): v for i, v in enumerate(sweep.axis["values"]) if isinstance(v, str)},
        cells=[done[spec.key] for spec in sweep.specs if spec.key in done],
        paper=list(sweep.paper),
        claims=list(sweep.claims),
        notes=list(sweep.notes),
        job=dict(sweep.settings),
    )
    write_sweep(record, target)
    return record


def _finished(file: Path) -> dict[str, Cell]:
    """Cells of an earlier run; a last line that broke off is cut off."""
    found: dict[str, Cell] = {}
    if not file.exists():
        return found
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole, encoding="utf-8")
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = json.loads(line)
            found[entry["key"]] = msgspec.convert(entry["cell"], Cell)
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise InputError(f"{file}, line {number}, is no finished cell ({error}): use another folder") from None
    return found


def _run(specs: Sequence[Spec], workers: int) -> Iterator[tuple[Spec, Cell]]:
    """Cells as they finish."""
    if workers <= 1 or len(specs) <= 1:
        for spec in specs:
            yield spec, _named_cell(spec)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        waiting = {pool.submit(_named_cell, spec): spec for spec in specs}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    torch.set_num_threads(1)


def _named_cell(spec: Spec) -> Cell:
    """A cell; an error says which one it was."""
    where = f"{spec.method} on {spec.data}, {spec.x:g}, seed {spec.seed}"
    try:
        return run_cell(spec)
    except PartyFailed as error:
        raise SecureVFLError(f"{where}: {error}") from error
    except SecureVFLError as error:
        error.add_note(f"in the cell {where}")
        raise
