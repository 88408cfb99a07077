"""Gates that are attacked, frozen, killed and renewed."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from securevfl_net.gate import Address, Route, Timing
from securevfl_net.gate.program import ProgramWatch
from securevfl_net.identity import Authority, Endorsement, PeerBook
from securevfl_net.incarnation import Incarnation
from securevfl_net.session import SessionLimits
from support.networks import AGREEMENT, LOCAL, QUICK, SMALL, Loopback, Splice, until

from securevfl.errors import DiskFull, InputError, MachineFault, Parked, PeerEnded, ProtocolError
from securevfl.ledger import PrivateKey
from securevfl.transport import (
    CertificateReplaced,
    Channel,
    Connected,
    ConnectionRefused,
    Disconnected,
    JobAborted,
    Kind,
    MeshEvent,
    Message,
    NoteReceived,
    PeerLeft,
)
from securevfl.transport.network_mesh import NetworkMesh

T = TypeVar("T", bound=MeshEvent)
PATIENCE = 60.0
MB = 1 << 20

Play = Callable[[Callable[[Loopback], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(work: Callable[[Loopback], Awaitable[None]]) -> None:
        async def main() -> None:
            loopback = Loopback(tmp_path)
            try:
                await asyncio.wait_for(work(loopback), PATIENCE)
            finally:
                await loopback.close()

        asyncio.run(main())

    return run


async def _of(mesh: NetworkMesh, kind: type[T]) -> T:
    while not isinstance(event := await mesh.next_event(), kind):
        pass
    return event


async def _begun(loopback: Loopback, view: bytes = bytes(7) + b"one......") -> tuple[Channel, Channel]:
    meshes = loopback.meshes
    channels = {name: mesh.begin_view(view) for name, mesh in meshes.items()}
    for mesh in meshes.values():
        for peer in mesh.peers:
            await mesh.send_note(peer, b"ready" + view)
    for mesh in meshes.values():
        for _ in mesh.peers:
            while (await _of(mesh, NoteReceived)).payload != b"ready" + view:
                pass
        mesh.open_view()
    return channels["a"]["b"], channels["b"]["a"]


async def _two(loopback: Loopback, *, limits: SessionLimits = SMALL, timing: Timing = QUICK) -> None:
    await loopback.start("ab", limits=limits, timing=timing)
    for mesh in loopback.meshes.values():
        await _of(mesh, Connected)


def _message(i: int, size: int = MB) -> Message:
    return Message(Kind.STATISTIC, f"m{i}", {"a": np.full(size, i % 100, np.uint8)}, {"i": i})


def _resident(process: int) -> int:
    """Most bytes that a process ever had in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_gate_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, securevfl_net.gate.loop; print({'torch', 'numpy', 'asyncio'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_a_peer_that_was_started_anew_is_another_incarnation(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        await _two(loopback)
        a, _ = await _begun(loopback)
        reader = asyncio.create_task(a.receive())
        loopback.meshes["b"].kill_gate()
        assert (await _of(loopback.meshes["a"], Disconnected)).peer == "b"
        assert not reader.done()
        b = await loopback.one("b")
        await _of(b, Connected)
        up = await _of(loopback.meshes["a"], Connected)
        assert (up.incarnation, up.resumed) == (b.incarnation, False)
        await a.send(_message(1, 10))  # of a view that is void: it waits, and no one gets it
        loopback.meshes["a"].park_view("'b' was restarted")
        with pytest.raises(Parked):
            await reader
        ours, theirs = await _begun(loopback, b"two" + bytes(13))
        await ours.send(_message(2, 10))
        assert (await theirs.receive())[0].what == "m2"

    play(work)


@pytest.mark.parametrize("first", ["read", "write"])
def test_a_program_without_a_gate_and_a_gate_without_a_program_end(play: Play, first: str) -> None:
    """Whether the program's next read or its next write finds out first."""

    async def work(loopback: Loopback) -> None:
        await _two(loopback)
        a, _ = await _begun(loopback)
        mesh = loopback.meshes["a"]
        if first == "write":
            mesh._loop.remove_reader(mesh._sock)
        os.kill(mesh.gate_pid, signal.SIGKILL)
        if first == "write":
            await until(lambda: not _runs(mesh.gate_pid))
            await a.send(_message(1, 10))
        with pytest.raises(Parked, match="gate of 'a' ended"):
            await a.receive()
        with pytest.raises(MachineFault, match="gate of 'a' ended"):
            await mesh.next_event()
        with pytest.raises(MachineFault, match="gate of 'a' ended"):
            mesh.begin_view(bytes(15) + b"z")
        gate = loopback.meshes["b"].gate_pid
        loopback.meshes["b"]._lose_gate("as if the program had died")  # the socket closes, nothing is said
        await until(lambda: not _runs(gate))

    play(work)


def test_no_caller_ends_a_listener_or_keeps_a_party_out(play: Play) -> None:
    """Garbage, TLS 1.2, silence, floods of half-open calls: the peer gets in, and refusals have names."""

    async def work(loopback: Loopback) -> None:
        timing = Timing(first=0.02, most=0.2, strangers=16, handshake=30.0)
        loopback.identities = {name: loopback.world.own(name) for name in "ab"}
        mesh = await loopback.one("a", timing=timing)
        host, port = mesh.listening[0].host, mesh.listening[0].port
        slow = [sockets.enter_context(socket.create_connection((host, port))) for _ in range(40)]
        for i, one in enumerate(slow[-8:]):  # the others were there longest, and have to go
            one.send((b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n", os.urandom(64), b"S")[i % 4])
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2

        def outdated() -> None:
            with pytest.raises(OSError), socket.create_connection((host, port), timeout=20) as sock:  # noqa: PT011
                old.wrap_socket(sock)

        await asyncio.to_thread(outdated)
        codes: set[str] = set()
        while not {"not-tls", "tls-version"} <= codes:
            event = await _of(mesh, ConnectionRefused)
            assert event.peer == ""
            codes.add(event.code)
        await loopback.one("b", timing=timing)
        await _of(mesh, Connected)
        await _of(loopback.meshes["b"], Connected)
        a, b = await _begun(loopback)
        await a.send(_message(1))
        assert (await b.receive())[0].what == "m1"

    with ExitStack() as sockets:
        play(work)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives every program all of 127.0.0.0/8")
def test_a_flood_from_one_address_keeps_no_peer_from_another_out(play: Play) -> None:
    """The peer is far away: before its first bytes arrive, a flood takes all places several times."""

    async def work(loopback: Loopback) -> None:
        timing = Timing(first=0.02, most=0.2, strangers=16, handshake=30.0)
        loopback.identities = {name: loopback.world.own(name) for name in "ab"}
        mesh = await loopback.one("a", timing=timing)
        target, ended, calls = (mesh.listening[0].host, mesh.listening[0].port), threading.Event(), [0]
        wire = loopback.wires["a", "b"] = await Splice(mesh.listening[0]).start()
        wire.opened.clear()

        def flood() -> None:
            held: deque[socket.socket] = deque()
            while not ended.is_set():
                held.append(socket.create_connection(target, source_address=("127.0.0.2", 0)))
                calls[0] += 1
                if len(held) > 64:
                    held.popleft().close()
            for sock in held:
                sock.close()

        flooding = asyncio.create_task(asyncio.to_thread(flood))
        try:
            await until(lambda: calls[0] > 4 * timing.strangers)
            await loopback.one("b", timing=timing)
            await until(lambda: wire.joined == 1)
            before = calls[0]
            await until(lambda: calls[0] > before + 4 * timing.strangers)
            wire.opened.set()
            await _of(mesh, Connected)
            assert wire.joined == 1  # the first attempt was not turned away
        finally:
            ended.set()
            await flooding

    play(work)


def test_memory_is_bounded_where_a_peer_is_frozen(play: Play) -> None:
    """SIGSTOP of the peer's gate: senders wait, the connection counts as dead, and after SIGCONT nothing is lost."""

    async def work(loopback: Loopback) -> None:
        timing = Timing(first=0.02, most=0.2, ping=0.2, silent=1.0)
        await _two(loopback, timing=timing)
        a, b = await _begun(loopback)
        mesh, gate = loopback.meshes["a"], loopback.meshes["b"].gate_pid
        os.kill(gate, signal.SIGSTOP)
        before = _resident(mesh.gate_pid)

        async def write() -> None:
            for i in range(64):
                await a.send(_message(i))

        writer = asyncio.create_task(write())
        down = await _of(mesh, Disconnected)
        assert "nothing came" in down.why
        assert not writer.done()
        assert _resident(mesh.gate_pid) - before < 16 * MB
        os.kill(gate, signal.SIGCONT)
        for i in range(64):
            assert (await b.receive())[0].meta["i"] == i
        await writer
        assert (await _of(mesh, Connected)).resumed

    play(work)


def test_connections_are_replaced_before_they_age_and_nobody_notices(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        await _two(loopback, timing=Timing(first=0.02, most=0.2, volume=4 * MB))
        a, b = await _begun(loopback)

        async def write(end: Channel) -> None:
            for i in range(30):
                await end.send(_message(i))

        async def read(end: Channel) -> None:
            for i in range(30):
                assert (await end.receive())[0].meta["i"] == i
                await asyncio.sleep(0.02)

        await asyncio.gather(write(a), read(b), write(b), read(a))
        mesh = loopback.meshes["b"]
        await until(lambda: mesh.link_states()["a"].connections >= 3)
        for mesh in loopback.meshes.values():
            await mesh.send_note(mesh.peers[0], b"last")
        for mesh in loopback.meshes.values():
            while not isinstance(event := await mesh.next_event(), NoteReceived):
                assert isinstance(event, Connected)
                assert event.resumed

    play(work)


def test_the_reason_of_an_abort_passes_bulk(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        await _two(loopback)
        a, b = await _begun(loopback)
        await a.send(_message(0, 8 * MB))
        task = asyncio.create_task(a.send(_message(1)))
        await asyncio.sleep(0)
        await loopback.meshes["a"].abort_job("the table changed")
        with pytest.raises(ProtocolError, match="'a' ended the job: the table changed"):
            await task
        assert await _of(loopback.meshes["b"], JobAborted) == JobAborted("a", "the table changed")
        with pytest.raises(PeerEnded, match="'a' ended the job for all: the table changed"):
            await b.receive()
        with pytest.raises(ProtocolError, match="ended the job"):
            loopback.meshes["a"].begin_view(bytes(15) + b"z")

    play(work)


def test_a_party_that_closes_leaves_after_all_of_it_arrived(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        await _two(loopback)
        a, b = await _begun(loopback)
        for i in range(4):
            await a.send(_message(i, 200_000))
        closing = asyncio.create_task(loopback.meshes["a"].close())
        for i in range(4):
            assert (await b.receive())[0].meta["i"] == i
        await closing
        with pytest.raises(PeerEnded):
            await b.receive()
        assert await _of(loopback.meshes["b"], PeerLeft) == PeerLeft("a")
        await loopback.meshes["b"].close()

    play(work)


def test_a_certificate_that_is_revoked_in_mid_job_ends_the_connection_by_name(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        world = loopback.world
        ca = world.authority()
        own = {name: world.issued(ca, name) for name in "ab"}
        timing = Timing(first=0.02, most=0.2, reload=0.2)
        for name, peer in ("ab", "ba"):
            loopback.meshes[name] = await NetworkMesh.start(
                own[name],
                PeerBook(name, {peer: Authority.from_files(ca.file, ca.crl)}, agreement=AGREEMENT),
                agreement=AGREEMENT,
                incarnation=Incarnation.start_after(0),
                listen=[LOCAL] if name == "a" else [],
                routes={} if name == "a" else {"a": Route(loopback.meshes["a"].listening[0])},
                timing=timing,
            )
        for mesh in loopback.meshes.values():
            await _of(mesh, Connected)
        ca.revoke(own["b"].certificate)
        assert (await _of(loopback.meshes["a"], ConnectionRefused)).code == "revoked"
        refused = await _of(loopback.meshes["b"], ConnectionRefused)
        assert (refused.peer, refused.code) == ("a", "revoked")
        assert "the peer refuses" in refused.words

    play(work)


def test_a_new_certificate_takes_over_in_mid_job(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        world, signer = loopback.world, PrivateKey.generate()
        await loopback.start("a", limits=SMALL)
        loopback.meshes.pop("a").kill_gate()
        loopback.identities["b"] = world.own("b")
        loopback.book = lambda me: PeerBook(
            me, loopback.pins(me), agreement=AGREEMENT, signers={"b": signer.public_key} if me == "a" else {}
        )
        for name in "ab":
            await loopback.one(name)
        for mesh in loopback.meshes.values():
            await _of(mesh, Connected)
        a, b = await _begun(loopback)
        new = world.own("b", file="b.1")
        endorsement = Endorsement("b", 1, AGREEMENT, new.certificate).to_signed_bytes(signer)
        writer = asyncio.create_task(a.send(_message(1, 8 * MB)))
        await loopback.meshes["b"].send_endorsement(endorsement)
        loopback.meshes["b"].renew_certificate()
        assert await _of(loopback.meshes["a"], CertificateReplaced) == CertificateReplaced("b", new.fingerprint)
        assert (await b.receive())[0].what == "m1"
        await writer
        while not (up := await _of(loopback.meshes["a"], Connected)).resumed:
            pass
        assert up.peer == "b"
        await b.send(_message(2))
        assert (await a.receive())[0].what == "m2"

    play(work)


def test_an_endorsement_reaches_a_peer_whose_connection_ends_meanwhile(play: Play) -> None:
    """Both rotate at once: each ends the connection that the other's endorsement may travel over."""

    async def work(loopback: Loopback) -> None:
        world, signers = loopback.world, {name: PrivateKey.generate() for name in "ab"}
        await loopback.start("ab", limits=SMALL)
        for name in "ab":
            loopback.meshes.pop(name).kill_gate()
            loopback.identities[name] = world.own(name)
        loopback.book = lambda me: PeerBook(
            me,
            loopback.pins(me),
            agreement=AGREEMENT,
            signers={name: one.public_key for name, one in signers.items() if name != me},
        )
        new = {name: world.own(name, file=f"{name}.1") for name in "ab"}
        b = await loopback.one("b")
        endorsements = {
            name: Endorsement(name, 1, AGREEMENT, new[name].certificate).to_signed_bytes(signers[name]) for name in "ab"
        }
        told = asyncio.create_task(b.send_endorsement(endorsements["b"]))
        await asyncio.sleep(0.3)
        assert not told.done()  # nobody is there
        a = await loopback.one("a")
        await asyncio.gather(told, a.send_endorsement(endorsements["a"]))
        for mesh in (a, b):
            mesh.renew_certificate()
        assert await _of(a, CertificateReplaced) == CertificateReplaced("b", new["b"].fingerprint)
        assert await _of(b, CertificateReplaced) == CertificateReplaced("a", new["a"].fingerprint)
        for mesh in (a, b):
            while not (await _of(mesh, Connected)).resumed:
                pass
        ours, theirs = await _begun(loopback)
        await ours.send(_message(2))
        assert (await theirs.receive())[0].what == "m2"

    play(work)


def test_an_endorsement_that_cannot_be_stored_ends_the_process(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peer does not show the certificate meanwhile, and gives the endorsement to the party's next start."""

    def fail(self: PeerBook, payload: bytes, *, sender: str = "") -> Endorsement:
        raise DiskFull(errno.ENOSPC, "No space left on device", "endorsements.json")

    async def work(loopback: Loopback) -> None:
        await loopback.start("ab", limits=SMALL)
        a, b = loopback.meshes["a"], loopback.meshes["b"]
        monkeypatch.setattr(PeerBook, "accept_endorsement", fail)
        told = asyncio.create_task(b.send_endorsement(b"signed"))
        with pytest.raises(MachineFault, match="could not be stored"):
            await asyncio.wait_for(_of(a, CertificateReplaced), 10.0)
        assert not told.done()
        told.cancel()

    play(work)


def test_parties_of_other_agreements_are_refused_on_both_sides(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        loopback.identities = {name: loopback.world.own(name) for name in "ab"}
        first = await loopback.one("a")
        second = await NetworkMesh.start(
            loopback.identities["b"],
            loopback.book("b"),
            agreement=bytes(32),
            incarnation=Incarnation.start_after(0),
            routes={"a": Route(first.listening[0])},
            timing=QUICK,
        )
        loopback.meshes["b"] = second
        for mesh, peer in ((first, "b"), (second, "a")):
            event = await _of(mesh, ConnectionRefused)
            assert (event.peer, event.code) == (peer, "other-agreement")

    play(work)


def test_programs_that_wait_for_each_other_for_ever_are_told_both_steps(play: Play) -> None:
    limits = SessionLimits(part=64 << 10, window=128 << 10, max_window=256 << 10, message=1 << 27, patience=2)

    async def work(loopback: Loopback) -> None:
        await _two(loopback, limits=limits)

        async def write(name: str, end: Channel) -> None:
            try:
                while True:
                    await end.send(_message(0, 50_000))
            except ProtocolError as error:  # as a party does: so the other one learns of it, told itself or not
                await loopback.meshes[name].abort_job(str(error))
                raise

        ends = await _begun(loopback)
        found = await asyncio.gather(*map(write, "ab", ends), return_exceptions=True)
        assert all("waits for room for 'm0'" in str(error) and "'m0', neither reads" in str(error) for error in found)
        assert any("ended the job" not in str(error) for error in found)

    play(work)


def test_what_cannot_be_used_is_said_at_the_start(play: Play) -> None:
    async def work(loopback: Loopback) -> None:
        loopback.identities = {name: loopback.world.own(name) for name in "ab"}
        with pytest.raises(InputError, match=r"cannot listen at 192\.0\.2\.1:0: "):
            await NetworkMesh.start(
                loopback.identities["a"],
                loopback.book("a"),
                agreement=AGREEMENT,
                incarnation=Incarnation.start_after(0),
                listen=[LOCAL, Address("192.0.2.1", 0)],  # TEST-NET-1, RFC 5737: no machine has it,
            )
        with pytest.raises(InputError, match="a route to c"):
            await NetworkMesh.start(
                loopback.identities["a"],
                loopback.book("a"),
                agreement=AGREEMENT,
                incarnation=Incarnation.start_after(0),
                routes={"c": Route(LOCAL)},
            )

    play(work)


def test_who_computes_is_told_from_who_hangs() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()\nwhile True: pass"], stdin=subprocess.PIPE)
    try:
        watch = ProgramWatch(child.pid)
        time.sleep(1.0)  # what it takes to start is no computation of interest
        watch.sample(waits=False)
        before = watch.worked
        watch._seen -= 10.0
        watch.sample(waits=False)
        assert watch.worked == before, "it waits for a line, and takes no time"
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        end = time.monotonic() + PATIENCE
        while watch.worked == before and time.monotonic() < end:
            time.sleep(0.2)
            watch.sample(waits=False)
        assert watch.worked > before
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(0.1)
        watch.sample(waits=False)
        stopped = watch.worked
        time.sleep(0.3)
        watch.sample(waits=False)
        assert watch.worked == stopped
    finally:
        child.kill()
        child.communicate()
