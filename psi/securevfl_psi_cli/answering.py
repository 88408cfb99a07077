"""The large side of an unbalanced intersection: publish a filter once, then answer clients until it expires."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from securevfl_net.durable import write_atomic
from securevfl_psi.chunks import split
from securevfl_psi.errors import (
    BudgetError,
    ConnectionLost,
    DisagreementError,
    ExpiredError,
    IdentifierError,
    InputError,
    MalformedError,
    PSIError,
    SetSizeError,
)
from securevfl_psi.filters import Filter, FilterTerms
from securevfl_psi.group import POINT_BYTES
from securevfl_psi.identifiers import IdRules, normalise_column
from securevfl_psi.unbalanced import FilterServer
from securevfl_psi.wire import Kind

from securevfl_psi_cli.channel import Address, hanging_up
from securevfl_psi_cli.credentials import Pins
from securevfl_psi_cli.frame_stream import FrameStream
from securevfl_psi_cli.listening import PeerListener
from securevfl_psi_cli.summary import format_count
from securevfl_psi_cli.table import Table

__all__ = ["REASONS", "VERSION", "clients_of", "publish_filter", "serve_clients"]

VERSION = 1
REASONS = {
    "budget": "it lets this client ask no more identifiers under this filter",
    "expired": "its filter has expired, or is not valid yet",
    "malformed": "what it received is not what the protocol allows",
    "terms": "it runs under other terms",
    "size": "it accepts fewer identifiers",
    "error": "of an error",
}
_WORDS = (
    (BudgetError, "budget"),
    (ExpiredError, "expired"),
    (DisagreementError, "terms"),
    (SetSizeError, "size"),
    (MalformedError, "malformed"),
    (PSIError, "error"),
)


def publish_filter(
    table: Table, rules: IdRules, *, name: str, hours: float, most: int, bits: int, filter_to: Path, state_to: Path
) -> Filter:
    """Writes the filter of a table, which clients may have, and the server's state, which nobody may have.

    Raises:
        InputError: files that are there already, or that cannot be written.
        PSIError: identifiers or terms that cannot be used.
    """
    for path in (filter_to, state_to):
        if path.exists():
            raise InputError(f"{path} is there already; each filter has its own key: name another file")
    try:
        ids = normalise_column(table.ids, rules)
    except IdentifierError as error:
        raise table.explain_error(error, rules) from None
    now = int(time.time())
    try:
        terms = FilterTerms(
            server=name,
            rules_tag=rules.tag(),
            not_before=now,
            expires=now + max(1, round(hours * 3600)),
            max_queries=most,
            bits=bits,
        )
    except PSIError as error:
        raise InputError(str(error)) from None
    server = FilterServer(terms)
    made = server.publish(ids)
    _write_state(state_to, server)
    try:
        filter_to.write_bytes(made)
    except OSError as error:
        raise InputError(f"{filter_to} cannot be written: {error.strerror or error}") from None
    return Filter.from_bytes(made)


def _write_state(path: Path, server: FilterServer) -> None:
    """Whole or not at all, for its owner alone, and on the disk before it counts."""
    try:
        write_atomic(path, server.to_bytes(), private=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def clients_of(cert: Path, key: Path, texts: Mapping[str, str]) -> Pins:
    """Who may ask, from certificates by name.

    Raises:
        InputError: none, or two with one certificate.
    """
    if not texts:
        raise InputError("no --client; name each that may ask: --client NAME=CERTIFICATE")
    found = Pins.load(cert, key, {name: Path(file) for name, file in texts.items()})
    if len(set(found.peers.values())) < len(texts):
        raise InputError("--client: two have the same certificate, so one could spend twice; give each its own")
    return found


def serve_clients(
    filter_from: Path,
    state: Path,
    clients: Pins,
    *,
    at: Address,
    sessions: int | None,
    wait: float | None,
    timeout: float,
    deadline: float,
    say: Callable[[str], None],
) -> dict[str, int]:
    """Answers clients one after the other. What a client asked is on the disk before its answer leaves.

    Returns:
        Client → identifiers that it asked in this call.

    Raises:
        InputError, MalformedError: files that cannot be used.
        ExpiredError: a filter that has expired when this begins.
        ConnectionLost, CertificateError: nobody came within `wait` seconds.
    """
    server = FilterServer.from_bytes(_read_content(state))
    published = _read_content(filter_from)
    if Filter.from_bytes(published).key_id != server.key_id:
        raise InputError(f"{filter_from} and {state} are of two keys: take those that one publish wrote")
    server.terms.require_current(int(time.time()))
    asked: dict[str, int] = {}
    done = 0
    with PeerListener(at, clients, timeout=timeout, refused=say) as door:
        say(f"Listening at {door.where}")
        while sessions is None or done < sessions:
            left = server.terms.expires - time.time()
            if left <= 0:
                say("The filter has expired: delete its state, publish another one")
                break
            sock, where = door.accept_peer(left if wait is None else min(wait, left))
            with hanging_up(sock):
                name = clients.identify_peer(sock)
                stream = FrameStream(sock, name or where, timeout=timeout, deadline=deadline, reasons=REASONS)
                try:
                    count = _serve_client(server, published, name, stream, lambda: _write_state(state, server))
                except PSIError as error:
                    if isinstance(error, InputError):  # the state could not be kept: no answer may leave
                        stream.refuse("error")
                        raise
                    stream.refuse(next(word for kind, word in _WORDS if isinstance(error, kind)))
                    say(f"{name or where}: {type(error).__name__}: {error}; listening on")
                    continue
            done += 1
            asked[name] = asked.get(name, 0) + count
            say(f"{name} asked {format_count(count, 'identifier')}; it may ask {server.remaining_queries(name)} more")
    return asked


def _serve_client(
    server: FilterServer, published: bytes, name: str, stream: FrameStream, keep: Callable[[], None]
) -> int:
    """One client; returns how many identifiers it asked."""
    if not name:
        raise ConnectionLost("it showed no certificate of a client")
    fields = stream.receive_fields({"version": VERSION, "what": "ask", "name": name, "server": server.terms.server})
    has_it = fields.get("filter") == server.key_id.hex()
    size = 0 if has_it else len(published)
    stream.send_fields({"version": VERSION, "filter": server.key_id.hex(), "bytes": size})
    stream.send_bytes(b"" if has_it else published)
    count = int.from_bytes(stream.receive_frame(Kind.COUNT), "big")
    if count > server.remaining_queries(name):  # before its points take room
        raise BudgetError(f"it asks {count} identifiers and may ask {server.remaining_queries(name)} more")
    points = list(stream.receive_rows(Kind.POINTS, POINT_BYTES, count, "the client's set"))
    answers = server.answer_queries(name, server.key_id, points, count, now=int(time.time()))
    keep()
    stream.send_rows(Kind.ANSWERS, (part for answer in answers for part in split(answer)))
    stream.receive_frame(Kind.FINISHED)
    return count


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
