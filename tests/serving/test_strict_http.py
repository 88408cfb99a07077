"""Requests that two programs could read in two ways are refused, byte by byte, and their connection is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from support.servers import ready, served

from securevfl.run.model_parts import ModelPart
from securevfl.serving import Batching
from securevfl.serving.process_tasks import serve_http
from securevfl.serving.settings import read_serving_file
from securevfl.serving.strict_http import MOST_HEAD, Connections, find_head_fault

Parts = Mapping[str, ModelPart]

BODY = b'{"customer": "p0001"}'
HEAD = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
SMUGGLED = b"POST /v1/models/rollback HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"

REFUSED = {
    "both lengths": (HEAD + LENGTH + CHUNKED + b"\r\n" + CHUNKS + SMUGGLED, 400),
    "both lengths, the other order": (HEAD + CHUNKED + LENGTH + b"\r\n" + CHUNKS, 400),
    "a chunked body": (HEAD + CHUNKED + b"\r\n" + CHUNKS, 411),
    "a chunk of more than 64 bits": (HEAD + CHUNKED + b"\r\n" + b"f" * 17 + b"\r\n" + BODY, 411),
    "an unknown coding": (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS, 411),
    "space before the colon": (HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS, 411),
    "two lengths": (HEAD + LENGTH + b"Content-Length: 0\r\n\r\n" + BODY, 400),
    "one length twice": (HEAD + LENGTH + LENGTH + b"\r\n" + BODY, 400),
    "a list of lengths": (HEAD + b"Content-Length: 21, 21\r\n\r\n" + BODY, 400),
    "a length with a sign": (HEAD + b"Content-Length: +21\r\n\r\n" + BODY, 400),
    "a hexadecimal length": (HEAD + b"Content-Length: 0x15\r\n\r\n" + BODY, 400),
    "no length": (HEAD + b"Content-Length:\r\n\r\n" + BODY, 400),
    "a length of 20 digits": (HEAD + b"Content-Length: 18446744073709551637\r\n\r\n" + BODY, 400),
    "bare LF": ((HEAD + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY, 400),
    "one bare LF": (HEAD + b"X-A: b\nContent-Length: 21\r\n\r\n" + BODY, 400),
    "a bare LF at the end": (HEAD + LENGTH + b"\n" + BODY, 400),
    "a bare CR": (HEAD + b"X-A: b\rX-B: c\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "a folded header": (HEAD + b"X-A: b\r\n c\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "a folded length": (HEAD + b"Content-Length:\r\n\t21\r\n\r\n" + BODY, 400),
    "a fold in the first header": (b"POST /v1/score HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
    "a header without a colon": (HEAD + b"X-A\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "a NUL in a header": (HEAD + b"X-A: \x00\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "a long line": (HEAD + b"X-A: " + b"b" * 9000 + b"\r\n" + LENGTH + b"\r\n" + BODY, 431),
    "a line that does not end": (HEAD + b"X-A: " + b"b" * 9000, 431),
    "a long path": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    "many headers": (HEAD + b"X-A: b\r\n" * 80 + LENGTH + b"\r\n" + BODY, 431),
    "a long head": (HEAD + (b"X-A: " + b"b" * 4000 + b"\r\n") * 5 + LENGTH + b"\r\n" + BODY, 431),
    "two hosts": (HEAD + b"Host: evil\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "another version": (b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", 400),
    "the old version": (b"GET /healthz\r\n\r\n", 400),
    "a whole URL": (b"GET http://evil/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "two spaces": (b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "an empty first line": (b"\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "TLS where none is": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "after a good one": (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
        400,
    ),
}


@asynccontextmanager
async def listening(folder: Path, parts: Parts, limits: str = "") -> AsyncIterator[int]:
    """The port of a server over real sockets."""
    file = folder / "serving.toml"
    file.write_text(f'[http]\nlisten = "127.0.0.1:0"\nmetrics = "127.0.0.1:0"\n[limits]\n{limits}\n')
    async with (
        served(ready(folder / "state", parts), Batching(grace=0.05)) as running,
        serve_http(running.bank, read_serving_file(file)) as (url, _),
    ):
        yield int(url.rpartition(":")[2])


async def send_raw(port: int, data: bytes) -> bytes:
    """What the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def test_what_can_be_read_in_two_ways_is_refused(tmp_path: Path, plain: Parts) -> None:
    async def main() -> dict[str, bytes]:
        async with listening(tmp_path, plain) as port:
            found = {name: await send_raw(port, data) for name, (data, _) in REFUSED.items()}
            at_once = await asyncio.gather(*(send_raw(port, data) for data, _ in REFUSED.values()))
            assert all(at_once)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.post("/v1/score", json={"customer": "p0001"})).status_code in (200, 404)
            return found

    for name, answer in asyncio.run(main()).items():
        last = answer[answer.rindex(b"HTTP/1.1 ") :]
        assert int(last.split()[1]) == REFUSED[name][1], (name, answer)
        assert answer.count(b"HTTP/1.1 ") == (2 if name == "after a good one" else 1), (name, answer)


@pytest.mark.parametrize("name", ["both lengths", "a chunked body", "bare LF", "a folded header"])
def test_a_head_behind_a_body_that_nobody_waited_for_is_refused(tmp_path: Path, plain: Parts, name: str) -> None:
    """The answer to a request can leave before its body arrives; the next head then comes behind that body."""

    async def main() -> tuple[bytes, bytes]:
        async with listening(tmp_path, plain) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD.replace(b"application/json", b"text/plain") + LENGTH + b"\r\n")
            first = await reader.readuntil(b"}")
            writer.write(BODY + REFUSED[name][0])
            async with asyncio.timeout(10):
                rest = await reader.read()
            writer.close()
            return first, rest

    first, rest = asyncio.run(main())
    assert first.startswith(b"HTTP/1.1 415 ")
    assert int(rest.split()[1]) == REFUSED[name][1], rest
    assert rest.count(b"HTTP/1.1 ") == 1, rest


def test_heads_are_refused_however_they_are_cut(tmp_path: Path) -> None:
    """Each prefix of a good head is accepted so far; a bad one is refused no later than it is complete."""
    good = HEAD + LENGTH + b"\r\n" + BODY
    assert all(find_head_fault(good[:count]) is None for count in range(len(good) + 1))
    for name, (data, status) in REFUSED.items():
        if name in ("two hosts", "no host", "a header without a colon", "a NUL in a header", "after a good one"):
            continue  # h11 refuses those
        faults = [fault for count in range(len(data) + 1) if (fault := find_head_fault(data[:count])) is not None]
        assert faults, name
        assert faults[-1][0] == status, name
    assert find_head_fault(b"a" * (MOST_HEAD + 1)) is not None


def test_connections_of_an_address_are_bounded(tmp_path: Path, plain: Parts) -> None:
    async def main() -> None:
        async with listening(tmp_path, plain, "address_connections = 2") as port:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await asyncio.sleep(0.05)
            answer = await send_raw(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"retry-after: 1\r\n" in answer
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            closing = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            for _ in range(100):
                if (answer := await send_raw(port, closing)).startswith(b"HTTP/1.1 200 "):
                    break
                await asyncio.sleep(0.02)
            assert answer.startswith(b"HTTP/1.1 200 "), "a closed connection still counts"

    asyncio.run(main())


def test_all_connections_are_bounded() -> None:
    counted = Connections(most=3, each=2)
    assert [counted.open(address) for address in ("a", "a", "b")] == [None] * 3
    assert (counted.open("a") or (0,))[0] == 429
    assert (counted.open("c") or (0,))[0] == 503
    counted.close("a")
    assert counted.open("c") is None
    assert len(counted) == 3


@pytest.mark.parametrize("which", ["client", "address"])
def test_requests_a_second_are_bounded(tmp_path: Path, plain: Parts, which: str) -> None:
    async def main() -> None:
        async with (
            listening(tmp_path, plain, f"{which}_requests_per_second = 2") as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            found = [await client.get("/v1/status") for _ in range(8)]
        assert found[0].status_code == 200
        refused = [one for one in found if one.status_code == 429]
        assert refused  # not always the last: a machine that stands still for half a second fills the bucket again
        assert refused[0].json()["rule"] == which
        assert int(refused[0].headers["retry-after"]) >= 1

    asyncio.run(main())


def test_a_request_that_never_ends_is_closed(tmp_path: Path, plain: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.serving.strict_http._ARRIVES", 0.2)

    async def main() -> None:
        async with listening(tmp_path, plain) as port:
            for part in (b"", HEAD, HEAD + LENGTH + b"\r\n" + BODY[:5]):
                assert (await send_raw(port, part)).startswith(b"HTTP/1.1 408 "), part

    asyncio.run(main())


def test_addresses_of_one_network_share_its_connections() -> None:
    counts = Connections(most=9, each=2)
    assert [counts.open(f"2001:db8::{one}") is None for one in range(3)] == [True, True, False]
    assert counts.open("2001:db8:0:1::1") is None
    assert counts.open("192.0.2.1") is None
    counts.close("2001:db8::7")
    assert counts.open("2001:db8::8") is None
