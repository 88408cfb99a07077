"""Linkage between processes: two parties with records, and who compares their encodings: a third one, or one of them.

Each two parties have a connection. The two with records agree on a key over theirs, and send encodings to the linker.
It gives each a random name for every linked row; both compare a hash of these names, which exposes a linker that sends
the two different results.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from securevfl_psi.chunks import split
from securevfl_psi.circle import Circle, PairwiseKeys
from securevfl_psi.errors import DisagreementError, LinkageError, MalformedError, PSIError
from securevfl_psi.linkage import (
    Encodings,
    blocking_tokens,
    encode_records,
    find_duplicates,
    link_records,
    witness_tokens,
)
from securevfl_psi.terms import parse_nonce
from securevfl_psi.wire import Kind

from securevfl_psi_cli.frame_stream import FrameStream
from securevfl_psi_cli.link_plan import Linking, LinkPlan
from securevfl_psi_cli.record_table import Records

__all__ = ["REASONS", "Compared", "run_link"]

REASONS = {
    "keys": "the parties' encodings cannot be compared: other fields, key or context",
    "scores": "the similarities show no threshold: it has to give --threshold",
    "terms": "it runs under other terms",
    "size": "it accepts fewer records",
    "malformed": "what it received is not what the protocol allows",
    "error": "of an error",
}
_VERSION = 2
_ID = 16
_MOST_HEAD = 1 << 12
_SIZE = 5
_LOW, _HIGH, _COMMON = "recall_low", "recall_high", "common"


@dataclass(frozen=True)
class _Sent:
    """What the linker has of a party: encodings, and tokens of blocks and of witnesses, where there are any."""

    encodings: Encodings = field(repr=False)
    blocks: np.ndarray | None = field(default=None, repr=False)
    witnesses: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Compared:
    """What the linker sends a party: a name of 16 bytes for each record, zeros where it is not linked, and figures."""

    names: np.ndarray = field(repr=False)
    figures: Mapping[str, float]


def run_link(
    plan: LinkPlan, records: Records | None, socks: Mapping[str, socket.socket], *, deadline: float
) -> Linking:
    """This party's part.

    Args:
        plan: what it runs.
        records: its own; None at a linker without any.
        socks: a connection with each other party.
        deadline: seconds for the run, and for every wait in it.

    Raises:
        PSIError: whatever went wrong, after all others were informed.
    """
    started = time.perf_counter()
    streams = {
        name: FrameStream(sock, name, timeout=deadline, deadline=deadline, reasons=REASONS)
        for name, sock in socks.items()
    }
    try:
        rows, duplicates, found, links = _run_linking(plan, records, streams)
    except PSIError as error:
        for stream in streams.values():
            stream.refuse(_refusal_code(error))
        raise
    return Linking(
        name=plan.name,
        linker=plan.linker,
        parties=plan.record_parties,
        rows=rows,
        duplicates=duplicates,
        pairs=int(found.figures["pairs"]),
        threshold=found.figures["threshold"],
        precision=found.figures["precision"],
        recall=found.figures["recall"],
        recall_range=(found.figures[_LOW], found.figures[_HIGH]),
        common=found.figures.get(_COMMON),
        sent=sum(stream.traffic.sent for stream in streams.values()),
        received=sum(stream.traffic.received for stream in streams.values()),
        seconds=time.perf_counter() - started,
        links=links,
    )


def _refusal_code(error: PSIError) -> str:
    if isinstance(error, LinkageError):
        return "keys" if "tags differ" in str(error) else "scores"
    return {"DisagreementError": "terms", "SetSizeError": "size", "MalformedError": "malformed"}.get(
        type(error).__name__, "error"
    )


def _run_linking(
    plan: LinkPlan, records: Records | None, streams: Mapping[str, FrameStream]
) -> tuple[int, int, Compared, list[tuple[int, str]]]:
    nonces = _exchange_nonces(plan, streams)
    if records is None or plan.schema is None:
        found = _compare_for_both(plan, streams)
        return 0, 0, found, []
    (peer,) = [name for name in plan.record_parties if name != plan.name]
    key = _agree_key(plan, streams[peer], peer, nonces)
    table, rows = records.table, np.arange(records.rows)
    if plan.deduplicate:
        rows = find_duplicates(table, plan.schema).rows
    rows = rows[np.argsort(np.frombuffer(secrets.token_bytes(8 * len(rows)), dtype=np.uint64))]
    table = {name: [values[row] for row in rows.tolist()] for name, values in table.items()}
    with_key = {"schema": plan.schema, "key": key, "context": plan.context}
    own = _Sent(
        encode_records(table, **with_key),  # type: ignore[arg-type]
        blocking_tokens(table, rules=plan.rules, **with_key) if plan.rules else None,  # type: ignore[arg-type]
        witness_tokens(table, rules=plan.witnesses, **with_key) if plan.witnesses else None,  # type: ignore[arg-type]
    )
    if plan.linker == plan.name:
        theirs = _receive_encodings(plan, streams[peer])
        mine, other, figures = _compare_records(plan, own, theirs)
        _send_links(streams[peer], other, figures)
        found = Compared(mine, figures)
    else:
        stream = streams[plan.linker]
        _send_encodings(stream, own)
        found = _receive_links(stream, len(rows))
    linked = np.flatnonzero(found.names.any(axis=1))
    links = sorted((found.names[at].tobytes().hex(), int(rows[at])) for at in linked.tolist())
    _require_same(streams[peer], [name for name, _ in links], plan)
    return records.rows, records.rows - len(rows), found, [(row, name) for name, row in links]


def _exchange_nonces(plan: LinkPlan, streams: Mapping[str, FrameStream]) -> dict[str, bytes]:
    """Name → nonce of 16 bytes, of all."""
    nonce = secrets.token_bytes(16)
    fields = {"version": _VERSION, "what": "link", "linker": plan.linker, "context": plan.context}
    fields |= {"names": list(plan.names)}
    for stream in streams.values():
        stream.send_fields(fields | {"name": plan.name, "nonce": nonce.hex(), "rules": plan.agreed_rules})
    found = {plan.name: nonce}
    for name, stream in streams.items():
        said = stream.receive_fields(fields | {"name": name})
        found[name] = parse_nonce(said.get("nonce"))
        both = plan.agreed_rules and name in plan.record_parties
        if both and said.get("rules") != plan.agreed_rules:
            raise DisagreementError(
                f"{name!r} compares other fields, weights, blocks or witnesses: give the same --field, --block and "
                "--witness at both"
            )
    return found


def _agree_key(plan: LinkPlan, stream: FrameStream, peer: str, nonces: Mapping[str, bytes]) -> bytes:
    """What encodings are made under; a linker that is a third party has no part in it."""
    nonce = b"".join(nonces[name] for name in sorted(plan.record_parties))
    own = PairwiseKeys(
        Circle(names=tuple(sorted(plan.record_parties)), nonce=nonce, rules_tag=plan.agreed_rules), plan.name
    )
    stream.send_frame(Kind.KEY, own.public_key)
    return own.derive_seeds({peer: stream.receive_frame(Kind.KEY)})[peer]


def _send_encodings(stream: FrameStream, sent: _Sent) -> None:
    data = sent.encodings.to_bytes()
    tokens = [b"" if of is None else of.astype("<u8").tobytes() for of in (sent.blocks, sent.witnesses)]
    stream.send_frame(Kind.COUNT, b"".join(len(part).to_bytes(_SIZE, "big") for part in (data, *tokens)))
    for part in (data, *tokens):
        stream.send_bytes(part)


def _receive_encodings(plan: LinkPlan, stream: FrameStream) -> _Sent:
    head = stream.receive_frame(Kind.COUNT)
    if len(head) != 3 * _SIZE:
        raise MalformedError(f"{stream.peer!r} announces its records in {len(head)} bytes; {3 * _SIZE} were expected")
    sizes = [int.from_bytes(head[at * _SIZE : (at + 1) * _SIZE], "big") for at in range(3)]
    most = _MOST_HEAD + plan.max_set_size * 1024
    if max(sizes) > most:
        raise MalformedError(
            f"{stream.peer!r} announces {sizes[0]} bytes of encodings, {sizes[1]} of blocks and {sizes[2]} of "
            f"witnesses; at most {most}"
        )
    encodings = Encodings.from_bytes(stream.receive_bytes(sizes[0]), max_rows=plan.max_set_size)
    return _Sent(encodings, *(_receive_tokens(stream, size, len(encodings)) for size in sizes[1:]))


def _receive_tokens(stream: FrameStream, size: int, rows: int) -> np.ndarray | None:
    data = stream.receive_bytes(size)
    if not data:
        return None
    if not rows or len(data) % (8 * rows):
        raise MalformedError(f"{stream.peer!r} sent {len(data)} bytes of blocks or witnesses for {rows} records")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(rows, -1)


def _require_both(
    one: np.ndarray | None, other: np.ndarray | None, option: str
) -> tuple[np.ndarray, np.ndarray] | None:
    if one is None and other is None:
        return None
    if one is None or other is None or one.shape[1] != other.shape[1]:
        raise DisagreementError(f"the parties do not have the same {option}: give it alike at both")
    return one, other


def _compare_records(plan: LinkPlan, one: _Sent, other: _Sent) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    a, b = one.encodings, other.encodings
    blocks, seen = (
        _require_both(one.blocks, other.blocks, "--block"),
        _require_both(one.witnesses, other.witnesses, "--witness"),
    )
    found = link_records(a, b, blocks=blocks, witnesses=seen, threshold=plan.threshold, precision=plan.precision)
    names = np.frombuffer(secrets.token_bytes(_ID * len(found)), dtype=np.uint8).reshape(-1, _ID)
    given = []
    for size, rows in ((len(a), found.rows_a), (len(b), found.rows_b)):
        whole = np.zeros((size, _ID), dtype=np.uint8)
        whole[rows] = names
        given.append(whole)
    figures = {"pairs": float(len(found)), "threshold": found.threshold, "precision": found.precision}
    figures |= {"recall": found.recall, _LOW: found.recall_between[0], _HIGH: found.recall_between[1]}
    if found.common is not None:
        figures[_COMMON] = found.common
    return given[0], given[1], figures


def _compare_for_both(plan: LinkPlan, streams: Mapping[str, FrameStream]) -> Compared:
    first, second = plan.record_parties
    taken = {name: _receive_encodings(plan, streams[name]) for name in (first, second)}
    one, other, figures = _compare_records(plan, taken[first], taken[second])
    _send_links(streams[first], one, figures)
    _send_links(streams[second], other, figures)
    return Compared(one[:0], figures)


def _send_links(stream: FrameStream, names: np.ndarray, figures: Mapping[str, float]) -> None:
    stream.send_fields(figures)
    stream.send_rows(Kind.TOKENS, split(names))


def _receive_links(stream: FrameStream, rows: int) -> Compared:
    said = stream.receive_fields({})
    figures = {}
    more = (_COMMON,) if _COMMON in said else ()
    for name in ("pairs", "threshold", "precision", "recall", _LOW, _HIGH, *more):
        value = said.get(name)
        most = (rows + 1) ** 2 if name == _COMMON else rows + 1
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise MalformedError(f"{stream.peer!r} told {name} as {value!r:.40}; a number was expected")
        figures[name] = float(value)
    parts = list(stream.receive_rows(Kind.TOKENS, _ID, rows, f"the names of {stream.peer!r}"))
    return Compared(np.concatenate(parts), figures)


def _require_same(stream: FrameStream, names: list[str], plan: LinkPlan) -> None:
    """Both have the same names of rows: they are random, so their hash reveals nothing."""
    if len(set(names)) < len(names):
        raise MalformedError(f"{plan.linker!r} gave two rows one name")
    digest = hashlib.sha256("\n".join(names).encode()).digest()
    stream.send_frame(Kind.SHARE, digest)
    if not secrets.compare_digest(stream.receive_frame(Kind.SHARE), digest):
        raise DisagreementError(
            f"{stream.peer!r} was given other links than this party: {plan.linker!r} told the two different things"
        )
