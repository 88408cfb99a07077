"""The relay pairs two parties, understands nothing, bounds everything, and survives whatever is thrown at it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from securevfl_net.identity import Accepted, PeerBook, Refusal
from securevfl_net.networks import network_of
from securevfl_net.relay import Allowance, Limits, Side, Tokens, read_rendezvous
from securevfl_net.relay.introduction import HELLO, NONCE, build_introduction, key_of
from support.identity_parties import Side as End
from support.identity_parties import World, pinned
from support.relays import LIMIT, MEETING, OTHER_TOKEN, TOKEN, relay

from securevfl.errors import InputError


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def _pair(running, **more):  # type: ignore[no-untyped-def]
    """Both ends of a connection through a relay, the TLS server's first."""
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(running.dialer(side, **more).dial, LIMIT) for side in Side]
        return [end.result(LIMIT) for end in ends]


def _exactly(sock: socket.socket, count: int) -> bytes:
    sock.settimeout(LIMIT)
    found = b""
    while len(found) < count and (more := sock.recv(count - len(found))):
        found += more
    return found


@pytest.mark.parametrize("first", list(Side))
def test_who_is_tls_server_does_not_depend_on_who_comes_first(tmp_path: Path, first: Side) -> None:
    world = World(tmp_path)
    bank, shop = world.own("bank"), world.own("shop")
    ends = {
        Side.SERVER: End(bank, PeerBook("bank", {"shop": pinned(shop)}), "shop"),
        Side.CLIENT: End(shop, PeerBook("shop", {"bank": pinned(bank)}), "bank"),
    }
    with relay() as running, ThreadPoolExecutor(2) as pool:

        def come(side: Side) -> Accepted | Refusal:
            sock = running.dialer(side).dial(LIMIT)
            return ends[side].open(sock, server=side is Side.SERVER)

        early = pool.submit(come, first)
        _until(lambda: running.server._waiting)
        late = pool.submit(come, Side(1 - first))
        found = {first: early.result(LIMIT), Side(1 - first): late.result(LIMIT)}
    assert isinstance(found[Side.SERVER], Accepted), found
    assert isinstance(found[Side.CLIENT], Accepted), found
    assert (found[Side.SERVER].party, found[Side.CLIENT].party) == ("shop", "bank")


def test_bytes_arrive_as_they_were_sent_both_ways_and_nothing_is_logged_of_them(tmp_path: Path) -> None:
    payload = [os.urandom(3 << 20), os.urandom(1 << 20)]
    before = sorted(tmp_path.iterdir())
    with relay() as running:
        ends = _pair(running)
        senders = [threading.Thread(target=end.sendall, args=(data,)) for end, data in zip(ends, payload, strict=True)]
        for sender in senders:
            sender.start()
        got = [_exactly(ends[1], len(payload[0])), _exactly(ends[0], len(payload[1]))]
        for sender in senders:
            sender.join(LIMIT)
        assert got == payload
        ends[0].close()
        assert _exactly(ends[1], 1) == b""
        ends[1].close()
        _until(lambda: running.log[-1]["event"] == "ended")
        assert (
            running.server.allowance.connections == 0
            or _until(lambda: not running.server.allowance.connections) is None
        )
        log = repr(running.log)
    assert sum(running.log[-1]["bytes"]) == 4 << 20  # type: ignore[arg-type]
    assert MEETING.hex() not in log
    assert TOKEN.hex() not in log
    assert not any(data[:8].hex() in log for data in payload)
    assert sorted(tmp_path.iterdir()) == before


def test_one_end_may_finish_before_the_other() -> None:
    with relay() as running:
        server, client = _pair(running)
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert _exactly(server, 100) == b"question"
        server.sendall(b"answer")
        server.close()
        assert _exactly(client, 100) == b"answer"
        client.close()


def test_a_slow_reader_holds_up_its_sender_and_the_relay_keeps_one_buffer() -> None:
    with relay() as running:
        server, client = _pair(running)
        client.setblocking(False)
        # What is under way lies in the buffers of four sockets of the kernel; the relay itself holds 64 KiB.
        buffers = sum(
            end.getsockopt(socket.SOL_SOCKET, option)
            for end in (client, server)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
        )
        most = 4 * buffers + (16 << 20)
        sent, quiet = 0, 0
        while quiet < 20 and sent < most:  # nobody reads: until for a while nothing more is taken
            try:
                sent += client.send(bytes(1 << 16))
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.01)
        assert sent < most
        assert running.server.allowance._bytes["one"][1] <= sent
        got = 0
        while got < sent:
            got += len(_exactly(server, min(1 << 16, sent - got)))
        client.close()
        server.close()


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", os.urandom(5000), HELLO[:4], HELLO, HELLO + bytes(81)],
    ids=["nothing", "http", "tls", "noise", "half a hello", "hello alone", "wrong proof"],
)
def test_whoever_is_no_party_is_dropped_and_the_relay_goes_on(said: bytes) -> None:
    with relay(introduction=0.3) as running:
        with socket.create_connection((running.address.host, running.address.port), timeout=LIMIT) as scan:
            scan.sendall(said)
            answer = b""
            try:
                while more := scan.recv(100):
                    answer += more
            except ConnectionError:
                pass
        assert len(answer) in ({NONCE, NONCE + 1} if said.startswith(HELLO) else {0})
        for end in _pair(running):
            end.close()


def test_two_hundred_scans_and_garbage_leave_nothing_behind() -> None:
    with relay(attempts=10_000, introduction=0.3) as running:
        for number in range(200):
            scan = socket.create_connection((running.address.host, running.address.port), timeout=LIMIT)
            if number % 2:
                scan.sendall(os.urandom(number))
            if number % 3 == 0:
                scan.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # ends with a reset
            scan.close()
        _until(lambda: not running.server.allowance.connections)
        assert not running.server._tasks
        assert len(running.log) < 20  # a flood of connections is none of lines
        for end in _pair(running):
            end.close()


def test_an_unknown_token_is_told_and_a_nonce_heard_before_is_useless() -> None:
    with relay() as running:
        with pytest.raises(Refusal, match="unknown token or wrong proof") as found:
            running.dialer(Side.SERVER, token=b"x" * 32).dial(LIMIT)
        assert found.value.code == "relay"
        heard = build_introduction(TOKEN, bytes(NONCE), Side.SERVER, MEETING)  # with another nonce: a replay
        with socket.create_connection((running.address.host, running.address.port), timeout=LIMIT) as sock:
            sock.sendall(HELLO)
            assert len(_exactly(sock, NONCE)) == NONCE
            sock.sendall(heard)
            assert _exactly(sock, 10) == b"T"


def test_nobody_comes() -> None:
    with relay(waiting=0.05) as running:
        with pytest.raises(Refusal, match="the other party did not arrive in time"):
            running.dialer(Side.SERVER).dial(LIMIT)
        with pytest.raises(Refusal, match="did not arrive in time"):
            running.dialer(Side.CLIENT, meeting=bytes(range(1, 33))).dial(LIMIT)
        assert not running.server._waiting


def test_the_caller_gives_up_first() -> None:
    with relay() as running:
        with pytest.raises(Refusal, match=r"did not connect the other party within 0\.1\d* s|within 0\.\d+ s"):
            running.dialer(Side.SERVER).dial(0.1)
        _until(lambda: not running.server._waiting)
        _until(lambda: not running.server.allowance.connections)


def test_a_newer_connection_of_a_side_takes_the_place_of_the_one_that_waits() -> None:
    with relay() as running, ThreadPoolExecutor(3) as pool:
        old = pool.submit(running.dialer(Side.SERVER).dial, LIMIT)
        _until(lambda: running.server._waiting)
        (waiting,) = running.server._waiting.values()
        new = pool.submit(running.dialer(Side.SERVER).dial, LIMIT)
        _until(lambda: waiting not in running.server._waiting.values())
        with pytest.raises(Refusal, match="another connection of the same side replaced this one"):
            old.result(LIMIT)
        client = running.dialer(Side.CLIENT).dial(LIMIT)
        server = new.result(LIMIT)
        client.sendall(b"x")
        assert _exactly(server, 1) == b"x"
        client.close()
        server.close()


def test_the_same_meeting_again_ends_the_pair_of_before() -> None:
    """After a cut, both come again before the relay has noticed that the old connections are dead."""
    with relay() as running:
        before, after = _pair(running), _pair(running)
        assert [_exactly(end, 1) for end in before] == [b"", b""]
        after[0].sendall(b"x")
        assert _exactly(after[1], 1) == b"x"
        for end in (*before, *after):
            end.close()
        _until(lambda: not running.server._pairs)


def test_two_meetings_do_not_mix() -> None:
    with relay() as running:
        pairs = [_pair(running, meeting=bytes([n]) + MEETING[1:]) for n in (100, 101)]
        for number, (server, _) in enumerate(pairs):
            server.sendall(bytes([number]))
        assert [_exactly(client, 1) for _, client in pairs] == [b"\0", b"\1"]
        for pair in pairs:
            for end in pair:
                end.close()


def test_connections_of_a_customer_are_bounded_and_another_one_is_not_affected() -> None:
    with relay(per_customer=2) as running:
        ends = _pair(running)
        with pytest.raises(Refusal, match="has reached its limit of connections"):
            running.dialer(Side.SERVER, meeting=bytes(range(1, 33))).dial(LIMIT)
        others = _pair(running, meeting=bytes(range(1, 33)), token=OTHER_TOKEN)
        for end in (*ends, *others):
            end.close()


def test_bytes_of_a_day_are_bounded() -> None:
    with relay(bytes_a_day=100_000) as running:
        server, client = _pair(running)
        got: list[int] = []
        reader = threading.Thread(target=lambda: got.append(len(_all(server))))
        reader.start()
        try:
            for _ in range(100):
                client.sendall(bytes(10_000))
        except ConnectionError:
            pass
        reader.join(LIMIT)
        assert 0 < got[0] <= 100_000
        with pytest.raises(Refusal, match="daily bytes are used up"):
            running.dialer(Side.SERVER).dial(LIMIT)
        client.close()
        server.close()


def _all(sock: socket.socket) -> bytes:
    found = b""
    try:
        sock.settimeout(LIMIT)
        while more := sock.recv(1 << 16):
            found += more
    except ConnectionError:
        pass
    return found


def test_bytes_of_a_second_are_bounded() -> None:
    with relay(bytes_a_second=1 << 20) as running:
        server, client = _pair(running)
        began = time.monotonic()
        sender = threading.Thread(target=client.sendall, args=(bytes(1 << 19),))
        sender.start()
        assert len(_exactly(server, 1 << 19)) == 1 << 19
        assert time.monotonic() - began > 0.35  # half a second less the last buffer
        sender.join(LIMIT)
        client.close()
        server.close()


def test_a_pair_without_bytes_ends() -> None:
    with relay(idle=0.1) as running:
        for end in _pair(running):
            assert _exactly(end, 1) == b""
            end.close()


def test_allowances_count_addresses_customers_attempts_and_days() -> None:
    allowance = Allowance(Limits(connections=3, per_address=2, attempts=4, bytes_a_day=10))
    assert [allowance.admit_address("a", 0.0) for _ in range(3)] == [True, True, False]
    assert [allowance.admit_address("b", 0.0) for _ in range(2)] == [True, False]
    for address in ("a", "a", "b"):
        allowance.release_address(address)
    assert allowance.connections == 0
    assert [allowance.admit_address("a", 0.0), allowance.admit_address("a", 0.0)] == [
        True,
        False,
    ]  # the fourth attempt, the fifth
    assert allowance.admit_address("a", 20.0)
    assert allowance.count_bytes("c", 10, 0.0)
    assert not allowance.count_bytes("c", 1, 1.0)
    assert allowance.count_bytes("c", 1, 86_401.0)
    for number in range(5000):
        allowance._allow_attempt(str(number), 30.0)
    assert len(allowance._attempts) == 4096


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1%eth0") == "2001:db8::/64"
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "admits nobody"), ("one", "line 1"), ("# x\none 00", "line 2"), (f"a {'0' * 64}\na {'1' * 64}\n", "line 2")],
)
def test_a_file_of_tokens_that_is_none(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="other users could read"):
        Tokens.read(file)
    file.chmod(0o600)
    with pytest.raises(InputError, match=words):
        Tokens.read(file)
    file.write_text(f"one {key_of(TOKEN).hex()} # the bank\n", encoding="utf-8")
    assert Tokens.read(file)._by_name


@pytest.mark.parametrize("text", ["", "00" * 32, "zz" * 32, "01" * 31])
def test_a_meeting_id_is_random(text: str) -> None:
    with pytest.raises(InputError, match="32 random bytes"):
        read_rendezvous(text)
    assert read_rendezvous(MEETING.hex()) == MEETING
