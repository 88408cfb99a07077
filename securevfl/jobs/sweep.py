"""Running sweeps: cell by cell, on in the place where an earlier run broke off.

Alignment is by a join in the clear: it would find the same rows by the protocol, in more time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from multiprocessing import active_children, get_context
from pathlib import Path

import msgspec
import torch

from securevfl.data import datasets
from securevfl.durable import locked, make_folder, write_whole
from securevfl.errors import InputError, SecureVFLError
from securevfl.jobs.machine import machine, versions
from securevfl.jobs.simulation import join_parties, run_parties
from securevfl.jobs.sweep_file import Spec, Sweep
from securevfl.report import Cell, SweepRecord, write_sweep
from securevfl.training import Task

__all__ = ["run_cell", "run_sweep"]


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
        alone=trained.alone.get(metric),
        epochs=len(trained.epochs),
        best_epoch=trained.best_epoch,
        seconds=round(time.perf_counter() - began, 2),
        extra={"rows trained": float(trained.rows)} | trained.extra,
        history=[round(epoch.valid[metric], 4) for epoch in trained.epochs if metric in epoch.valid],
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
        InputError: another process runs a sweep in this folder.
        SecureVFLError: a cell failed; the others' results are kept.
    """
    target = Path(folder)
    make_folder(target)
    with locked(target, "wait for it to end, or give another folder"):
        return _run_sweep(sweep, target, workers=workers, command=command, progress=progress)


def _run_sweep(
    sweep: Sweep, target: Path, *, workers: int, command: str, progress: Callable[[int, int, Cell], None] | None
) -> SweepRecord:
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
        axis=sweep.axis.name,
        axis_unit=sweep.axis.unit,
        ticks={str(float(i)): v for i, v in enumerate(sweep.axis.values) if isinstance(v, str)},
        cells=[done[spec.key] for spec in sweep.specs if spec.key in done],
        paper=list(sweep.paper),
        claims=list(sweep.claims),
        notes=list(sweep.notes),
        job=dict(sweep.settings),
    )
    write_sweep(record, target)
    return record


def _finished(file: Path) -> dict[str, Cell]:
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


def _run(specs: Sequence[Spec], workers: int) -> Iterator[tuple[Spec, Cell]]:
    """Cells as they finish."""
    if workers <= 1 or len(specs) <= 1:
        for spec in specs:
            yield spec, _named_cell(spec)
        return
    others = active_children()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        waiting = {pool.submit(_named_cell, spec): spec for spec in specs}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool:
            raise SecureVFLError(
                "a worker of the sweep ended without a word, as one does that the system kills for its memory; the "
                f"finished cells are kept: run it again with fewer workers than {workers}"
            ) from None
        except BaseException:  # an error or an interrupt: nobody waits for the cells that are under way
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                if worker not in others:
                    worker.terminate()
            raise


def _one_thread() -> None:
    torch.set_num_threads(1)


def _named_cell(spec: Spec) -> Cell:
    """A cell; an error says which one it was."""
    try:
        return run_cell(spec)
    except Exception as error:
        error.add_note(f"in the cell {spec.method} on {spec.data}, {spec.x:g}, seed {spec.seed}")
        raise
