"""Where cells run: in this process, in a pool of processes, or on Ray. A cell that fails stops no other cell.

Rows are joined in the clear. Private set intersection would find the same rows, and take longer.
"""

from __future__ import annotations

import time
import traceback
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from securevfl_crypto.errors import PoolError
from securevfl_crypto.pools import Pool, check_pool, open_pool
from securevfl_net.durable import make_folder

from securevfl.data import Parties, datasets
from securevfl.errors import InputError, SecureVFLError
from securevfl.experiments.cells import Cell, CellError, find_metric
from securevfl.experiments.split_ratio import find_cell_ratio
from securevfl.experiments.table_store import load_tables, store_tables
from securevfl.report import CellFigures
from securevfl.run.receipt import worst_epsilon
from securevfl.run.simulation import join_parties, run_parties

__all__ = ["Workers", "cell_task", "choose_pool", "open_workers", "require_visible", "run_cell", "run_cells"]

TABLES = "tables.safetensors"
"""File of own tables, in a folder that all workers see."""


def run_cell(cell: Cell, parties: Parties | None = None) -> CellFigures:
    """Run one cell.

    Args:
        cell: what to run.
        parties: the tables that its `source` names, if the caller has read them already.

    Raises:
        SecureVFLError: whatever ended the run.
    """
    began = time.perf_counter()
    job = cell.build_job()
    parties = _load_data(cell) if parties is None else parties
    chief = parties.label_owners[0]
    ran = run_parties(job, parties, join_parties(parties, job), run="sweep")
    trained = ran.trained[chief.name]
    metric = find_metric(job, len(chief.classes))
    if metric not in trained.test:
        raise InputError(
            f"the test rows have no {metric}: they all have the same class or the same value; give more rows, or set "
            "stratify = true in the job"
        )
    spent = {name: part.spent for name, part in ran.trained.items()}
    return CellFigures(
        data=cell.data,
        method=cell.method,
        x=cell.x,
        seed=cell.seed,
        value=trained.test[metric],
        valid=trained.epochs[trained.best_epoch - 1].valid.get(metric, 0.0) if trained.best_epoch else 0.0,
        metric=metric,
        alone=trained.alone.get(metric),
        uncalibrated=(trained.uncalibrated or trained.test)[metric],
        epochs=len(trained.epochs),
        best_epoch=trained.best_epoch,
        seconds=round(time.perf_counter() - began, 2),
        extra={"rows trained": float(trained.rows)} | trained.extra | worst_epsilon(spent),
        history=[round(epoch.valid[metric], 4) for epoch in trained.epochs if metric in epoch.valid],
        test=dict(trained.test),
        test_ratio=find_cell_ratio(cell, job, parties),
    )


def _load_data(cell: Cell) -> Parties:
    options = dict(cell.source)
    return datasets.load(options.pop("name"), **options)


def run_cells(
    cells: Sequence[Cell], pool: str, parties: Parties | None, folder: Path
) -> Iterator[tuple[Cell, CellFigures | CellError]]:
    """Run cells, and yield each as it finishes: its figures, or why it failed.

    Args:
        cells: what to run.
        pool: of `choose_pool`; empty for this process.
        parties: own tables; None where cells name their data set.
        folder: the workers read own tables from here; they are deleted in the end.

    Raises:
        InputError: the pool cannot be opened.
    """
    if not pool:
        try:
            for cell in cells:
                yield cell, _try_cell(cell, parties)
        finally:
            _last_rows.clear()
        return
    with open_workers(pool, parties if cells else None, folder) as workers:
        waiting = {workers.submit(f"{__name__}:cell_task", msgspec.msgpack.encode(cell)): cell for cell in cells}
        for future in as_completed(waiting):
            yield waiting[future], _read_answer(future)


def choose_pool(pool: str, workers: int) -> str:
    """The pool to open: `pool` if it is given, processes if there are several workers, or "" for this process.

    Raises:
        InputError: no such pool.
    """
    if not pool and workers > 1:
        pool = f"process:{workers}"
    try:
        check_pool(pool or "local")
    except PoolError as error:
        raise InputError(str(error)) from error
    return "" if pool == "local" else pool


@dataclass(frozen=True)
class Workers:
    """An open pool whose workers can read the tables.

    Attributes:
        pool: it.
        tables: the file with own tables; empty where there are none.
    """

    pool: Pool
    tables: str = ""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        return self.pool.workers

    def submit(self, task: str, order: bytes, *more: str) -> Future[bytes]:
        """Start a task: ``module:function`` of (order, tables file, further texts), which returns bytes."""
        return self.pool.submit(task, order, self.tables, *more)


@contextmanager
def open_workers(pool: str, parties: Parties | None, folder: Path) -> Iterator[Workers]:
    """Open a pool and give its workers the tables, in a file that is deleted when the pool closes.

    Args:
        pool: see `securevfl_crypto.pools.open_pool`.
        parties: own tables; None where tasks need none.
        folder: of the file; all workers have to see it.

    Raises:
        InputError: a pool that cannot be opened, or tables that cannot be written.
    """
    try:
        opened = open_pool(pool)
    except PoolError as error:
        raise InputError(str(error)) from error
    file = folder / TABLES
    try:
        with opened:  # closes without waiting for tasks under way, so that an interrupt takes effect at once
            if parties is None:
                yield Workers(opened)
                return
            make_folder(folder)
            store_tables(parties, file)
            yield Workers(opened, str(file.resolve()))
    finally:
        file.unlink(missing_ok=True)


def require_visible(*files: str) -> None:
    """Check, on a worker, that it sees these files.

    Raises:
        InputError: one is missing.
    """
    for file in files:
        if not Path(file).exists():
            raise InputError(f"a worker does not see {file}: use a folder on storage that all workers share")


def cell_task(order: bytes, tables: str = "") -> bytes:
    """Run a cell as a task of a pool: a `Cell` in; its figures, or its `CellError`, out, both as msgpack.

    Args:
        order: the cell.
        tables: file of own tables, which all workers have to see; empty where the cell names its data set.
    """
    torch.set_num_threads(1)  # a pool has a worker for each core already
    ended = _try_cell(msgspec.msgpack.decode(order, type=Cell), tables=tables)
    return msgspec.msgpack.encode((ended, None) if isinstance(ended, CellFigures) else (None, ended))


def _read_answer(future: Future[bytes]) -> CellFigures | CellError:
    try:
        figures, error = msgspec.msgpack.decode(future.result(), type=tuple[CellFigures | None, CellError | None])
    except PoolError as lost:
        return CellError(str(lost), "".join(traceback.format_exception(lost)))
    return figures or error or CellError("a worker returned neither figures nor an error", "")


def _try_cell(cell: Cell, parties: Parties | None = None, *, tables: str = "") -> CellFigures | CellError:
    """Run a cell; if it fails, return an error that names it."""
    try:
        return run_cell(cell, _read_rows(cell, tables) if parties is None else parties)
    except Exception as error:
        error.add_note(f"in the cell {cell.method} on {cell.data}, {cell.x:g}, seed {cell.seed}")
        message = str(error) if isinstance(error, SecureVFLError) else f"{type(error).__name__}: {error}"
        return CellError(message, "".join(traceback.format_exception(error)))


_last_rows: dict[str, tuple[Parties, int]] = {}
"""The rows of the last cell that this process ran, and their checksum: reading them can take as long as training."""


def _read_rows(cell: Cell, tables: str = "") -> Parties:
    """The rows of a cell, read once for cells that follow each other, unless one of them changed a value."""
    source = cell.source_name
    if source in _last_rows and _checksum_tables(_last_rows[source][0]) == _last_rows[source][1]:
        return _last_rows[source][0]
    _last_rows.clear()
    if tables:
        require_visible(tables)
    parties = load_tables(Path(tables)) if tables else _load_data(cell)
    _last_rows[source] = (parties, _checksum_tables(parties))
    return parties


def _checksum_tables(parties: Parties) -> int:
    """CRC-32 of all values of all tables: a cell may change an array by accident, and the next must not see that."""
    total = 0
    for table in parties.values():
        for values in (*table.columns.values(), table.label, table.fold):
            total = zlib.crc32(b"" if values is None else values.tobytes(), total)
    return total
