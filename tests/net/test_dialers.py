"""Ways to a connected socket: direct, through a proxy, at a relay; IPv4 and IPv6."""

from __future__ import annotations

import base64
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from securevfl_net.dialers import Address, Direct, Listen, Proxy, Relay
from securevfl_net.identity import Accepted, PeerBook, Refusal, RefusalCode
from securevfl_net.relay import Side
from support.identity_parties import Side as End
from support.identity_parties import World, pinned
from support.proxies import proxy
from support.relays import LIMIT, MEETING, TOKEN, relay

from securevfl.errors import InputError


def _here(sock: socket.socket) -> Address:
    host, port = sock.getsockname()[:2]
    return Address(host, port)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("bank.example:7443", "bank.example", 7443), ("[::1]:80", "::1", 80), ("10.0.0.1:1", "10.0.0.1", 1)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    found = Address.parse(text)
    assert (found.host, found.port, str(found)) == (host, port, text)


@pytest.mark.parametrize(
    "text", ["", "bank", "bank:", "::1:80", "bank:99999", "a b:1", "bank\r\nX: y:80", "[x]y:1", "bank:-1", "[\r\n]:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError, match=r"expected|possible"):
        Address.parse(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_direct(host: str) -> None:
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listeners = Listen(Address(host, 0)).open_sockets()
    except InputError:
        pytest.skip(f"no {host} here")
    try:
        port = {listener.getsockname()[1] for listener in listeners}
        assert len(port) == 1
        near = Direct(Address(host, port.pop())).dial(LIMIT)
        with near:
            assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert near.gettimeout() is None
    finally:
        for listener in listeners:
            listener.close()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = _here(listener)
    with pytest.raises(Refusal, match=f"nobody answers at {address} within 5 s .*refused") as found:
        Direct(address).dial(5)
    assert found.value.code == RefusalCode.NO_ANSWER
    with pytest.raises(Refusal, match=r"host 'nowhere\.invalid' is unknown"):
        Direct(Address("nowhere.invalid", 1)).dial(5)


def test_a_port_that_is_taken_and_a_host_of_another_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(InputError, match=f"cannot listen at {_here(listener)}"):
            Listen(_here(listener)).open_sockets()
        with pytest.raises(InputError, match=r"cannot listen at 192\.0\.2\.1:1"):
            Listen(Address("192.0.2.1", 1)).open_sockets()


def test_tls_through_a_proxy_with_a_password(tmp_path: Path) -> None:
    world = World(tmp_path)
    bank, shop = world.own("bank"), world.own("shop")
    secret = tmp_path / "proxy"
    secret.touch(mode=0o600)
    secret.write_text("user:pass:word\n", encoding="utf-8")
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, proxy(lambda _: None, seen) as where:
        target = _here(listener)
        dialer = Proxy(Direct(where), target, secret)
        with ThreadPoolExecutor(1) as pool:
            called = pool.submit(listener.accept)
            near = dialer.dial(LIMIT)
            far, _ = called.result(LIMIT)
            server = pool.submit(End(bank, PeerBook("bank", {"shop": pinned(shop)})).open, far, server=True)
            client = End(shop, PeerBook("shop", {"bank": pinned(bank)})).open(near, server=False)
            assert isinstance(client, Accepted), client
            assert isinstance(server.result(LIMIT), Accepted)
    head, *fields, _, _ = seen[0].split(b"\r\n")
    assert head == f"CONNECT {target} HTTP/1.1".encode()
    assert fields[0] == f"Host: {target}".encode()
    assert base64.b64decode(fields[1].removeprefix(b"Proxy-Authorization: Basic ")) == b"user:pass:word"


def test_a_relay_behind_a_proxy() -> None:
    with relay() as running, proxy(lambda _: None) as where, ThreadPoolExecutor(1) as pool:
        other = pool.submit(running.dialer(Side.SERVER).dial, LIMIT)
        near = Relay(Proxy(Direct(where), running.address), MEETING, TOKEN, Side.CLIENT).dial(LIMIT)
        far = other.result(LIMIT)
        near.sendall(b"through both")
        assert far.recv(100) == b"through both"
        near.close()
        far.close()


def test_bytes_right_behind_the_proxy_s_answer_are_the_tunnel_s() -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello from the peer"
    with (
        proxy(lambda _: said) as where,
        Proxy(Direct(where), Address("bank.example", 1)).dial(LIMIT) as near,
    ):
        assert near.recv(100) == b"hello from the peer"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
            "407 .* requires a user and password",
        ),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops", "502 Bad Gateway .* cannot reach the target"),
        (b"HTTP/1.0 403 \x1b[2JForbidden\r\n\r\n", r"403 \?\[2JForbidden .* does not allow"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://evil/\r\n\r\n", "302 Found .* ask its operator"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not an HTTP proxy"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "is not an HTTP proxy"),
        (b"HTTP/1.1\r\n\r\n", "is not an HTTP proxy"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70_000, "never ends"),
        (bytes(70_000), "is not an HTTP proxy"),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", "hung up"),
        (b"", "hung up"),
    ],
    ids=["407", "502", "403", "302", "ssh", "2000", "no status", "endless", "zeros", "half", "nothing"],
)
def test_a_proxy_that_refuses_or_is_none(said: bytes, words: str) -> None:
    with proxy(lambda _: said) as where, pytest.raises(Refusal, match=words) as found:
        Proxy(Direct(where), Address("bank.example", 7443)).dial(LIMIT)
    assert found.value.code == RefusalCode.PROXY


def test_a_proxy_that_is_silent_or_trickles_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        with pytest.raises(Refusal, match=r"opened no tunnel to bank\.example:1 within 0\.2 s"):
            Proxy(Direct(_here(listener)), Address("bank.example", 1)).dial(0.2)
        assert time.monotonic() - began < 20
        stop = threading.Event()

        def trickle() -> None:
            near, _ = listener.accept()
            with near:
                near, _ = listener.accept()
            with near:
                near.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not stop.wait(0.02):
                    try:
                        near.sendall(b"y")
                    except OSError:
                        return

        thread = threading.Thread(target=trickle)
        thread.start()
        with pytest.raises(Refusal, match="opened no tunnel"):
            Proxy(Direct(_here(listener)), Address("bank.example", 1)).dial(0.3)
        stop.set()
        thread.join(LIMIT)


@pytest.mark.parametrize("content", ["no colon", "user:pass\r\nX: y", "user:pass\nmore"])
def test_a_file_of_user_and_password_that_is_none(tmp_path: Path, content: str) -> None:
    secret = tmp_path / "proxy"
    secret.touch(mode=0o600)
    secret.write_text(content, encoding="utf-8", newline="")
    with pytest.raises(InputError, match="does not contain user:password"):
        Proxy(Direct(Address("127.0.0.1", 1)), Address("x", 1), secret).dial(1)
    secret.chmod(0o644)
    with pytest.raises(InputError, match="other users could read"):
        Proxy(Direct(Address("127.0.0.1", 1)), Address("x", 1), secret).dial(1)


def test_something_else_listens_where_a_relay_should() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            near, _ = listener.accept()
            with near:
                near.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
                near.recv(100)

        done = pool.submit(answer)
        with pytest.raises(Refusal, match=r"unlike any relay|hung up") as found:
            Relay(Direct(_here(listener)), MEETING, TOKEN, Side.CLIENT).dial(LIMIT)
        done.result(LIMIT)
    assert found.value.code == RefusalCode.RELAY
