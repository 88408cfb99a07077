"""PSI in shards of sets larger than memory: two parties as two processes over localhost, one worker each.

python -m benchmarks.psi_shards [--ids 1000000 10000000 100000000] [--protocol ot] [--budget 1500] [--folder DIR]

Makes both tables once (Parquet, of texts of 12 bytes in a scattered order, half of them common), and keeps them and the
runs in `--folder`. Stopped by `--budget` (seconds), a run ends after the shard it is at; the same command goes on with
it. Timed: partition, sort, the shards' sessions, and the join (common rows of both tables, as Parquet, in the order
that both share), for each party. Exact means: of the row numbers that a party wrote, each stands for an identifier that
the tables have in common by their making, none twice, as many as there are, and both files have the same identifiers in
one order. What a process takes at its peak is its high-water mark as the kernel has it.

What is extrapolated is computed below from the largest row; the assumption stands beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import socket
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from securevfl_crypto.pools import LocalPool
from securevfl_psi.errors import PSIError
from securevfl_psi.identifiers import IdRules
from securevfl_psi.terms import Terms
from securevfl_psi_cli.shards.leading import SHARD_CONTEXT, lead_run
from securevfl_psi_cli.shards.party import write_common
from securevfl_psi_cli.shards.source import open_source
from securevfl_psi_cli.shards.worker import WorkerLine
from securevfl_psi_cli.table import Missing

from benchmarks.folders import RESULTS

ROLES = ("receiver", "sender")
_BATCH = 1 << 20
_DIGITS = 12
_PRIME = 999_999_999_989  # the largest below 10^12, so that numbers times a factor are scattered over all texts
_FACTOR = 618_033_988_751


def number_of(places: np.ndarray) -> np.ndarray:
    """The number that identifier i is written from: i · factor modulo the prime, without repetition, int64 (n,)."""
    return _times(places.astype(np.int64), _FACTOR)


def _times(values: np.ndarray, factor: int) -> np.ndarray:
    """values · factor modulo the prime, in steps that stay below 2^63."""
    out = np.zeros(len(values), dtype=np.int64)
    for shift in range(40, -1, -20):
        part = factor >> shift & 0xFFFFF
        out = (out * (1 << 20)) % _PRIME if shift < 40 else out
        out = (out + values * part) % _PRIME
    return out


def texts_of(places: np.ndarray) -> pa.Array:
    """Identifiers i as texts of 12 digits."""
    numbers = number_of(places)
    digits = np.empty((len(numbers), _DIGITS), dtype=np.uint8)
    for column in range(_DIGITS - 1, -1, -1):
        numbers, digits[:, column] = np.divmod(numbers, 10)
    digits += ord("0")
    ends = np.arange(len(digits) + 1, dtype=np.int32) * _DIGITS
    return pa.Array.from_buffers(pa.string(), len(digits), [None, pa.py_buffer(ends), pa.py_buffer(digits)])


def begin_of(role: str, ids: int) -> int:
    """Of which identifier a party's first row is; the receiver has 0 to n - 1, the sender n/2 to 3n/2 - 1."""
    return 0 if role == "receiver" else ids // 2


def make(path: Path, begin: int, ids: int) -> None:
    """A party's table, unless it is there."""
    if path.exists():
        return
    passing = path.with_suffix(".making")
    with pq.ParquetWriter(
        passing, pa.schema([("id", pa.string())]), compression="none", use_dictionary=False
    ) as writer:
        for start in range(0, ids, _BATCH):
            places = np.arange(begin + start, begin + min(start + _BATCH, ids))
            writer.write_table(pa.table({"id": texts_of(places)}))
    passing.replace(path)


def read_only(path: Path) -> float:
    """Seconds to read a table's column alone, batch by batch."""
    start = time.perf_counter()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1 << 17):
            np.frombuffer(batch.column(0).buffers()[2], dtype=np.uint8).max()
    return time.perf_counter() - start


def _status(what: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024


def _party(role: str, folder: Path, ids: int, protocol: str, port: int, stop: float, results: Any) -> None:
    try:
        results.put({"role": role, **_measured(role, folder, ids, protocol, port, stop)})
    except _Stopped:
        results.put({"role": role, "stopped": True})
    except PSIError as error:
        if time.time() >= stop - 1:
            results.put({"role": role, "stopped": True})
        else:
            results.put({"role": role, "error": repr(error)})
    except BaseException:
        results.put({"role": role, "error": traceback.format_exc()})
        raise


class _Stopped(Exception):
    pass


def _measured(role: str, folder: Path, ids: int, protocol: str, port: int, stop: float) -> dict[str, Any]:
    other = ROLES[1 - ROLES.index(role)]
    terms = Terms(name=role, peer=other, role=role, protocol=protocol, context=SHARD_CONTEXT, max_set_size=1 << 34)  # type: ignore[arg-type]
    table, work = folder / f"{role}-{ids}.parquet", folder / f"run-{role}-{ids}-{protocol}"
    spent = work / "spent.json"
    before = json.loads(spent.read_text()) if spent.exists() else []
    source = open_source(table, ["id"], ",", IdRules(), Missing.refuse, 1 << 62)
    line = WorkerLine(listens=role == "receiver", host="127.0.0.1", port=port, timeout=120, deadline=7200)
    resident = _status("VmRSS")

    def say(text: str) -> None:
        if role == "receiver":
            print(f"  {text}", flush=True)
        if " of " in text and text.endswith("shards") and time.time() > stop:
            raise _Stopped

    with _connected(role, port) as sock, LocalPool() as pool:
        cpu, start = time.process_time(), time.perf_counter()
        try:
            run = lead_run(sock, terms, source, work, pool, line, say=say)
            joining = time.perf_counter()
            out = folder / f"common-{role}-{ids}-{protocol}.parquet"
            write_common(out, ("id",), ",", run)
            run.seconds["join"] = time.perf_counter() - joining
        finally:
            took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu, "peak": _status("VmHWM")}
            if work.exists():
                spent.write_text(json.dumps([*before, took]))
    digest, exact = _checked(out, role, ids)
    figures = {
        "seconds": sum(one["seconds"] for one in (*before, took)),
        "cpu seconds": sum(one["cpu"] for one in (*before, took)),
        "sessions of this process": len(before) + 1,
        "phases of the last process": run.seconds,
        "shards": run.plan.shards,
        "rows of a shard": run.plan.own_pad,
        "MB sent": run.sent / 1e6,
        "resident before MiB": resident,
        "peak MiB": max(one["peak"] for one in (*before, took)),
        "common": run.count,
        "verified": run.verified,
        "exact": exact and run.count == ids - ids // 2,
        "digest of identifiers": digest,
        "digest of sessions": run.digest.hex(),
    }
    run.state.clear()
    spent.unlink(missing_ok=True)
    return figures


def _connected(role: str, port: int) -> socket.socket:
    if role == "receiver":
        with socket.create_server(("127.0.0.1", port)) as door:
            door.settimeout(120)
            return door.accept()[0]
    end = time.monotonic() + 120
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _checked(out: Path, role: str, ids: int) -> tuple[str, bool]:
    """A digest of the identifiers in their order, and whether the rows are those that are common, each once."""
    begin, half = begin_of(role, ids), ids // 2
    seen = np.zeros(ids, dtype=bool)
    digest, count, exact = hashlib.sha256(), 0, True
    with pq.ParquetFile(out) as file:
        for batch in file.iter_batches(batch_size=1 << 18):
            rows = batch.column(0).to_numpy()
            texts = batch.column(1).cast(pa.string())
            exact &= bool(texts.equals(texts_of(begin + rows)))
            exact &= bool(((begin + rows >= half) & (begin + rows < ids)).all()) and not seen[rows].any()
            seen[rows] = True
            count += len(rows)
            digest.update(b"".join(text.encode() for text in texts.to_pylist()))
    return digest.hexdigest(), exact and count == ids - half and int(seen.sum()) == count


def measure(ids: int, protocol: str, folder: Path, stop: float) -> dict[str, Any] | None:
    """One row of the table; None where the budget ended it."""
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    for role in ROLES:
        make(folder / f"{role}-{ids}.parquet", begin_of(role, ids), ids)
    made = time.perf_counter() - start
    reading = read_only(folder / f"receiver-{ids}.parquet")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    load, start = os.getloadavg()[0], time.perf_counter()
    processes = [
        context.Process(target=_party, args=(role, folder, ids, protocol, port, stop, results)) for role in ROLES
    ]
    for process in processes:
        process.start()
    figures: dict[str, dict[str, Any]] = {}
    try:
        for _ in processes:
            one = results.get()
            if "error" in one:
                raise RuntimeError(f"{one['role']} failed:\n{one['error']}")
            figures[one.pop("role")] = one
        for process in processes:
            process.join(60)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
    if any("stopped" in one for one in figures.values()):
        return None
    same = len({one.pop("digest of identifiers") for one in figures.values()}) == 1
    return {
        "n": ids,
        "protocol": protocol,
        "seconds": max(one["seconds"] for one in figures.values()),
        "making both tables": made,
        "reading a table alone": reading,
        **figures,
        "exact": same and all(one["exact"] for one in figures.values()),
        "load average before": load,
    }


def extrapolated(row: dict[str, Any]) -> Iterator[str]:
    """What a row says about more rows and more workers, with what is assumed."""
    cpu = max(row[role]["cpu seconds"] for role in ROLES)
    moved = sum(row[role]["MB sent"] for role in ROLES)
    times = 1e9 / row["n"]
    yield (
        f"10^9 a side, one worker a party: {row['seconds'] * times / 3600:.2f} h, {moved * times / 1e3:.0f} GB "
        f"({cpu * times / 3600:.2f} core-hours of the busier party). Assumed: shards of one size cost the same, so "
        "time and bytes grow with their number; two parties share these two cores as they did here."
    )
    seconds, megabits = cpu * times / 32, moved * times * 8
    yield (
        f"10^9 a side, 32 workers a party: {seconds / 60:.1f} min of computing, {megabits / 1e3 / seconds:.1f} Gbit/s "
        f"meanwhile; on a link of 1 Gbit/s {max(seconds, megabits / 1e3) / 60:.1f} min. Assumed: the party's CPU time "
        "is spread evenly over 32 cores like these, partition and join, which one process does today, among it: they "
        f"would be {_alone(row) / 60:.0f} min on one."
    )


def _alone(row: dict[str, Any]) -> float:
    phases = row["receiver"]["phases of the last process"]
    return float(phases.get("partition", 0.0) + phases.get("join", 0.0)) * 1e9 / int(row["n"])


def main() -> None:
    """Runs what is missing, prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ids", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--protocol", default="ot", choices=("dh", "ot"))
    parser.add_argument("--budget", type=float, default=1500.0, help="seconds after which no further shard begins")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "psi-shards")
    parser.add_argument("--again", action="store_true", help="measure what is measured already, too")
    parser.add_argument("--out", type=Path, default=RESULTS / "psi_shards.json")
    given = parser.parse_args()
    stop = time.time() + given.budget
    rows: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for ids in given.ids:
        name = f"{given.protocol} {ids}"
        if name in rows and not given.again:
            continue
        print(f"{ids:,} a side, {given.protocol}", flush=True)
        row = measure(ids, given.protocol, given.folder, stop)
        if row is None:
            print(f"stopped after {given.budget:.0f} s: the same command goes on")
            break
        rows[name] = row
        given.out.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
        for file in given.folder.glob(f"*-{ids}*.parquet"):
            file.unlink()
    for row in rows.values():
        phases = {name: round(value, 1) for name, value in row["receiver"]["phases of the last process"].items()}
        print(
            f"{row['n']:>11,} {row['protocol']}: {row['seconds']:.1f} s {phases}, peak "
            f"{row['receiver']['peak MiB']:.0f} / {row['sender']['peak MiB']:.0f} MiB, "
            f"{sum(row[role]['MB sent'] for role in ROLES):.0f} MB, {row['receiver']['common']:,} common, "
            f"{'exact' if row['exact'] else 'NOT EXACT'}"
        )
    if rows:
        for line in extrapolated(max(rows.values(), key=lambda row: row["n"])):
            print(line)


if __name__ == "__main__":
    main()
