"""The small side of an unbalanced intersection: which of these identifiers does the server have?"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from securevfl_psi.errors import IdentifierError, InputError, MalformedError, PSIError, SetSizeError
from securevfl_psi.filters import Filter
from securevfl_psi.gcs import MAX_ITEMS
from securevfl_psi.group import POINT_BYTES
from securevfl_psi.identifiers import IdRules, normalise_column
from securevfl_psi.unbalanced import FilterClient
from securevfl_psi.wire import Kind

from securevfl_psi_cli.answering import REASONS, VERSION
from securevfl_psi_cli.channel import Address, connect, secure_connection
from securevfl_psi_cli.credentials import Pins
from securevfl_psi_cli.frame_stream import FrameStream
from securevfl_psi_cli.options import RowsShown
from securevfl_psi_cli.result_file import require_writable
from securevfl_psi_cli.summary import format_bytes, format_count
from securevfl_psi_cli.table import Table

__all__ = ["LookupSummary", "ask_server"]

_HEAD = 4096  # bytes of a filter beside its items
_EACH = 16  # most bytes of an item


@dataclass(frozen=True, kw_only=True)
class LookupSummary:
    """A client's result.

    Attributes:
        name, server: the parties.
        rows: identifiers that were asked.
        found: those that the server has.
        server_rows: of its set.
        expires: until when the filter may be used, seconds since 1970.
        fetched: bytes of the filter, 0 where a kept one was used.
        sent, received: bytes of messages.
        seconds: from the connection to the end.
        out: the file that was written, or None.
    """

    name: str
    server: str
    rows: int
    found: int
    server_rows: int
    expires: int
    fetched: int
    sent: int
    received: int
    seconds: float
    out: str | None

    def as_json(self) -> str:
        """All fields as one JSON object."""
        return json.dumps(asdict(self) | {"seconds": round(self.seconds, 3)}, indent=2)

    def format_title(self) -> str:
        """The result in one line."""
        return f"{self.server} has {self.found:,} of {format_count(self.rows, 'identifier')}"

    def format_lines(self) -> list[tuple[str, str]]:
        """Label and text of each line of the summary."""
        until = time.strftime("%Y-%m-%d %H:%M", time.gmtime(self.expires))
        filter_ = f"fetched, {format_bytes(self.fetched)}" if self.fetched else "the one that was kept"
        return [
            (
                f"{self.name} learned",
                f"{format_count(self.server_rows, 'row')} at {self.server}; which of its own it has",
            ),
            (f"{self.server} learned", f"that {format_count(self.rows, 'identifier')} were asked; not which"),
            ("filter", f"{filter_}; until {until} UTC"),
            ("moved", f"{format_bytes(self.sent)} sent, {format_bytes(self.received)} received"),
            ("took", f"{self.seconds:.2f} s"),
            ("channel", "TLS 1.3, both certificates pinned"),
            *([("written", self.out)] if self.out else []),
        ]


def ask_server(
    table: Table,
    rules: IdRules,
    pins: Pins,
    *,
    name: str,
    server: str,
    at: Address,
    kept: Path | None,
    max_set_size: int,
    wait: float,
    timeout: float,
    deadline: float,
    out: Path | None,
    shown: RowsShown,
) -> LookupSummary:
    """Calls the server, fetches its filter unless the kept one is current, and looks up this table's identifiers.

    Raises:
        PSIError: whatever went wrong; where it can, before anything was sent.
    """
    if out:
        require_writable(out, table.path)
    try:
        ids = normalise_column(table.ids, rules)
    except IdentifierError as error:
        raise table.explain_error(error, rules) from None
    filter_ = _load_filter(kept, max_set_size)
    with secure_connection(connect(at, wait), pins, timeout=timeout) as sock:
        started = time.perf_counter()
        stream = FrameStream(sock, server, timeout=timeout, deadline=deadline, reasons=REASONS)
        has = "" if filter_ is None else filter_.key_id.hex()
        stream.send_fields({"version": VERSION, "what": "ask", "name": name, "server": server, "filter": has})
        fields = stream.receive_fields({"version": VERSION})
        size, key_id = fields.get("bytes"), fields.get("filter")
        most = _HEAD + _EACH * max_set_size
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= most:
            raise SetSizeError(
                f"{server!r} announces a filter of {str(size)[:20]} bytes; at most {most} are accepted: raise "
                "--max-set-size"
            )
        if size:
            data = stream.receive_bytes(size)
            filter_ = Filter.from_bytes(data, max_items=max_set_size)
            if kept is not None:
                _store_filter(kept, data)
        if filter_ is None or filter_.key_id.hex() != key_id or filter_.terms.server != server:
            raise MalformedError(
                f"{server!r} has a filter that is not {server!r}'s, or of another key than it announced"
            )
        client = _make_client(ids, filter_, rules)
        stream.send_frame(Kind.COUNT, len(ids).to_bytes(8, "big"))
        stream.send_rows(Kind.POINTS, client.blind_set())
        rows = client.find_common_rows(
            stream.receive_rows(Kind.ANSWERS, POINT_BYTES, len(ids), f"the answers of {server!r}")
        )
        stream.send_frame(Kind.FINISHED)
        seconds = time.perf_counter() - started
    if out:
        (table.write_atomic if shown == RowsShown.full else table.write_numbers)(out, rows)
    return LookupSummary(
        name=name,
        server=server,
        rows=len(ids),
        found=len(rows),
        server_rows=len(filter_.hashes.values),
        expires=filter_.terms.expires,
        fetched=size,
        sent=stream.traffic.sent,
        received=stream.traffic.received,
        seconds=seconds,
        out=str(out) if out else None,
    )


def _make_client(ids: object, filter_: Filter, rules: IdRules) -> FilterClient:
    """A mistake of this party's options ends in one sentence."""
    if filter_.terms.rules_tag != rules.tag():
        raise InputError(
            f"identifiers are normalised by {rules.tag()!r} here, and by {filter_.terms.rules_tag!r} at "
            f"{filter_.terms.server!r}: give the same --form, --casefold, --no-strip, --squeeze, --numeric"
        )
    return FilterClient(ids, filter_, rules_tag=rules.tag(), now=int(time.time()))  # type: ignore[arg-type]


def _load_filter(path: Path | None, most: int) -> Filter | None:
    if path is None or not path.exists():
        return None
    try:
        return Filter.from_bytes(path.read_bytes(), max_items=min(most, MAX_ITEMS))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except PSIError as error:
        raise InputError(
            f"{path} is not a filter ({error}): name the file where filters are kept, or a new one"
        ) from None


def _store_filter(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
