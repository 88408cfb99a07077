"""Joint run by `multiparty`: the active party leads and learns the rows common to all, no pairwise intersection.

Each pair of parties agrees on its seed of zero shares directly, never through the active party.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from securevfl_psi import multiparty, okvs
from securevfl_psi.chunks import require_chunk, split
from securevfl_psi.circle import PairwiseKeys
from securevfl_psi.conversations.proving import counts_of
from securevfl_psi.conversations.scripts import (
    Incoming,
    Outgoing,
    as_frames,
    chunks_of,
    read_payload,
    receive_rows,
    rows_of,
)
from securevfl_psi.errors import MalformedError
from securevfl_psi.group import POINT_BYTES
from securevfl_psi.joint.state import State
from securevfl_psi.wire import Frame, Kind

__all__ = ["LeadingActive", "LeadingPassive"]

_MOST_WAITING = 4
_KEY_BYTES = 32


class _Seeds:
    """Agrees on a seed with each other party, once all keys arrived."""

    def __init__(self, state: State) -> None:
        self._keys = PairwiseKeys(state.circle, state.terms.name)
        self._theirs: dict[str, bytes] = {}
        self._peers = set(state.circle.names) - {state.terms.name}
        self.seeds: dict[str, bytes] | None = None

    def send_script(self) -> Outgoing:
        yield Frame(Kind.KEY, self._keys.public_key)

    def receive_script(self, peer: str) -> Incoming:
        frame = yield Kind.KEY
        self._theirs[peer] = read_payload(frame, _KEY_BYTES)
        if set(self._theirs) == self._peers:
            self.seeds = self._keys.derive_seeds(self._theirs)


class LeadingActive:
    """The active party's part: it leads."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seeds = _Seeds(state)
        self._leader: multiparty.Leader | None = None
        self._blinding: Iterator[np.ndarray] = iter(())
        self._blinded: dict[int, bytes] = {}
        self._due: dict[int, int] = {}
        self._answered: set[str] = set()

    def send_script(self, peer: str) -> Outgoing:
        """To a passive party: the own set, and what is common."""
        state = self._state
        yield from self._seeds.send_script()
        while self._seeds.seeds is None:
            yield None
        for number in range(chunks_of(len(state.ids))):
            yield Frame(Kind.POINTS, self._get_chunk(number))
        while state.rows is None:
            yield None
        yield Frame(Kind.COUNT, len(state.rows).to_bytes(8, "big"))
        yield from as_frames(Kind.PROOFS, self._get_leader().announce_rows(peer))

    def receive_script(self, peer: str) -> Incoming:
        """From a passive party: answers, and its table."""
        state = self._state
        yield from self._seeds.receive_script(peer)
        answers = yield from receive_rows(Kind.ANSWERS, POINT_BYTES, len(state.ids), f"the answers of {peer!r}")
        seed = read_payload((yield Kind.SEED), okvs.SEED_BYTES)
        slots = okvs.slots_for(state.sizes[peer])
        table = yield from receive_rows(Kind.SLOTS, multiparty.SHARE_BYTES, slots, f"the table of {peer!r}")
        self._get_leader().receive_answer(peer, split(answers), seed, split(table), state.sizes[peer])
        self._answered.add(peer)
        if self._answered == set(state.terms.passive):
            state.accept_rows(state.order(np.sort(self._get_leader().intersect())))

    def _get_leader(self) -> multiparty.Leader:
        if self._leader is None:
            state = self._state
            limit = state.terms.max_set_size
            seeds = self._seeds.seeds or {}
            self._leader = multiparty.Leader(state.ids, state.circle, seeds, max_set_size=limit, by=state.by)
            self._blinding = self._leader.blind_set()
        return self._leader

    def _get_chunk(self, number: int) -> bytes:
        """Return a chunk of the blinded set, computed once and cached until every party has it."""
        self._get_leader()
        if number not in self._blinded:
            self._blinded[number] = next(self._blinding).tobytes()
            self._due[number] = len(self._state.terms.passive)
        chunk = self._blinded[number]
        self._due[number] -= 1
        if not self._due[number]:
            del self._blinded[number]
        return chunk


class LeadingPassive:
    """A passive party's part."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seeds = _Seeds(state)
        self._waiting: deque[np.ndarray] = deque()
        self._party: multiparty.Follower | None = None

    def send_script(self, peer: str) -> Outgoing:
        """To the active party answers and a table; to another passive one a key."""
        yield from self._seeds.send_script()
        state = self._state
        if peer != state.terms.active:
            return
        while self._seeds.seeds is None:
            yield None
        party = multiparty.Follower(
            state.ids,
            state.terms.name,
            state.circle,
            self._seeds.seeds,
            max_set_size=state.terms.max_set_size,
            by=state.by,
        )
        self._party = party
        count = state.sizes[peer]
        answers = party.evaluate(self._take_arrived(), count)
        for _ in range(chunks_of(count)):
            while not self._waiting:
                yield None
            yield from as_frames(Kind.ANSWERS, [next(answers)])
        table = party.encode_table()
        yield Frame(Kind.SEED, table.seed)
        yield from as_frames(Kind.SLOTS, split(table.slots))

    def receive_script(self, peer: str) -> Incoming:
        """From the active party its set, and what is common; from another passive one its key."""
        yield from self._seeds.receive_script(peer)
        state = self._state
        if peer != state.terms.active:
            return
        done = 0
        while done < state.sizes[peer]:
            while len(self._waiting) >= _MOST_WAITING:
                yield None
            rows = rows_of((yield Kind.POINTS), POINT_BYTES)
            require_chunk(rows, POINT_BYTES, done, state.sizes[peer], "the leader's set")
            self._waiting.append(rows)
            done += len(rows)
        frame = yield Kind.COUNT
        (count,) = counts_of(frame, 1, len(state.ids))
        proofs = yield from receive_rows(Kind.PROOFS, multiparty.RESULT_BYTES, count, "the common rows")
        if self._party is None:
            raise MalformedError(f"{peer!r} announced common rows before it had this party's table")
        state.accept_rows(state.order(np.sort(self._party.find_common_rows(split(proofs), count))))

    def _take_arrived(self) -> Iterator[np.ndarray]:
        while self._waiting:
            yield self._waiting.popleft()
