"""Lines in groups: nothing leaves a party's process before the line that it has of it, and no head before the disk."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from securevfl_net.gate.frames import FrameIn, Frames, Inbox, Outbox
from securevfl_net.gate.settings import BookSettings, GateSettings, Timing
from securevfl_net.identity import PeerBook

from securevfl.errors import AuditError, DiskFull
from securevfl.ledger import Entry, Ledger, PrivateKey, decode_line, line_file
from securevfl.ledger.entry_bytes import encode_entry
from securevfl.ledger.line_file import LineFile
from securevfl.ledger.lines import encode, hash_of
from securevfl.privacy import Clock, Link, Policy
from securevfl.transport import Guard, Kind, Message, measure_message
from securevfl.transport.network_mesh import NetworkMesh

unix = pytest.mark.skipif(sys.platform == "win32", reason="forks")
PEERS = ("b", "c")
BURSTS = 4
_WRITE = "securevfl.ledger.line_file.os.write"


@given(
    st.sampled_from(["sent", "received"]),
    st.text(max_size=30),
    st.text(max_size=30) | st.just('0,"digest":"",'),
    st.dictionaries(st.text(max_size=8) | st.just("bytes"), st.lists(st.integers(0, 3), max_size=3), max_size=3),
    st.builds(Guard, st.text(max_size=8), st.integers(0, 4096), st.text(max_size=8), st.floats(0, 10)),
    st.integers(0, 1 << 50),
)
def test_a_line_has_the_bytes_that_its_object_has(
    way: Any, peer: str, what: str, shapes: dict[str, list[int]], guard: Guard, number: int
) -> None:
    arrays = {name: np.zeros(shape) for name, shape in shapes.items()}
    message = Message(Kind.STATISTIC, what, arrays, {}, guard)
    encoded, found = encode_entry(way, peer, message, seq=number, time=number + 1, size=number, digest="d", prev="e")
    line = Entry(
        time=number + 1,
        prev="e",
        hash=found,
        seq=number,
        way=way,
        peer=peer,
        kind=message.kind,
        what=what,
        shapes=shapes,
        bytes=number,
        digest="d",
        cipher=guard.cipher,
        bits=guard.bits,
        key=guard.key,
        noise=guard.noise,
    )
    assert encoded == encode(line)
    assert found == hash_of(line)


def _record(ledger: Ledger, number: int, *, grouped: bool, way: Any = "sent") -> None:
    message = Message(Kind.STATISTIC, f"step {number}", {"x": np.arange(3.0)})
    ledger.record(way, "b", message, measure_message(message)[0], grouped=grouped)


def test_a_group_has_the_bytes_of_lines_written_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.ledger.chain.time.time_ns", lambda: 10**18)
    key, found = PrivateKey.generate(), []
    for name, grouped in (("alone", False), ("grouped", True)):
        ledger = Ledger("a", run="r", job="ab", key=key, session="0" * 32, path=tmp_path / name, kept=False)
        for number in range(3000):
            _record(ledger, number, grouped=grouped)
        ledger.close()
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == 3000 + 2 + 2  # opening, closing, two marks


def test_whoever_reads_or_signs_the_chain_sees_lines_that_waited(tmp_path: Path) -> None:
    acts: list[Callable[[Ledger], object]] = [
        lambda ledger: ledger.commit(),
        lambda ledger: ledger.catch_up(),
        lambda ledger: ledger.sync(),
        lambda ledger: ledger.lines,
        lambda ledger: ledger.record_note("n", "text"),
        lambda ledger: ledger.publish_head(),
        lambda ledger: ledger.sign_head(),
        lambda ledger: _record(ledger, 1, grouped=False, way="received"),
        lambda ledger: ledger.close(),
    ]
    for number, act in enumerate(acts):
        path = tmp_path / str(number)
        ledger = Ledger("a", run="r", job="ab", path=path, kept=False)
        _record(ledger, 0, grouped=True)
        assert path.read_bytes().count(b"\n") == 1
        act(ledger)
        lines = map(decode_line, path.read_bytes().splitlines())
        assert next(line.seq for line in lines if isinstance(line, Entry)) == 1


def test_a_full_disk_takes_no_part_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LineFile(tmp_path / "a.jsonl")
    file.append(b"first\n")
    for line in (b"second\n", b"third\n"):
        file.put(line)
    write = os.write
    for room in range(13):
        left = [room]

        def fill(handle: int, data: bytes, left: list[int] = left) -> int:
            if not left[0]:
                raise OSError(28, "No space left on device")
            done = write(handle, data[: left[0]])
            left[0] -= done
            return done

        with monkeypatch.context() as patch:
            patch.setattr(_WRITE, fill)
            with pytest.raises(DiskFull):
                file.commit()
            with pytest.raises(DiskFull):
                file.append(b"fourth\n")
        assert file.path.read_bytes() == b"first\n"
    file.append(b"fifth\n")
    assert file.path.read_bytes() == b"first\nsecond\nthird\nfifth\n"
    assert file.waiting == 0


def test_few_lines_wait(tmp_path: Path) -> None:
    file, line = LineFile(tmp_path / "a.jsonl"), b"x" * 999 + b"\n"
    for _ in range(200):
        file.put(line)
        assert 0 < file.waiting <= 64 << 10
    assert file.end + file.waiting == 200_000


# --- between a party and its gate


class _NoGate:
    """Stands for the gate's process."""

    pid = 0

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        return 0


def _start_mesh(sock: socket.socket) -> NetworkMesh:
    book = BookSettings(pins={}, authorities={}, endorsed=[], grace=0.0)
    settings = GateSettings(
        "a",
        list(PEERS),
        bytes(32),
        {},
        f"1-{'0' * 32}",
        {},
        "",
        "",
        book,
        listen=[],
        routes={},
        limits={},
        timing=Timing(),
    )
    sock.setblocking(False)
    return NetworkMesh(cast("subprocess.Popen[bytes]", _NoGate()), sock, settings, cast("PeerBook", None))


async def _send_bursts(sock: socket.socket, path: Path) -> Ledger:
    """Send two messages to each of two peers at once, several times, with a line of a received one in between."""
    mesh = _start_mesh(sock)
    ledger = Ledger("a", run="r", job="ab", path=path, kept=False)
    links = [
        Link("a", peer, channel, ledger, Policy(), Clock())
        for peer, channel in mesh.begin_view(bytes(7) + b"one......").items()
    ]
    try:
        for burst in range(BURSTS):
            for number in range(2):
                for link in links:
                    await link.send(Kind.STATISTIC, f"{link.peer} {burst} {number}", x=np.arange(5.0))
            for _ in range(3):
                await asyncio.sleep(0)
            _record(ledger, burst, grouped=False, way="received")
        return ledger
    finally:
        mesh._lose_gate("the test is over")


def _read_left(sock: socket.socket) -> list[str]:
    """Steps of the messages that reached the gate."""
    found: list[str] = []

    def take(frame: FrameIn) -> None:
        if frame.kind == Frames.PART and frame.number:
            body = bytes(frame.body)
            found.append(body[1 : 1 + body[0]].decode())

    inbox = Inbox(take, lambda *head: None)
    sock.setblocking(False)
    with suppress(Exception):  # the other end is gone
        while True:
            inbox.read(sock)
    return found


def _read_lines(path: Path) -> list[str]:
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    lines = map(decode_line, whole.splitlines())
    return [line.what for line in lines if isinstance(line, Entry) and line.way == "sent"]


def _run_killed(path: Path, arm: Callable[[], None]) -> tuple[int, list[str], list[str]]:
    """Run a party that dies as `arm` says; its exit status, what reached its gate, and what its ledger has."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        status = 1
        try:
            ours.close()
            arm()
            asyncio.run(_send_bursts(theirs, path))
            status = 0
        finally:
            os._exit(status)
    theirs.close()
    _, status = os.waitpid(child, 0)
    left = _read_left(ours)
    ours.close()
    return os.waitstatus_to_exitcode(status), left, _read_lines(path) if path.exists() else []


def _die_at(count: int, part: float) -> None:
    """From now on, die in the write of this number to the ledger, after a part of it."""
    write, seen = os.write, [0]

    def die(handle: int, data: bytes) -> int:
        seen[0] += 1
        if seen[0] == count:
            write(handle, data[: round(part * len(data))])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(handle, data)

    pytest.MonkeyPatch().setattr(_WRITE, die)  # in a process that ends


def _die_sending(count: int) -> None:
    """From now on, die behind the write of this number to the gate."""
    write, seen = Outbox.write, [0]

    def die(self: Outbox, sock: socket.socket) -> bool:
        done = write(self, sock)
        seen[0] += 1
        if seen[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    pytest.MonkeyPatch().setattr(Outbox, "write", die)  # in a process that ends


@unix
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0, None], ids=["before", "in mid-group", "after", "behind the gate's"])
def test_a_kill_at_each_write_leaves_a_line_of_all_that_left(part: float | None, tmp_path: Path) -> None:
    count = 0
    while True:
        count += 1
        assert count < 50
        path = tmp_path / f"{count}.jsonl"
        arm = partial(_die_sending, count) if part is None else partial(_die_at, count, part)
        status, left, lines = _run_killed(path, arm)
        assert set(left) <= set(lines), count
        if status == 0:
            assert len(left) == len(lines) == 4 * BURSTS
            break
        assert status == -signal.SIGKILL
    assert count > 2 * BURSTS if part is not None else count > BURSTS


@contextmanager
def _full_at(count: int) -> Iterator[None]:
    write, seen = os.write, [0]

    def fill(handle: int, data: bytes) -> int:
        seen[0] += 1
        if seen[0] >= count:
            raise OSError(28, "No space left on device")
        return write(handle, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_WRITE, fill)
        yield


@unix
def test_where_the_disk_is_full_nothing_leaves_and_the_party_is_told(tmp_path: Path) -> None:
    for count in range(2, 2 * BURSTS + 2):
        ours, theirs = socket.socketpair()
        path = tmp_path / f"{count}.jsonl"
        with _full_at(count), pytest.raises(DiskFull, match="disk full"):
            asyncio.run(_send_bursts(theirs, path))
        assert _read_left(ours) == _read_lines(path)
        assert path.read_bytes().endswith(b"\n")
        ours.close()


@unix
def test_a_reader_is_told_that_the_disk_is_full(tmp_path: Path) -> None:
    """Also where the party waits for a peer and would write nothing more."""

    async def work(sock: socket.socket) -> None:
        mesh = _start_mesh(sock)
        ledger = Ledger("a", run="r", job="ab", path=tmp_path / "a.jsonl", kept=False)
        link = Link("a", "b", mesh.begin_view(bytes(7) + b"one......")["b"], ledger, Policy(), Clock())
        with _full_at(1):
            await link.send(Kind.STATISTIC, "asked", x=np.arange(5.0))
            with pytest.raises(DiskFull):
                await asyncio.wait_for(link.receive(Kind.STATISTIC, "answered", "x"), 20.0)
            with pytest.raises(DiskFull):
                await link.send(Kind.STATISTIC, "asked again", x=np.arange(5.0))
        mesh._lose_gate("the test is over")

    ours, theirs = socket.socketpair()
    asyncio.run(work(theirs))
    assert _read_left(ours) == []
    ours.close()


def test_no_head_is_given_before_its_chain_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither during a run nor at its end, nor is a peer's head taken for recorded before."""
    path = tmp_path / "a.jsonl"
    synced: list[bytes] = [b""]
    monkeypatch.setattr(line_file, "flush_to_disk", lambda handle: synced.append(path.read_bytes()))
    mine = Ledger("a", run="r", job="ab", path=path, kept=False)
    peer = Ledger("b", run="r", job="ab")
    mine.record_peers({"b": ("passive", peer.introduction)})
    for publish in (Ledger.publish_head, Ledger.sign_head):
        _record(mine, 0, grouped=True)
        word = publish(mine)
        assert str(word["head"]).encode() in synced[-1]
        assert synced[-1] == path.read_bytes()
        if publish is Ledger.publish_head:
            mine.record_head("b", peer.publish_head())
            assert peer.head.encode() in synced[-1].splitlines()[-1]
    mine.close()
    assert synced[-1] == path.read_bytes()


def test_after_a_failed_sync_no_head_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger("a", run="r", job="ab", path=tmp_path / "a.jsonl", kept=False)

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(line_file, "flush_to_disk", fail)
        with pytest.raises(OSError, match="Input/output error"):
            ledger.publish_head()
    for act in (ledger.publish_head, ledger.sign_head, lambda: _record(ledger, 0, grouped=True)):
        with pytest.raises(AuditError, match="start the party again"):
            act()
