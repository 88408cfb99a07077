"""The driver over real sockets: both ends in threads, peers that vanish, fall silent, talk nonsense or refuse."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from securevfl_psi.endpoint import Endpoint, Result
from securevfl_psi.errors import (
    ConnectionLost,
    DisagreementError,
    MalformedError,
    PeerRefused,
    PSIError,
    SmallIntersectionError,
)
from securevfl_psi.identifiers import IdRules
from securevfl_psi.terms import PROTOCOLS, Terms
from securevfl_psi.wire import HEADER_BYTES, FrameReader, FrameWriter, Kind
from securevfl_psi_cli import driver
from securevfl_psi_cli.byte_stream import Traffic
from securevfl_psi_cli.driver import run_endpoint

BANK, SHOP = ["ann", "bob", "eve", "mia"], ["eve", "zoe", "ann"]
Outcome = Result | BaseException


def _end(ids: list[str], name: str, **more: Any) -> Endpoint:
    peer, role = ("shop", "receiver") if name == "bank" else ("bank", "sender")
    given: dict[str, Any] = {"name": name, "peer": peer, "role": role, **more}
    if given.get("protocol") == "unsafe_salted_hash":
        given["salt"] = b"0123456789abcdef"
    return Endpoint(ids, Terms(**given))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def _both(
    bank: Endpoint, shop: Endpoint, pair: tuple[socket.socket, socket.socket], **more: Any
) -> tuple[Outcome, Outcome, Traffic | None, Traffic | None]:
    """Each end in its own thread until it ends; what each got."""
    outcomes: dict[int, Outcome] = {}
    traffic: dict[int, Traffic] = {}

    def run(number: int, end: Endpoint) -> None:
        try:
            traffic[number] = run_endpoint(end, pair[number], timeout=10, **more)
            outcomes[number] = end.result
        except PSIError as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate((bank, shop))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "the two ends wait for each other"
    return outcomes[0], outcomes[1], traffic.get(0), traffic.get(1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("learns", ["both", "receiver"])
def test_every_protocol_runs_over_a_socket(
    protocol: str, learns: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    terms = {"protocol": protocol, "learns": learns}
    bank, shop, one, other = _both(_end(BANK, "bank", **terms), _end(SHOP, "shop", **terms), pair)
    assert isinstance(bank, Result)
    assert isinstance(shop, Result)
    assert bank.count == 2
    if protocol != "cardinality":
        assert bank.rows is not None
        assert sorted(bank.rows.tolist()) == [0, 2]
    assert bank.verified == (protocol in ("dh", "ot", "unsafe_salted_hash"))
    assert shop.verified == (bank.verified and learns == "both")
    assert one is not None
    assert other is not None
    assert (one.sent, one.received) == (other.received, other.sent)


def test_buffers_smaller_than_a_frame_do_not_block_both(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_BUFFER", 1)  # the system rounds it up to a few kB
    seen: list[int] = []
    ids = [f"p{i}" for i in range(40_000)]
    bank, shop, one, _ = _both(_end(ids, "bank"), _end(ids[::-1], "shop"), pair, progress=lambda t: seen.append(t.sent))
    assert isinstance(bank, Result)
    assert isinstance(shop, Result)
    assert bank.count == shop.count == 40_000
    assert one is not None
    assert max(seen) >= one.sent > 40_000 * 32
    assert len(seen) > 10


def _raw(sock: socket.socket) -> bytes:
    """All that arrives until the other side stops."""
    sock.settimeout(5)
    parts = []
    with contextlib.suppress(TimeoutError):
        while part := sock.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def test_a_peer_that_hangs_up_before_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    bank, shop = _end(BANK, "bank"), _end(SHOP, "shop")
    pair[1].sendall(shop.next_frame() or b"")
    pair[1].shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost, match="'shop' hung up"):
        run_endpoint(bank, pair[0], timeout=5)


def test_a_peer_that_hangs_up_inside_a_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    hello = _end(SHOP, "shop").next_frame() or b""
    pair[1].sendall(hello[: HEADER_BYTES + 3])
    pair[1].shutdown(socket.SHUT_WR)
    with pytest.raises(MalformedError, match="in the middle of a frame"):
        run_endpoint(_end(BANK, "bank"), pair[0], timeout=5)


def test_a_connection_that_breaks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()  # a reset
        with one, pytest.raises(ConnectionLost):
            run_endpoint(_end(BANK, "bank"), one, timeout=5)


def test_a_silent_peer_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    started = time.monotonic()
    with pytest.raises(
        ConnectionLost, match=r"'shop' was silent for 0.3 s .fewer than 64 bytes moved.: raise --timeout"
    ):
        run_endpoint(_end(BANK, "bank"), pair[0], timeout=0.3)
    assert 0.25 < time.monotonic() - started < 5


def test_a_peer_that_drips_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    """A byte now and then kept a party waiting for as long as the peer liked."""
    hello = _end(SHOP, "shop").next_frame() or b""
    stop = threading.Event()

    def drip() -> None:
        for byte in hello[:60]:
            if stop.wait(0.05):
                return
            pair[1].sendall(bytes([byte]))

    thread = threading.Thread(target=drip, daemon=True)
    bank = _end(BANK, "bank")
    thread.start()
    started = time.monotonic()
    with pytest.raises(ConnectionLost, match="fewer than 64 bytes moved"):
        run_endpoint(bank, pair[0], timeout=0.4)
    stop.set()
    thread.join(5)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("part", ["hello", "set"])
def test_a_peer_that_drips_just_enough_has_a_deadline(part: str, pair: tuple[socket.socket, socket.socket]) -> None:
    """64 bytes within each timeout kept a party waiting for as long as the peer liked."""
    stop = threading.Event()

    def drip() -> None:
        shop = _end([f"p{i}" for i in range(1000)], "shop")
        pair[1].settimeout(5)
        shop.feed(pair[1].recv(1 << 16))
        hello, data = shop.next_frame() or b"", b"".join(iter(shop.next_frame, None))
        if part == "hello":  # of which 4096 bytes are announced
            data = hello[:12] + (4096).to_bytes(4, "big") + hello[16:] + bytes(4000)
        else:
            pair[1].sendall(hello)
        assert len(data) > 4000
        for start in range(0, len(data), 70):
            if stop.wait(0.1):
                return
            pair[1].sendall(data[start : start + 70])

    thread = threading.Thread(target=drip, daemon=True)
    started = time.monotonic()
    thread.start()
    match = "did not finish its hello" if part == "hello" else "did not end within 1 s, its overall deadline"
    with pytest.raises(ConnectionLost, match=match):
        run_endpoint(_end(BANK, "bank"), pair[0], timeout=0.5, deadline=1.0 if part == "set" else None)
    stop.set()
    thread.join(5)
    assert time.monotonic() - started < 5


def test_a_peer_that_never_reads_is_given_up(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_BUFFER", 1)
    ids = [f"p{i}" for i in range(20_000)]
    shop = _end(ids, "shop")
    pair[1].sendall(shop.next_frame() or b"")
    with pytest.raises(ConnectionLost, match="silent"):
        run_endpoint(_end(ids, "bank"), pair[0], timeout=0.4)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64), b"\x16\x03\x01\x02\x00" * 10])
def test_garbage_is_refused_and_the_peer_is_told(garbage: bytes, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(garbage)
    with pytest.raises(MalformedError, match="not a frame"):
        run_endpoint(_end(BANK, "bank"), pair[0], timeout=5)
    pair[0].shutdown(socket.SHUT_WR)
    frames = list(FrameReader().feed(_raw(pair[1])))
    assert [frame.kind for frame in frames] == [Kind.HELLO, Kind.REFUSED]
    assert frames[1].payload == b"malformed"


@pytest.mark.parametrize(
    ("bank", "shop", "error", "said"),
    [
        ({"min_intersection": 3}, {}, SmallIntersectionError, "its policy does not allow the result"),
        ({}, {"rules": IdRules(casefold=True)}, DisagreementError, "it runs under other terms"),
        ({"context": "a"}, {"context": "b"}, DisagreementError, "it runs under other terms"),
    ],
)
def test_a_refusal_reaches_the_peer_in_general_words(
    bank: dict[str, Any],
    shop: dict[str, Any],
    error: type[PSIError],
    said: str,
    pair: tuple[socket.socket, socket.socket],
) -> None:
    outcomes = _both(_end(BANK, "bank", **bank), _end(SHOP, "shop", **shop), pair)[:2]
    assert any(isinstance(outcome, error) for outcome in outcomes), outcomes
    refused = [outcome for outcome in outcomes if isinstance(outcome, PeerRefused)]
    if error is SmallIntersectionError:
        assert isinstance(outcomes[0], error)
        assert said in str(outcomes[1])
    for outcome in refused:
        assert said in str(outcome)
        assert not any(name in str(outcome) for name in {*BANK, *SHOP})


def test_a_refusal_without_a_known_reason(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(FrameWriter().write(Kind.REFUSED, b"\xff<script>"))
    with pytest.raises(PeerRefused, match="it gave no known reason"):
        run_endpoint(_end(BANK, "bank"), pair[0], timeout=5)
