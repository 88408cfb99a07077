"""What a worker does with one shard: from files to files, with the same result however often it is run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from securevfl_crypto.engine import choose_engine
from securevfl_psi.column import Identifiers
from securevfl_psi.endpoint import Endpoint
from securevfl_psi.errors import IdentifierError, SetSizeError, ShardError
from securevfl_psi.session import Session
from securevfl_psi.terms import Terms

from securevfl_psi_cli.shards.files import read_shard, write_digest, write_result, write_shard
from securevfl_psi_cli.shards.partition import part_path, read_part
from securevfl_psi_cli.shards.state import RunState

__all__ = ["ShardSession", "sort_shard", "sorted_shard"]

_EXAMPLES = 3


def sort_shard(folder: str, shard: int) -> bytes:
    """A task: the part of a shard, in ascending order of bucket hashes, as a shard. The part is deleted.

    Args:
        folder: of the run.
        shard: its number.

    Returns:
        How many identifiers it has, 8 bytes, big-endian.

    Raises:
        IdentifierError: identifiers that come twice, with their rows.
        ShardError: files that cannot be read or written.
    """
    state = RunState(Path(folder))
    part = part_path(state.parts_folder(), shard)
    found = sorted_shard(state, shard, lambda: read_part(part))
    part.unlink(missing_ok=True)
    return found


def sorted_shard(state: RunState, shard: int, read: Callable[[], tuple[np.ndarray, np.ndarray, Identifiers]]) -> bytes:
    """Write a shard in ascending order of bucket hashes, unless that was done before.

    Args:
        state: the run.
        shard: its number.
        read: its row numbers, int64 (n,), bucket hashes, uint64 (n,), and identifiers.

    Returns:
        How many identifiers it has, 8 bytes, big-endian.

    Raises:
        IdentifierError: identifiers that come twice, with their rows.
        ShardError: files that cannot be read or written.
    """
    run, path = state.settings.run_tag, state.shard_file(shard)
    if path.exists():  # done before, by a worker that was lost after it
        return len(read_shard(path, run, shard)[0]).to_bytes(8, "big")
    rows, hashes, ids = read()
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(equal):
        order = _by_texts(order, ordered, ids)
        _refuse_doubled(np.unique(np.concatenate([equal, equal + 1])), order, rows, ids)
    write_shard(path, run, shard, rows[order], ids.lengths[order], ids.concatenate(order))
    return len(rows).to_bytes(8, "big")


def _by_texts(order: np.ndarray, ordered: np.ndarray, ids: Identifiers) -> np.ndarray:
    """Different texts of one hash, which chance makes seldom, in ascending order of their bytes: as at the peer."""
    out = order.copy()
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    for begin, end in zip(begins, [*begins[1:].tolist(), len(ordered)], strict=True):
        if end - begin > 1:
            out[begin:end] = sorted(order[begin:end].tolist(), key=lambda row: ids[row].encode())
    return out


def _refuse_doubled(suspects: np.ndarray, order: np.ndarray, rows: np.ndarray, ids: Identifiers) -> None:
    first: dict[str, int] = {}
    found = []
    for place in sorted(suspects.tolist(), key=lambda place: int(rows[order[place]])):
        row = int(order[place])
        if ids[row] in first:
            found.append(f"{ids[row]!r} in rows {first[ids[row]]} and {int(rows[row])}")
        first.setdefault(ids[row], int(rows[row]))
    if found:
        more = f" and {len(found) - _EXAMPLES} more" if len(found) > _EXAMPLES else ""
        raise IdentifierError(
            f"{len(found)} identifiers of a shard occur more than once after normalisation: "
            f"{'; '.join(found[:_EXAMPLES])}{more}: "
            "keep one row for each"
        )


@dataclass(frozen=True, kw_only=True)
class _ShardTerms(Terms):
    """Terms of one shard: the peer announces as many rows as the plan has, neither more nor less.

    Attributes:
        due: rows that the peer announces.
        shards: of the run.
        seen: the session, once both agreed.
    """

    due: int = 0
    shards: int = 1
    seen: list[Session] = field(default_factory=list, compare=False, repr=False)

    def accept_hello(self, hello: bytes, own_size: int | None = None) -> tuple[Session, int]:
        session, rows = super().accept_hello(hello, own_size)
        if rows != self.due:
            raise SetSizeError(f"the peer announces {rows} rows of a shard; the agreed plan has {self.due}")
        session = replace(session, shards=self.shards)
        self.seen.append(session)
        return session, rows


class ShardSession:
    """One attempt at one shard.

    Args:
        state: the run.
        shard: its number.

    Attributes:
        end: the endpoint; whoever moves the bytes runs it to its end.

    Raises:
        ShardError: the shard's file is missing, was changed or belongs to another run.
    """

    def __init__(self, state: RunState, shard: int) -> None:
        settings = state.settings
        self._state, self._shard = state, shard
        self._rows, ids = read_shard(state.shard_file(shard), settings.run_tag, shard)
        self._terms = _ShardTerms(
            name=settings.name,
            peer=settings.peer,
            role=settings.role,
            protocol=settings.protocol,
            learns=settings.learns,
            rules=settings.rules,
            context=settings.shard_context(shard),
            max_set_size=max(settings.own_pad, settings.peer_pad),
            min_intersection=0,  # it holds for the whole run, whose count no shard knows
            pad_to=settings.own_pad,
            due=settings.peer_pad,
            shards=1 << settings.bits,
        )
        by = choose_engine() if settings.protocol == "dh" else None
        self.end = Endpoint(ids.mark_unique(), self._terms, by=by, normalised=True)

    def save_result(self) -> int:
        """Write what the session gave, the digest of the session last; how many rows are common."""
        found, settings, state = self.end.result, self._state.settings, self._state
        if settings.learns == "both" and not found.verified:
            raise ShardError(f"shard {self._shard} ended without a proof of its common rows")
        places = np.empty(0, dtype=np.int64) if found.rows is None else np.sort(found.rows)
        write_result(state.result_path(self._shard), settings.run_tag, self._shard, self._rows[places])
        digest = _session_digest(self._terms.seen[-1], self._shard, found.count if settings.learns == "both" else None)
        write_digest(state.digest_path(self._shard), settings.run_tag, self._shard, digest)
        return len(places)


def _session_digest(session: Session, shard: int, count: int | None) -> bytes:
    """What both parties keep for a session that ended: it says which session, shard and number of common rows.

    That the rows are the same is what proofs and receipt show within the session; no digest of identifiers leaves.
    """
    parts: Sequence[bytes] = (session.dst, shard.to_bytes(4, "big"), b"" if count is None else count.to_bytes(8, "big"))
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.sha512(b"securevfl-psi shards session 1" + framed).digest()[:32]
