"""Three or more parties, each in its own process, that find the rows all of them have, in one order."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from securevfl_crypto.engine import choose_engine
from securevfl_psi.errors import IdentifierError, InputError, SmallIntersectionError
from securevfl_psi.identifiers import Identifiers, IdRules, normalise_column
from securevfl_psi.joint import Joint, JointTerms

from securevfl_psi_cli.channel import Address, parse_address
from securevfl_psi_cli.credentials import Pins
from securevfl_psi_cli.mesh import Neighbour, meet_all, run_joint
from securevfl_psi_cli.options import RowsShown
from securevfl_psi_cli.result_file import require_writable
from securevfl_psi_cli.summary import format_bytes, format_count
from securevfl_psi_cli.table import Table

__all__ = ["JointSummary", "parse_named", "parse_neighbours", "run_several"]


@dataclass(frozen=True, kw_only=True)
class JointSummary:
    """One party's view of a finished run.

    Attributes:
        name: of this party.
        leader: the party that compares.
        rows: identifiers of this party.
        dropped: rows of its table without one.
        announced: party → rows that it announced; at the leader all, elsewhere the leader's alone.
        common: rows that all have.
        run: names the run, the same at all parties.
        sent, received: bytes of messages, with all others together.
        seconds: from the connections to the end.
        out: the file that was written, or None.
    """

    name: str
    leader: str
    rows: int
    dropped: int
    announced: Mapping[str, int]
    common: int
    run: str
    sent: int
    received: int
    seconds: float
    out: str | None

    def as_json(self) -> str:
        """All fields as one JSON object."""
        return json.dumps(asdict(self) | {"seconds": round(self.seconds, 3)}, indent=2)

    def format_title(self) -> str:
        """The result in one line."""
        return f"{format_count(self.common, 'row')} of {self.rows:,} here are common to all"

    def format_lines(self) -> list[tuple[str, str]]:
        """Label and text of each line of the summary."""
        sizes = ", ".join(f"{format_count(number, 'row')} at {name}" for name, number in self.announced.items())
        return [
            (f"{self.name} learned", f"{sizes}; which of its rows all parties hold, and no smaller intersection"),
            ("checked", "all parties named the same rows in the same order"),
            ("run", self.run),
            ("moved", f"{format_bytes(self.sent)} sent, {format_bytes(self.received)} received"),
            ("took", f"{self.seconds:.2f} s, engine {choose_engine().name}"),
            ("channel", "TLS 1.3, certificates of both ends pinned, one connection between each two parties"),
            *([("left out", f"{format_count(self.dropped, 'row')} without an identifier")] if self.dropped else []),
            *([("written", self.out)] if self.out else []),
        ]


def parse_neighbours(
    name: str, cert: Path, key: Path, peers: Sequence[str], certs: Sequence[str], *, least: int = 2
) -> dict[str, Neighbour]:
    """The other parties, from ``--peer NAME=HOST:PORT`` and ``--peer-cert NAME=FILE``; `least` at least.

    Raises:
        InputError: texts of another form; a party without one of the two, or named twice; fewer than two others.
    """
    places, files = parse_named(peers, "--peer", "NAME=HOST:PORT"), parse_named(certs, "--peer-cert", "NAME=FILE")
    if places.keys() != files.keys():
        odd = ", ".join(sorted(places.keys() ^ files.keys()))
        raise InputError(f"{odd}: give --peer and --peer-cert of each other party")
    if name in places:
        raise InputError(f"--peer {name}: that is this party; name the others")
    if len(places) < least:
        raise InputError(f"{len(places)} --peer; two or more are needed: for two parties there are listen and connect")
    addresses = {one: parse_address(place, "--peer") for one, place in places.items()}
    pins = Pins.load(cert, key, {one: Path(file) for one, file in files.items()})
    if len(set(pins.peers.values())) < len(places):
        raise InputError("--peer-cert: two parties have the same certificate; each needs its own")
    return {one: Neighbour(name=one, address=where, pins=pins.restrict_to(one)) for one, where in addresses.items()}


def parse_named(texts: Sequence[str], option: str, form: str) -> dict[str, str]:
    """From texts ``NAME=VALUE``.

    Raises:
        InputError: texts of another form, or a name that comes twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value or len(name) > 64:
            raise InputError(f"{option} {text!r}; {form} is needed, the name of 1 to 64 characters")
        if name in found:
            raise InputError(f"{option} names {name!r} twice; give each party one")
        found[name] = value
    return found


def run_several(
    table: Table,
    rules: IdRules,
    others: Mapping[str, Neighbour],
    *,
    name: str,
    leader: str,
    at: Address,
    context: str,
    least: int,
    max_set_size: int,
    wait: float,
    timeout: float,
    deadline: float,
    out: Path | None,
    shown: RowsShown,
    console: Console,
) -> JointSummary:
    """Meets all others, runs the protocol, writes the result.

    Args:
        table: this party's.
        rules: how its identifiers are normalised.
        others: the other parties.
        name, leader: this party and the one that compares.
        at: where this party listens.
        context: what the run is for; all must give the same.
        least: fewest common rows that are demanded.
        max_set_size: most rows that another party may announce.
        wait, timeout, deadline: seconds, see `meet_all` and `run_joint`.
        out: where the common rows go.
        shown: what is written of them.
        console: for progress messages.

    Raises:
        PSIError: whatever went wrong; where it can, before anything was sent.
    """
    if not 1 <= len(name) <= 64 or leader not in (name, *others):
        raise InputError(f"--name {name!r}, --leader {leader!r}; the leader is this party or a --peer of it")
    if out:
        require_writable(out, table.path)
    try:
        ids = normalise_column(table.ids, rules)
    except IdentifierError as error:
        raise table.explain_error(error, rules) from None
    announced: dict[str, int] = {}

    def check_count(count: int, _found: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        announced.update(sizes)
        if count < least:
            raise SmallIntersectionError(
                f"{format_count(count, 'row')} common to all; at least {least} are demanded here"
            )

    def sort_rows(rows: np.ndarray) -> np.ndarray:
        return np.array(sorted(rows.tolist(), key=lambda row: _rank_row(context, ids, row)), dtype=np.int64)

    def print_line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    passive = tuple(sorted({name, *others} - {leader}))
    terms = JointTerms(
        name=name,
        active=leader,
        passive=passive,
        context=context,
        rules=rules,
        max_set_size=max_set_size,
        pairwise=False,
    )
    joint = Joint(ids, terms, order=sort_rows, allow=check_count, by=choose_engine())
    with ExitStack() as stack:
        socks = meet_all(name, at, others, stack, wait=wait, timeout=timeout, say=print_line)
        started = time.perf_counter()
        traffic = run_joint(joint, socks, timeout=timeout, deadline=deadline)
        seconds = time.perf_counter() - started
    result = joint.result
    if out:
        (table.write_atomic if shown == RowsShown.full else table.write_numbers)(out, result.rows)
    return JointSummary(
        name=name,
        leader=leader,
        rows=len(table.ids),
        dropped=table.dropped,
        announced=announced,
        common=len(result.rows),
        run=result.run,
        sent=traffic.sent,
        received=traffic.received,
        seconds=seconds,
        out=str(out) if out else None,
    )


def _rank_row(context: str, ids: Identifiers, row: int) -> bytes:
    """Puts rows into an order that reveals nothing about how a party sorts its table; the hash stays here."""
    return hashlib.sha256(f"securevfl-psi several\n{context}\n{ids[row]}".encode()).digest()
