"""One shard between two workers, each of one party: they find each other, and run its session.

The caller first sends which place the shard has in the list of those that are due, and of which run; the other side
answers whether that is the shard it is at. So two workers that lost step, because one was killed, fall into step again:
whoever is behind leaves its shard for the next round. Which shard a session is about does not rest on that: its number
and the run are in the session's context.
"""

from __future__ import annotations

import gc
import json
import socket
import struct
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from securevfl_psi.errors import ConnectionLost
from securevfl_psi.wire import MAGIC

from securevfl_psi_cli.byte_stream import ByteStream
from securevfl_psi_cli.channel import Address, hanging_up, secure_connection
from securevfl_psi_cli.credentials import Pins
from securevfl_psi_cli.driver import run_endpoint
from securevfl_psi_cli.listening import PeerListener
from securevfl_psi_cli.shards.shard import ShardSession
from securevfl_psi_cli.shards.state import RunState

__all__ = ["WorkerLine", "run_shard"]

_CALL = struct.Struct(">4s4s16sI")
_WHAT = b"SHRD"
_MEET, _AHEAD, _BEHIND = b"=", b">", b"<"
_DONE = struct.Struct(">QQQ")
_ATTEMPTS = 5
_AGAIN = 0.02


@dataclass(frozen=True, kw_only=True)
class WorkerLine:
    """How a worker reaches the peer's; text, so that it can be handed to a worker.

    Attributes:
        listens: or calls.
        host: where.
        port: of the first lane.
        cert, key, peer_cert: files, or empty for plain TCP.
        timeout: seconds of silence after which the peer is lost, and that it may take to come.
        deadline: seconds for a session.
    """

    listens: bool
    host: str
    port: int
    cert: str = ""
    key: str = ""
    peer_cert: str = ""
    timeout: float = 60.0
    deadline: float = 3600.0

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps(self.__dict__)

    @property
    def pins(self) -> Pins | None:
        """Certificates."""
        return Pins.load(Path(self.cert), Path(self.key), {"peer": Path(self.peer_cert)}) if self.cert else None


def run_shard(folder: str, line: str, shard: int, place: int, lane: int) -> bytes:
    """A task: runs the session of a shard with the peer's worker, and writes its common rows.

    Args:
        folder: of the run, see `RunState`.
        line: how to reach the peer, `Line.to_text`.
        shard: its number.
        place: of the shard in the list of those that are due, which is the same at both.
        lane: workers of a lane meet at a port of their own.

    Returns:
        Common rows, bytes sent and received, 8 bytes each, big-endian; nothing where the peer is at another shard.

    Raises:
        PSIError: whatever went wrong.
    """
    reach = WorkerLine(**json.loads(line))
    state = RunState(Path(folder))
    gc.collect()  # an endpoint's scripts refer to each other, so the session before this one may still hold its arrays
    meet = _listen_for_peer if reach.listens else _call_peer
    return meet(state, reach, shard, place, Address(reach.host, reach.port + 1 + lane))


def _run_session(state: RunState, shard: int, sock: socket.socket, line: WorkerLine) -> bytes:
    session = ShardSession(state, shard)
    traffic = run_endpoint(session.end, sock, timeout=line.timeout, deadline=line.deadline)
    return _DONE.pack(session.save_result(), traffic.sent, traffic.received)


def _listen_for_peer(state: RunState, line: WorkerLine, shard: int, place: int, where: Address) -> bytes:
    lost: ConnectionLost | None = None
    begun = time.monotonic()
    with PeerListener(where, line.pins, timeout=line.timeout) as door:
        for _ in range(_ATTEMPTS):
            while True:
                sock, _ = door.accept_peer(time.monotonic() - begun + line.timeout)
                with hanging_up(sock):
                    stream = ByteStream(sock, state.settings.peer, timeout=line.timeout)
                    try:
                        theirs = _receive_place(stream, state.settings.run_tag)
                        if theirs is None or theirs < place:
                            stream.send(_BEHIND)
                            continue
                        stream.send(_MEET if theirs == place else _AHEAD)
                    except ConnectionLost:
                        continue
                    if theirs > place:
                        return b""
                    try:
                        return _run_session(state, shard, sock, line)
                    except ConnectionLost as error:
                        lost = error
                        break
    raise lost or ConnectionLost("the peer's worker did not come")


def _call_peer(state: RunState, line: WorkerLine, shard: int, place: int, where: Address) -> bytes:
    lost = ConnectionLost(f"the peer's worker for shard {shard} does not answer within {line.timeout:g} s")
    attempts = 0
    end = time.monotonic() + line.timeout
    call = _CALL.pack(MAGIC, _WHAT, state.settings.run_tag, place)
    while time.monotonic() < end and attempts < _ATTEMPTS:
        try:
            plain = socket.create_connection((where.host, where.port), timeout=line.timeout)
        except OSError:
            time.sleep(_AGAIN)  # the peer's worker is not there yet
            continue
        with closing(plain), secure_connection(plain, line.pins, timeout=line.timeout) as sock:
            stream = ByteStream(sock, state.settings.peer, timeout=line.timeout)
            try:
                stream.send(call)
                answer = stream.receive(1)
            except ConnectionLost:
                answer = b""
            if answer == _BEHIND:
                return b""
            if answer == _MEET:
                attempts += 1
                try:
                    return _run_session(state, shard, sock, line)
                except ConnectionLost as error:
                    lost = error
                    end = time.monotonic() + line.timeout
                continue
        time.sleep(_AGAIN)
    raise lost


def _receive_place(stream: ByteStream, run: bytes) -> int | None:
    """Return the place that a caller names; None if it belongs to another run, or is not a worker."""
    magic, what, tag, place = _CALL.unpack(stream.receive_exactly(_CALL.size))
    return int(place) if (magic, what, tag) == (MAGIC, _WHAT, run) else None
