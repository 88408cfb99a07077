"""Running sweeps: cell by cell, on in the place where an earlier run broke off.

Alignment is by a join in the clear: it would find the same rows by the protocol, in more time.
"""

from __future__ import annotations

import json
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch
from securevfl_crypto.errors import PoolError
from securevfl_net.durable import locked, make_folder, write_whole

from securevfl.data import Parties, datasets
from securevfl.errors import InputError, SecureVFLError
from securevfl.experiments.kept_tables import keep_tables, kept_tables
from securevfl.experiments.sweep_file import Spec, Sweep
from securevfl.report import Cell, Failed, SweepRecord, write_sweep
from securevfl.run.machine import machine, versions
from securevfl.run.receipt import worst_epsilon
from securevfl.run.simulation import join_parties, run_parties
from securevfl.scale import open_pool
from securevfl.training import Task

__all__ = ["cell_task", "finished", "run_cell", "run_sweep"]


def run_cell(spec: Spec, parties: Parties | None = None) -> Cell:
    """Run one cell.

    Args:
        spec: what to run.
        parties: the tables that its `source` names, where they are read already.

    Raises:
        SecureVFLError: whatever ended it.
    """
    began = time.perf_counter()
    job = spec.build()
    parties = _load(spec) if parties is None else parties
    chief = parties.label_owners[0]
    ran = run_parties(job, parties, join_parties(parties, job), run="sweep")
    trained = ran.trained[chief.name]
    metric = Task(len(chief.classes)).score if job.number is None else "r2"
    if metric not in trained.test:
        raise InputError(
            f"the test rows have no {metric}: they are all of one class, or of one value; give more rows, or "
            "stratify = true in the job"
        )
    spent = {name: part.spent for name, part in ran.trained.items()}
    return Cell(
        data=spec.data,
        method=spec.method,
        x=spec.x,
        seed=spec.seed,
        value=trained.test[metric],
        valid=trained.epochs[trained.best_epoch - 1].valid.get(metric, 0.0) if trained.best_epoch else 0.0,
        metric=metric,
        alone=trained.alone.get(metric),
        epochs=len(trained.epochs),
        best_epoch=trained.best_epoch,
        seconds=round(time.perf_counter() - began, 2),
        extra={"rows trained": float(trained.rows)} | trained.extra | worst_epsilon(spent),
        history=[round(epoch.valid[metric], 4) for epoch in trained.epochs if metric in epoch.valid],
        test=dict(trained.test),
    )


def _load(spec: Spec) -> Parties:
    options = dict(spec.source)
    return datasets.load(options.pop("name"), **options)


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    workers: int = 1,
    pool: str = "",
    command: str = "",
    progress: Callable[[int, int, Cell], None] | None = None,
    parties: Parties | None = None,
) -> SweepRecord:
    """Run the cells that have not run yet; write ``cells.jsonl``, ``sweep.json`` and ``report.html`` to `folder`.

    A cell that fails stops no other one: it is listed in the record's `failed`, with its traceback in
    ``failures.log``, and runs again the next time. A sweep that is interrupted writes ``sweep.json`` as far as it got.

    Args:
        sweep: from `read_sweep`.
        folder: of the results; cells found there are not run again.
        workers: processes, one thread each; 1 runs in this one.
        pool: who runs cells, as `securevfl.scale.open_pool` reads it; in place of `workers`. A cell whose worker is
            lost runs again, three times in all, and then counts as failed.
        command: what makes it again, for the page.
        progress: called after each cell with cells done, cells in all, and the cell.
        parties: own tables, which all cells run on, in place of the data sets that they name; those of the sweep
            unless given.

    Raises:
        InputError: another process runs a sweep in this folder; a pool that cannot be opened.
    """
    target = Path(folder)
    parties = sweep.parties if parties is None else parties
    make_folder(target)
    with locked(target, "wait for it to end, or give another folder"):
        return _run_sweep(
            sweep, target, workers=workers, pool=pool, command=command, progress=progress, parties=parties
        )


def _run_sweep(
    sweep: Sweep,
    target: Path,
    *,
    workers: int,
    pool: str,
    command: str,
    progress: Callable[[int, int, Cell], None] | None,
    parties: Parties | None,
) -> SweepRecord:
    file = target / "cells.jsonl"
    done = finished(file)
    todo = _by_source([spec for spec in sweep.specs if spec.key not in done])
    tables = target / "tables.safetensors"
    failed: dict[str, _Ended] = {}
    try:
        with file.open("a", encoding="utf-8") as log:
            for spec, cell in _run(todo, workers, pool, parties, tables):
                if isinstance(cell, _Ended):
                    failed[spec.key] = cell
                    continue
                done[spec.key] = cell
                log.write(json.dumps({"key": spec.key, "cell": msgspec.to_builtins(cell)}) + "\n")
                log.flush()
                if progress is not None:
                    progress(sum(s.key in done for s in sweep.specs), len(sweep.specs), cell)
    except BaseException:  # an interrupt: what is there can be read; the page takes too long
        write_whole(target / "sweep.json", _record(sweep, done, failed, command).to_json())
        raise
    finally:
        tables.unlink(missing_ok=True)
    record = _record(sweep, done, failed, command)
    write_sweep(record, target)
    traces = "\n".join(ended.trace for ended in failed.values())
    if traces or (target / "failures.log").exists():
        write_whole(target / "failures.log", traces.encode())
    return record


def _record(sweep: Sweep, done: Mapping[str, Cell], failed: Mapping[str, _Ended], command: str) -> SweepRecord:
    """What the sweep has so far."""
    return SweepRecord(
        name=sweep.name,
        title=sweep.title,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        versions=versions(),
        machine=machine(str(sweep.specs[0].job.get("device", "cpu"))),
        size=sweep.size,
        axis=sweep.axis.name,
        axis_unit=sweep.axis.unit,
        ticks={str(float(i)): v for i, v in enumerate(sweep.axis.values) if isinstance(v, str)},
        cells=[done[spec.key] for spec in sweep.specs if spec.key in done],
        paper=list(sweep.paper),
        claims=list(sweep.claims),
        notes=list(sweep.notes),
        job=dict(sweep.settings),
        failed=[
            Failed(data=spec.data, method=spec.method, x=spec.x, seed=spec.seed, error=failed[spec.key].words)
            for spec in sweep.specs
            if spec.key in failed
        ],
    )


def _by_source(specs: Sequence[Spec]) -> list[Spec]:
    """Cells in their order, but those of the same rows one after the other."""
    groups: dict[str, list[Spec]] = {}
    for spec in specs:
        groups.setdefault(_source(spec), []).append(spec)
    return [spec for group in groups.values() for spec in group]


def _source(spec: Spec) -> str:
    return json.dumps([spec.data, dict(spec.source)], sort_keys=True, default=str)


def finished(file: Path) -> dict[str, Cell]:
    """Cells of an earlier run; an incomplete last line is dropped."""
    found: dict[str, Cell] = {}
    if not file.exists():
        return found
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_whole(file, whole.encode())
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = json.loads(line)
            found[entry["key"]] = msgspec.convert(entry["cell"], Cell)
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise InputError(f"{file}, line {number}, is no finished cell ({error}): use another folder") from None
    return found


def _run(
    specs: Sequence[Spec], workers: int, pool: str, parties: Parties | None, file: Path
) -> Iterator[tuple[Spec, Cell | _Ended]]:
    """Cells as they finish, or what ended them; own tables are in `file` for workers."""
    if not pool and workers > 1 and len(specs) > 1:
        pool = f"process:{workers}"
    if pool in ("", "local"):
        try:
            for spec in specs:
                yield spec, _cell(spec, parties)
        finally:
            _kept.clear()
        return
    try:
        opened = open_pool(pool)
    except PoolError as error:
        raise InputError(str(error)) from error
    with opened:  # after an interrupt, too: nobody waits for the cells that are under way
        own: tuple[str, ...] = ()
        if parties is not None and specs:
            keep_tables(parties, file)
            own = (str(file.resolve()),)
        waiting = {opened.submit(f"{__name__}:cell_task", msgspec.msgpack.encode(spec), *own): spec for spec in specs}
        for future in as_completed(waiting):
            yield waiting[future], _read(future)


def cell_task(spec: bytes, tables: str = "") -> bytes:
    """A cell as a task of a pool: its `Spec` in, a `Cell`, or what ended it, out, both as msgpack; and the file of own
    tables, which all workers have to see."""
    torch.set_num_threads(1)
    cell = _cell(msgspec.msgpack.decode(spec, type=Spec), tables=tables)
    return msgspec.msgpack.encode((cell, None) if isinstance(cell, Cell) else (None, cell))


def _read(future: Future[bytes]) -> Cell | _Ended:
    try:
        cell, ended = msgspec.msgpack.decode(future.result(), type=tuple[Cell | None, _Ended | None])
    except PoolError as error:
        return _Ended(str(error), "".join(traceback.format_exception(error)))
    return cell or ended or _Ended("a worker answered without a cell", "")


@dataclass(frozen=True)
class _Ended:
    """How a cell failed: text only, for not every error comes back from another process."""

    words: str
    trace: str


_kept: dict[str, tuple[Parties, int]] = {}
"""In a process that runs cells: the rows of the last one, and their checksum. To read them can take as long as to
train."""


def _checksum(parties: Parties) -> int:
    """Of all values of all tables."""
    total = 0
    for table in parties.values():
        for values in (*table.columns.values(), table.label, table.fold):
            total = zlib.crc32(b"" if values is None else values.tobytes(), total)
    return total


def _rows_of(spec: Spec, tables: str = "") -> Parties:
    """The rows of a cell, read once for cells that follow each other, unless one of them has changed a value."""
    source = _source(spec)
    if source in _kept and _checksum(_kept[source][0]) == _kept[source][1]:
        return _kept[source][0]
    _kept.clear()
    if tables and not Path(tables).exists():
        raise InputError(f"a worker does not see {tables}: give the sweep a folder on storage that all workers share")
    parties = kept_tables(Path(tables)) if tables else _load(spec)
    _kept[source] = (parties, _checksum(parties))
    return parties


def _cell(spec: Spec, parties: Parties | None = None, *, tables: str = "") -> Cell | _Ended:
    """A cell, or what ended it, which says which one it was."""
    try:
        return run_cell(spec, _rows_of(spec, tables) if parties is None else parties)
    except Exception as error:
        error.add_note(f"in the cell {spec.method} on {spec.data}, {spec.x:g}, seed {spec.seed}")
        words = str(error) if isinstance(error, SecureVFLError) else f"{type(error).__name__}: {error}"
        return _Ended(words, "".join(traceback.format_exception(error)))
