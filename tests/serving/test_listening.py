"""The socket that questions come in by."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from securevfl_net.identity.making import Key, self_signed

from securevfl.agreement import Address
from securevfl.serving import listening
from securevfl.serving.listening import _bind_socket, _load_renewed, _tls_context
from securevfl.serving.settings import read_serving_file


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """An answer goes out in two segments; without TCP_NODELAY the second one waits 40 ms."""
    bound = _bind_socket(Address.parse("127.0.0.1:0"))
    with bound, socket.create_connection(bound.getsockname()), bound.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_renewed_certificate_is_loaded_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_RENEWED", 0.02)
    (tmp_path / "serving.toml").write_text('[http]\nlisten = "127.0.0.1:0"\ncertificate = "a.crt"\nkey = "a.key"\n')

    def renew() -> bytes:
        key = Key.generate()
        made = self_signed("bank", key, datetime.now(UTC))
        for name, content in (("a.key", key.pem), ("a.crt", made.pem)):
            (tmp_path / f"{name}.new").write_bytes(content)
            (tmp_path / f"{name}.new").replace(tmp_path / name)
        return made.der

    async def show(port: int) -> bytes:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return shown

    async def work() -> None:
        first = renew()
        file = read_serving_file(tmp_path / "serving.toml")
        tls = _tls_context(file)
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        renewing = asyncio.create_task(_load_renewed(file, tls))
        async with server:
            assert await show(port) == first
            (tmp_path / "a.key").write_bytes(b"half a file")
            await asyncio.sleep(0.1)
            assert await show(port) == first
            second = renew()
            while await show(port) != second:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.02)
        renewing.cancel()

    asyncio.run(asyncio.wait_for(work(), 60))
