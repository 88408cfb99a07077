"""One party of a run in shards, from the command line."""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from securevfl_crypto.errors import PoolError
from securevfl_crypto.pools import check_pool, open_pool
from securevfl_psi.errors import InputError, PSIError
from securevfl_psi.sharded.plan import shard_count_bits
from securevfl_psi.terms import Role, Terms

from securevfl_psi_cli.channel import connect, hanging_up, secure_connection
from securevfl_psi_cli.listening import PeerListener
from securevfl_psi_cli.party import Watch
from securevfl_psi_cli.result_file import require_writable
from securevfl_psi_cli.shards.cut import cut_source, is_cut, read_shard_key
from securevfl_psi_cli.shards.files import read_shard
from securevfl_psi_cli.shards.leading import SHARD_CONTEXT, ShardedRun, Source, lead_run
from securevfl_psi_cli.shards.source import open_source
from securevfl_psi_cli.shards.worker import WorkerLine
from securevfl_psi_cli.summary import format_bytes, format_count

if TYPE_CHECKING:
    from securevfl_psi_cli.options import Options

__all__ = ["ShardedSummary", "run_sharded", "write_common"]

_PROTOCOLS = ("dh", "ot", "auto")


@dataclass(frozen=True, kw_only=True)
class ShardedSummary:
    """A run in shards, for people and as JSON.

    Attributes:
        name, peer, role, protocol, why, learns: of the run.
        rows, announced, peer_rows: of this party, as it announced them, as the peer did.
        shards: how many; 1 where the sets are small.
        shard_rows, peer_shard_rows: to which each is filled up.
        common: rows; None where this party is not told.
        verified: every row was proved by the peer, and both have the digest of the same sessions.
        digest: over the sessions of all shards, the same at both.
        resumed: shards that were done by a run before.
        sent, received: bytes.
        seconds: of the whole, and of each phase.
        out: file with the common rows.
    """

    name: str
    peer: str
    role: str
    protocol: str
    why: str
    learns: str
    rows: int
    announced: int
    peer_rows: int
    shards: int
    shard_rows: int
    peer_shard_rows: int
    common: int | None
    verified: bool
    digest: str
    resumed: int
    sent: int
    received: int
    seconds: dict[str, float]
    out: str | None

    def as_json(self) -> str:
        """All fields as one JSON object."""
        return json.dumps(asdict(self), indent=2)

    def format_title(self) -> str:
        """The result in one line."""
        found = "not told what is common" if self.common is None else format_count(self.common, "common row")
        return f"{self.name} and {self.peer}: {found}"

    def format_lines(self) -> list[tuple[str, str]]:
        """Label and text of each line of the summary."""
        resumed = f"; {self.resumed} were done before" if self.resumed else ""
        chosen = f": {self.why}" if self.why else ""
        return [
            ("ran", f"{self.protocol} as {self.role}{chosen}"),
            ("rows", f"{self.rows:,} here, {self.peer_rows:,} announced by {self.peer}"),
            ("shards", f"{self.shards} of {self.shard_rows:,} rows here and {self.peer_shard_rows:,} there{resumed}"),
            (
                "verified",
                f"{self.peer} proved each common row; both hold the digest {self.digest[:16]}… of the same sessions"
                if self.verified
                else "no: this party is not told what is common",
            ),
            ("moved", f"{format_bytes(self.sent)} sent, {format_bytes(self.received)} received"),
            ("took", ", ".join(f"{name} {value:.1f} s" for name, value in self.seconds.items())),
            *([("written", self.out)] if self.out else []),
        ]


def run_sharded(options: Options, watch: Watch, console: Console, *, listens: bool) -> ShardedSummary:
    """Reads the table twice (to count its rows, and to cut it), meets the peer, runs the shards, writes the result.

    Raises:
        PSIError: whatever went wrong; with ``--work`` the same command again goes on where it was.
    """
    say = _make_printer(console)
    terms = _make_terms(options, "receiver" if listens else "sender")
    bits = None if options.shards == "auto" else shard_count_bits(_parse_shards(options.shards))
    if options.port == 0:
        raise InputError("--port 0 with --shards: workers use the ports after it; name one")
    pins = options.load_pins()
    try:
        check_pool(options.pool)
    except PoolError as error:
        raise InputError(f"--pool: {error}") from None
    if options.out:
        require_writable(options.out, options.table)
    key = None if options.shard_key is None else read_shard_key(options.shard_key)
    source = _choose_source(options, terms, bits, key)
    say(f"{options.table}: {format_count(source.rows, 'row')} ({terms.rules.describe()})")
    line = WorkerLine(
        listens=listens,
        host=options.host,
        port=options.port,
        cert=str(options.cert.resolve()) if options.cert else "",
        key=str(options.key.resolve()) if options.key else "",
        peer_cert=str(options.peer_cert.resolve()) if options.peer_cert else "",
        timeout=options.timeout,
        deadline=options.deadline,
    )
    folder = options.work or Path(tempfile.mkdtemp(prefix="securevfl-psi-"))
    started = time.perf_counter()
    try:
        with open_pool(options.pool) as pool:
            if listens:
                with PeerListener(options.address, pins, timeout=options.timeout, refused=say) as door:
                    say(f"Listening at {door.where}; workers at the ports after it")
                    sock, _ = door.accept_peer(options.wait)
                    with hanging_up(sock):
                        run = lead_run(sock, terms, source, folder, pool, line, bits=bits, key=key, say=say)
            else:
                called = connect(options.address, 30.0 if options.wait is None else options.wait)
                say(f"Connected with {options.address}")
                with secure_connection(called, pins, timeout=options.timeout) as sock:
                    run = lead_run(sock, terms, source, folder, pool, line, bits=bits, key=key, say=say)
        out = write_common(options.out, options.columns, options.delimiter, run) if options.out else None
        seconds = {"all": time.perf_counter() - started, **run.seconds}
        summary = _make_summary(terms, source.rows, run, seconds, out)
        run.state.clear()
        return summary
    finally:
        if options.work is None:
            shutil.rmtree(folder, ignore_errors=True)


def _choose_source(options: Options, terms: Terms, bits: int | None, key: bytes | None) -> Source:
    if key is not None and is_cut(options.table):
        if bits is None:
            raise InputError(
                f"--shards auto with {options.table}, which is cut already: give the number of shards it was cut into"
            )
        return cut_source(options.table, options.columns, terms.rules, options.missing, bits)
    return open_source(
        options.table, options.columns, options.delimiter, terms.rules, options.missing, options.max_bytes
    )


def _make_terms(options: Options, default: Role) -> Terms:
    if options.protocol not in _PROTOCOLS:
        raise InputError(f"--protocol {options.protocol} with --shards; {', '.join(_PROTOCOLS)} are possible")
    try:
        terms = Terms(**options.terms_arguments(default))
        return replace(terms, context=SHARD_CONTEXT + terms.context)
    except InputError:
        raise
    except PSIError as error:
        raise InputError(str(error)) from None


def _parse_shards(text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 8):
        raise InputError(f"--shards {text!r}; 'auto' or a power of two is possible")
    return int(text)


def _make_printer(console: Console) -> Callable[[str], None]:
    def print_line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    return print_line


def _make_summary(
    terms: Terms, rows: int, run: ShardedRun, seconds: dict[str, float], out: str | None
) -> ShardedSummary:
    return ShardedSummary(
        name=terms.name,
        peer=terms.peer,
        role=terms.role,
        protocol=run.protocol,
        why=run.why,
        learns=terms.learns,
        rows=rows,
        announced=run.plan.own,
        peer_rows=run.peer_rows,
        shards=run.plan.shards,
        shard_rows=run.plan.own_pad,
        peer_shard_rows=run.plan.peer_pad,
        common=run.count,
        verified=run.verified,
        digest=run.digest.hex(),
        resumed=run.resumed,
        sent=run.sent,
        received=run.received,
        seconds={name: round(value, 2) for name, value in seconds.items()},
        out=out,
    )


def write_common(out: Path, columns: tuple[str, ...], delimiter: str, run: ShardedRun) -> str | None:
    """Row numbers of what is common, and the identifiers as they were compared, in an order that both parties share;
    a shard at a time. By the file's ending: ``.parquet``, or CSV.

    Raises:
        InputError: it cannot be written.
    """
    if run.count is None:
        return None
    name = columns[0] if len(columns) == 1 else "identifier"
    settings = run.state.settings
    try:
        if out.suffix in (".parquet", ".pq"):
            _write_parquet(out, name, run)
        else:
            with out.open("w", newline="", encoding="utf-8") as stream:
                writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
                writer.writerow(["row", name])
                for shard, rows in enumerate(run.state.read_results()):
                    numbers, ids = read_shard(run.state.shard_file(shard), settings.run_tag, shard)
                    places = {int(number): place for place, number in enumerate(numbers.tolist())}
                    writer.writerows([row, ids[places[row]]] for row in rows.tolist())
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from None
    return str(out)


def _write_parquet(out: Path, name: str, run: ShardedRun) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("row", pa.int64()), (name, pa.large_string())])
    with pq.ParquetWriter(out, schema) as writer:
        for shard, rows in enumerate(run.state.read_results()):
            numbers, ids = read_shard(run.state.shard_file(shard), run.state.settings.run_tag, shard)
            by_number = np.argsort(numbers)
            places = by_number[np.searchsorted(numbers, rows, sorter=by_number)] if len(rows) else rows
            ends = np.concatenate([[0], np.cumsum(ids.lengths[places], dtype=np.int64)])
            texts = pa.Array.from_buffers(
                pa.large_string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(ids.concatenate(places))]
            )
            writer.write_table(pa.table([pa.array(np.asarray(rows)), texts], schema=schema))
