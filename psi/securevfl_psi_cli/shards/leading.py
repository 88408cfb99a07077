"""A run in shards between two processes, which hand the shards' sessions to their workers."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from securevfl_crypto.pools import Pool
from securevfl_psi.errors import (
    DisagreementError,
    IdentifierError,
    MalformedError,
    PeerRefused,
    PSIError,
    ShardError,
    SmallIntersectionError,
)
from securevfl_psi.sharded import IdBatch, ShardPlan
from securevfl_psi.sharded.bucket import require_key
from securevfl_psi.terms import Terms

from securevfl_psi_cli.shards.link import ControlLink
from securevfl_psi_cli.shards.partition import partition_rows
from securevfl_psi_cli.shards.state import RunState, Settings, run_key, run_tag, session_digest
from securevfl_psi_cli.shards.worker import WorkerLine

__all__ = ["SHARD_CONTEXT", "ShardedRun", "Source", "lead_run"]

SHARD_CONTEXT = "shards "
"""Before the context of a run in shards, so that one that is not cut is refused in the handshake."""
_STALLED = 3


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A table that was cut into shards beforehand, so that workers read it.

    Attributes:
        task: makes a shard, from the run's folder, the shard's number and its text.
        bits: of the bucket hash that make a shard.
        counts: rows of each shard, int64 (shards,).
        parts: a text for each.
    """

    task: str
    bits: int
    counts: np.ndarray
    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where identifiers come from.

    Attributes:
        batches: goes through them, from the beginning each time.
        rows: how many there are.
        digest: text that is another one where the source is (paths, sizes, times, column): a run that was cut off goes
            on only over the same.
        cut: where that was done beforehand; `batches` is not asked then.
    """

    batches: Callable[[], Iterable[IdBatch]]
    rows: int
    digest: str
    cut: Cut | None = None


@dataclass(kw_only=True)
class ShardedRun:
    """One party's result.

    Attributes:
        state: the files of the run.
        plan: how it was cut.
        protocol: that the shards ran.
        why: it was chosen, where both left that open.
        peer_rows: that the peer announced.
        count: common rows; None where this party is not told.
        verified: each shard's rows were proved, and both have digests of the same sessions.
        digest: over the digests of all shards, 32 bytes, the same at both.
        resumed: shards that were done before.
        sessions: tasks that were run, more than shards where some were run again.
        sent, received: bytes.
        seconds: of each phase.
    """

    state: RunState
    plan: ShardPlan
    protocol: str
    why: str
    peer_rows: int
    count: int | None = None
    verified: bool = False
    digest: bytes = b""
    resumed: int = 0
    sessions: int = 0
    sent: int = 0
    received: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def lead_run(
    sock: socket.socket,
    terms: Terms,
    source: Source,
    folder: Path,
    pool: Pool,
    line: WorkerLine,
    *,
    bits: int | None = None,
    key: bytes | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ShardedRun:
    """One party's side of a run, from the greeting to the digest over all shards.

    Args:
        sock: connected with the peer's process.
        terms: what it brings and demands; its context begins with `SHARD_CONTEXT`.
        source: its identifiers.
        folder: of the run; an interrupted run continues from what is there. Workers have to reach it.
        pool: runs the shards.
        line: how workers reach the peer's.
        bits: how many of the bucket hash make a shard; None leaves it to the sizes or the peer.
        key: of the bucket hash, where both were given one; by default a fresh one.
        say: called with each progress message.

    Raises:
        PSIError: whatever went wrong; the same command continues from the shards that are done.
    """
    # The caller sends first: a listener does not know yet whether the caller is the peer.
    link = ControlLink(sock, terms.peer, first=not line.listens, timeout=line.timeout)
    try:
        return _lead_run(link, terms, source, folder, pool, line, bits, key, say)
    except PeerRefused:
        raise
    except PSIError as error:
        link.refuse(_public_reason(error))
        raise


def _lead_run(
    link: ControlLink,
    terms: Terms,
    source: Source,
    folder: Path,
    pool: Pool,
    line: WorkerLine,
    bits: int | None,
    key: bytes | None,
    say: Callable[[str], None],
) -> ShardedRun:
    started = time.perf_counter()
    announced = max(source.rows, terms.pad_to or 0)
    if max(announced, source.rows) > terms.max_set_size or (terms.pad_to or announced) < source.rows:
        raise ShardError(
            f"{source.rows:,} identifiers, pad_to={terms.pad_to}, max_set_size={terms.max_set_size:,}: raise what is "
            "too small"
        )
    if source.cut is not None and (key is None or bits != source.cut.bits):
        raise ShardError(f"a table that was cut beforehand needs its key, and {1 << source.cut.bits} shards")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    session, peer_rows = terms.accept_hello(link.exchange_hello(terms.encode_hello(announced)), announced)
    old = RunState.find(folder)
    if old is not None and old.settings.source != source.digest:
        old = None
    given = "" if key is None else hashlib.sha256(require_key(key)).hexdigest()
    said = link.exchange_fields(
        {
            "shards": bits,
            "workers": pool.workers,
            "key": given,
            "resume": "" if old is None else old.settings.tag,
        }
    )
    theirs = _require_number(said, "shards", 0, 64) if said.get("shards") is not None else None
    plan = ShardPlan.agree(announced, peer_rows, bits, theirs)
    if said.get("key") != given:
        raise DisagreementError("the parties were not given the same key for shards; give both the same, or none")
    lanes = min(pool.workers, _require_number(said, "workers", 1, 1 << 20))
    settings = Settings(
        name=terms.name,
        peer=terms.peer,
        role=terms.role,
        protocol=session.protocol,  # type: ignore[arg-type]
        learns=terms.learns,
        form=terms.rules.form,
        strip=terms.rules.strip,
        casefold=terms.rules.casefold,
        squeeze=terms.rules.squeeze,
        numeric=terms.rules.numeric,
        columns=terms.rules.columns,
        tag=run_tag(session, plan, key or run_key(session)).hex(),
        key=(key or run_key(session)).hex(),
        bits=plan.bits,
        own=announced,
        peer_rows=peer_rows,
        own_pad=plan.own_pad,
        peer_pad=plan.peer_pad,
        source=source.digest,
    )
    run = ShardedRun(
        state=RunState.__new__(RunState),
        plan=plan,
        protocol=session.protocol,
        why=session.why,
        peer_rows=peer_rows,
    )
    goes_on = old is not None and said.get("resume") == old.settings.tag and _is_same_run(old.settings, settings)
    if old is not None and goes_on:
        run.state = old
        say(f"going on with the run in {folder}")
        _sort_shards(old, source, pool)
    else:
        say(
            f"{plan.shards} shard{'' if plan.shards == 1 else 's'} of {plan.own_pad:,} rows here and {plan.peer_pad:,} "
            f"there, by {session.protocol}" + (f" ({session.why})" if session.why else "")
        )
        run.state = _prepare_shards(folder, settings, source, plan, pool, run.seconds)
    run.seconds["prepare"] = time.perf_counter() - started
    link.exchange_fields({"ready": True}, within=line.deadline)
    started = time.perf_counter()
    _run_shards(link, run, pool, line, lanes, say)
    run.seconds["shards"] = time.perf_counter() - started
    run.sent += link.traffic.sent
    run.received += link.traffic.received
    if terms.role == "receiver" or terms.learns == "both":
        run.count = sum(len(rows) for rows in run.state.read_results())
        run.verified = True
        if run.count < terms.min_intersection:
            run.state.clear()
            raise SmallIntersectionError(
                f"{run.count} common identifiers; at least {terms.min_intersection} are demanded: do both use the same "
                "identifiers, written the same way?"
            )
    return run


def _prepare_shards(
    folder: Path, settings: Settings, source: Source, plan: ShardPlan, pool: Pool, seconds: dict[str, float]
) -> RunState:
    """Partitions and sorts; the peer is sent nothing of the set before that is done."""
    (folder / "run.json").unlink(missing_ok=True)
    started = time.perf_counter()
    if source.cut is not None:
        counts = source.cut.counts
    else:
        counts = partition_rows(source.batches(), bytes.fromhex(settings.key), plan.bits, folder / "parts")
    if int(counts.sum()) != source.rows:
        raise ShardError(f"the table had {source.rows:,} rows and has {int(counts.sum()):,} now: run again")
    plan.require_fits(counts)
    seconds["partition"] = time.perf_counter() - started
    state = RunState.begin(folder, settings)
    started = time.perf_counter()
    _sort_shards(state, source, pool)
    seconds["sort"] = time.perf_counter() - started
    return state


def _sort_shards(state: RunState, source: Source, pool: Pool) -> None:
    folder, cut = str(state.folder), source.cut
    try:
        if cut is None:
            task = "securevfl_psi_cli.shards.shard:sort_shard"
            waiting = [pool.submit(task, folder, shard) for shard in range(state.settings.shards)]
        else:
            waiting = [pool.submit(cut.task, folder, shard, text) for shard, text in enumerate(cut.parts)]
        found = sum(int.from_bytes(one.result(), "big") for one in waiting)
    except IdentifierError:
        state.clear()
        raise
    except ShardError:
        if cut is not None:  # rows of other shards
            state.clear()
        raise
    if found != source.rows:
        state.clear()
        raise ShardError(
            f"{found:,} of {source.rows:,} rows are in the shards: is another run using {folder}? Run again"
        )


def _run_shards(
    link: ControlLink, run: ShardedRun, pool: Pool, line: WorkerLine, lanes: int, say: Callable[[str], None]
) -> None:
    """Rounds over the shards that are not done at both, until all are, and the digests agree."""
    state, stalled, before = run.state, 0, -1
    while True:
        mine = state.read_digests()
        theirs = np.frombuffer(link.exchange_digests(mine.tobytes(), within=line.deadline), dtype=np.uint8).reshape(
            mine.shape
        )
        todo = np.flatnonzero((mine != theirs).any(axis=1) | ~mine.any(axis=1)).tolist()
        if before < 0:
            run.resumed = run.plan.shards - len(todo)
        if not todo:
            run.digest = session_digest(mine, state.settings.run_tag)
            return
        stalled = stalled + 1 if len(todo) == before else 0
        if stalled == _STALLED:
            raise DisagreementError(
                f"{len(todo)} shards do not end with the same digest at both parties, the first of them {todo[0]}"
            )
        before = len(todo)
        _run_round(run, todo, pool, line, lanes, say)


def _run_round(
    run: ShardedRun, todo: list[int], pool: Pool, line: WorkerLine, lanes: int, say: Callable[[str], None]
) -> None:
    """Every shard once, in lanes that meet at ports of their own.

    Raises:
        Exception: the first error of any.
    """
    errors: list[Exception] = []
    lock = threading.Lock()
    done = [0]

    def run_lane(lane: int) -> None:
        for place in range(lane, len(todo), lanes):
            if errors:
                return
            try:
                found = pool.submit(
                    "securevfl_psi_cli.shards.worker:run_shard",
                    str(run.state.folder),
                    line.to_text(),
                    todo[place],
                    place,
                    lane,
                ).result()
                with lock:
                    run.sessions += 1
                    if found:
                        run.sent += int.from_bytes(found[8:16], "big")
                        run.received += int.from_bytes(found[16:24], "big")
                        done[0] += 1
                        say(f"{done[0]} of {len(todo)} shards")
            except Exception as error:  # handed to whoever leads the run
                errors.append(error)
                return

    threads = [threading.Thread(target=run_lane, args=(lane,), daemon=True) for lane in range(min(lanes, len(todo)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _is_same_run(old: Settings, new: Settings) -> bool:
    """Whether a run that was cut off was about the same: everything but what is drawn afresh."""
    drawn = {"tag", "key"}
    return all(getattr(old, name) == getattr(new, name) for name in Settings.__dataclass_fields__ if name not in drawn)


def _require_number(said: dict[str, Any], what: str, least: int, most: int) -> int:
    value = said.get(what)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise MalformedError(f"the peer sent {what} {str(value)[:40]!r}; {least} to {most} are possible")
    return value


def _public_reason(error: PSIError) -> str:
    if isinstance(error, SmallIntersectionError):
        return "its policy does not allow the result"
    if isinstance(error, DisagreementError):
        return "it runs under other terms"
    if isinstance(error, IdentifierError):
        return "its own identifiers cannot be used"
    return "of an error"
