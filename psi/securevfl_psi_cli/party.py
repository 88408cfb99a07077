"""One party of a run between two processes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from securevfl_crypto.bits import ROW_BYTES, bit_loops
from securevfl_crypto.engine import choose_engine
from securevfl_psi.endpoint import Endpoint, Result
from securevfl_psi.errors import ConnectionLost, IdentifierError, MalformedError, SetSizeError
from securevfl_psi.group import POINT_BYTES, TOKEN_BYTES
from securevfl_psi.oblivious import row_count, token_bytes
from securevfl_psi.session import Session
from securevfl_psi.terms import Protocol, Role, Terms

from securevfl_psi_cli.byte_stream import Traffic
from securevfl_psi_cli.channel import connect, hanging_up, is_local, secure_connection
from securevfl_psi_cli.credentials import Pins, format_fingerprint
from securevfl_psi_cli.driver import run_endpoint
from securevfl_psi_cli.listening import PeerListener
from securevfl_psi_cli.options import Options, RowsShown
from securevfl_psi_cli.result_file import require_writable, write_csv
from securevfl_psi_cli.spelling_hints import case_hint
from securevfl_psi_cli.summary import RunSummary, format_bytes, format_count
from securevfl_psi_cli.table import Table

__all__ = ["Watch", "end_of", "run_two_party"]

_CALL_FOR = 30.0


@dataclass
class Watch:
    """What is known during a run.

    Attributes:
        peer_rows: what the peer announced; None before both agreed on terms.
        least: fewest common rows that are demanded.
        protocol: that is run; None before both agreed.
    """

    peer_rows: int | None = None
    protocol: Protocol | None = None
    least: int = 1


@dataclass(frozen=True, kw_only=True)
class _WatchedTerms(Terms):
    """Terms that note what was agreed on."""

    watch: Watch = field(default_factory=Watch, compare=False, repr=False)

    def accept_hello(self, hello: bytes, own_size: int | None = None) -> tuple[Session, int]:
        session, rows = super().accept_hello(hello, own_size)
        self.watch.protocol = cast(Protocol, session.protocol)
        self.watch.peer_rows = rows
        return session, rows


def run_two_party(options: Options, watch: Watch, console: Console, *, listens: bool) -> RunSummary:
    """Reads the table, meets the peer, runs the protocol, writes the result.

    Args:
        options: of the command line.
        watch: filled during the run.
        console: for progress messages.
        listens: or calls.

    Raises:
        PSIError: whatever went wrong; where it can, before anything was sent.
    """
    default: Role = "receiver" if listens else "sender"
    given = options.terms_arguments(default)
    watch.least = options.min_intersection
    pins = options.load_pins()
    if options.out:
        require_writable(options.out, options.table)
    table = options.read_table()
    terms = _WatchedTerms(**given, watch=watch)
    endpoint = end_of(table, terms)
    columns = " and ".join(map(repr, table.columns))
    left_out = f", {format_count(table.dropped, 'row')} without an identifier left out" if table.dropped else ""
    _print_line(
        console,
        f"{table.path}: {format_count(len(table.ids), 'row')}{left_out}, column{'s' if len(table.columns) > 1 else ''} "
        f"{columns} ({terms.rules.describe()})",
    )
    if hint := case_hint(table, terms.rules):
        _print_line(console, hint)
    channel = "plain TCP on this machine" if is_local(options.address) else "plain TCP, as accepted"
    if pins is not None:
        channel = "TLS 1.3, both certificates pinned"
        _print_line(console, f"{terms.peer}'s certificate: {format_fingerprint(pins.peers[options.peer])}")

    def converse_with(sock: socket.socket, where: str, end: Endpoint) -> tuple[Traffic, float]:
        _print_line(console, f"Connected with {where}, {channel}")
        started = time.perf_counter()
        with _progress_bar(console, terms, len(table.ids)) as progress:
            moved = run_endpoint(end, sock, timeout=options.timeout, deadline=options.deadline, progress=progress)
        return moved, time.perf_counter() - started

    if listens:
        traffic, seconds, endpoint = _listen_for_peer(options, pins, console, endpoint, converse_with)
    else:
        with secure_connection(_call_peer(options, console), pins, timeout=options.timeout) as sock:
            traffic, seconds = converse_with(sock, str(options.address), endpoint)
    result = endpoint.result
    return RunSummary(
        name=terms.name,
        peer=terms.peer,
        role=terms.role,
        protocol=result.protocol,
        why=result.why,
        learns=terms.learns,
        rows=len(table.ids),
        dropped=table.dropped,
        announced=max(len(table.ids), terms.pad_to or 0),
        peer_rows=result.peer_size,
        common=result.count,
        verified=result.verified,
        sent=traffic.sent,
        received=traffic.received,
        seconds=seconds,
        engine=(bit_loops() if result.protocol == "ot" else choose_engine()).name,
        channel=channel,
        out=_write_result(options, table, result),
    )


def end_of(table: Table, terms: Terms) -> Endpoint:
    """A party's end over a table; errors about its identifiers name lines. The engine is compiled here, not later."""
    try:
        return Endpoint(table.ids, terms, by=None if terms.protocol == "ot" else choose_engine())
    except IdentifierError as error:
        raise table.explain_error(error, terms.rules) from None


def _print_line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _call_peer(options: Options, console: Console) -> socket.socket:
    wait = _CALL_FOR if options.wait is None else options.wait
    with console.status(f"calling {options.peer} at {options.address!s}"):
        return connect(options.address, wait)


def _listen_for_peer(
    options: Options,
    pins: Pins | None,
    console: Console,
    end: Endpoint,
    converse_with: Callable[[socket.socket, str, Endpoint], tuple[Traffic, float]],
) -> tuple[Traffic, float, Endpoint]:
    """Listens until the peer came and the run is done. Without certificates, whoever agrees on the terms is the peer;
    whoever breaks off before, or talks nonsense, is a stranger."""
    with PeerListener(
        options.address, pins, timeout=options.timeout, refused=lambda line: _print_line(console, line)
    ) as listener:
        _print_line(console, f"Listening at {listener.where}")
        while True:
            with console.status(f"waiting for {options.peer}; press Ctrl-C to stop"):
                sock, where = listener.accept_peer(options.wait)
            with hanging_up(sock):
                try:
                    return *converse_with(sock, where, end), end
                except (MalformedError, ConnectionLost) as error:
                    if pins is not None or end.agreed or isinstance(error, SetSizeError):
                        raise
                    listener.note_stranger(where, error)
            end = end.retry()


@contextmanager
def _progress_bar(console: Console, terms: _WatchedTerms, own: int) -> Iterator[Callable[[Traffic], None]]:
    """A line on a terminal: how much of what has to arrive is there."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{terms.name} and {terms.peer}", total=None, note="")

        def update_bar(traffic: Traffic) -> None:
            peer = terms.watch.peer_rows
            total = None if peer is None else _expected_bytes(terms, peer, max(own, terms.pad_to or 0))
            note = f"{format_bytes(traffic.sent)} sent, {format_bytes(traffic.received)} received"
            bar.update(task, total=total, completed=min(traffic.received, total or 0), note=note)

        yield update_bar


def _expected_bytes(terms: _WatchedTerms, peer: int, own: int) -> int | None:
    """About how many bytes arrive; None where too few to show."""
    receives = terms.role == "receiver"
    match terms.watch.protocol:
        case "unsafe_salted_hash":
            return peer * TOKEN_BYTES if receives else None
        case "cardinality":
            return peer * POINT_BYTES + own * TOKEN_BYTES * receives
        case "pseudonyms":
            return (peer + own) * POINT_BYTES + peer * TOKEN_BYTES * receives
        case "dh":
            asks = terms.is_client(own, peer)
            return peer * TOKEN_BYTES + own * POINT_BYTES if asks else peer * POINT_BYTES
        case "ot":
            asks = terms.is_client(own, peer)
            return peer * token_bytes(own, peer) if asks else row_count(peer) * ROW_BYTES
        case _:
            return None


def _write_result(options: Options, table: Table, result: Result) -> str | None:
    if options.out is None:
        return None
    if result.pseudonyms is not None:
        rows = ([*table.row_fields(row), token.tobytes().hex()] for row, token in enumerate(result.pseudonyms.own))
        write_csv(options.out, [*table.columns, "pseudonym"], rows, table.delimiter)
    elif result.rows is None:
        return None
    elif options.rows == RowsShown.full:
        table.write_atomic(options.out, result.rows)
    else:
        table.write_numbers(options.out, result.rows)
    return str(options.out)
