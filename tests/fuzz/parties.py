"""What parties, proxies and relays say beside the session: verdicts, endorsements, signs of life, reports."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
from net.session.ends import AGREEMENT, incarnation
from securevfl_net.dialers import Address, Direct, Proxy
from securevfl_net.gate.beats import read_beat
from securevfl_net.identity.certificate import Certificate
from securevfl_net.identity.endorsement import Endorsement
from securevfl_net.identity.handshake import Handshake
from securevfl_net.identity.making import Key, self_signed

from securevfl.errors import WireError
from securevfl.party.reports import CheckpointKey, Ready, Report, decode_note, encode_note

__all__ = ["beats", "endorsements", "proxies", "reports", "verdicts"]

Made = tuple[list[bytes], Callable[[bytes], object]]
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def beats() -> Made:
    """A peer's sign of life, as a party's program reads it."""

    def decode(data: bytes) -> object:
        found = read_beat(data)
        if found is None:
            raise WireError("no sign of life")
        if not 0 <= found[0].worked < float("inf") or not (found[0].awaits + found[0].step).isprintable():
            raise AssertionError(found)
        return found

    said = msgspec.msgpack.encode((9, 4, 5, "shop", "cut/forward", b""))
    return [struct.pack("<fI", 1.5, 20), struct.pack("<fI", 0.0, 7) + said], decode


def reports() -> Made:
    """Notes between programs, while the parties gather."""
    report = Report(
        incarnation=str(incarnation(3, "bank")),
        parks=1,
        kept=(CheckpointKey(1, 0, 1, "ab"), CheckpointKey(2, 5, 1, "cd")),
        agreed=1,
        begun=1,
        alignment="00ff",
        approval=b"signature",
        words=(("shop", "ab"),),
    )
    return [encode_note(report), encode_note(Ready(bytes(16)))], lambda data: decode_note("shop", data)


class _Verifier:
    """A key under which every signature is right."""

    def verify(self, kind: str, content: bytes, signature: str) -> None:
        if not kind or not content or len(signature) != 128:
            raise AssertionError(signature)


def endorsements() -> Made:
    """The endorsement of a new certificate, from the network."""
    der = self_signed("shop", Key.generate(), _NOW).der
    content = Endorsement("shop", 2, AGREEMENT, Certificate.from_der(der))._signed_content() + bytes(64)

    def decode(data: bytes) -> object:
        found = Endorsement.parse_payload(data)
        Endorsement.check_payload(data, _Verifier())
        return found

    return [content], decode


def verdicts() -> Made:
    """The peer's verdict, right after TLS."""

    def decode(data: bytes) -> object:
        shake = object.__new__(Handshake)
        shake._tls = io.BytesIO(data)  # type: ignore[assignment]
        shake._book = SimpleNamespace(now=lambda: _NOW)  # type: ignore[assignment]
        shake._expected = "shop"
        hearing = shake._receive_verdict()
        try:
            next(hearing)
        except StopIteration as found:
            if found.value[0] is not None and not found.value[0].words.isprintable():
                raise AssertionError(found.value[0].words) from None
            return found.value
        raise AssertionError("it waits though all bytes are there")

    ready = struct.pack(Handshake._receive_verdict.__globals__["_HEAD"].format, 1, 1_750_000_000_000)
    refused = struct.pack(Handshake._receive_verdict.__globals__["_HEAD"].format, 2, 1_750_000_000_000)
    return [ready, refused + b"\x07revoked\x05words"], decode


def proxies() -> Made:
    """A proxy's answer to CONNECT."""
    proxy = Proxy(Direct(Address("proxy.example", 3128)), Address("shop.example", 4433))
    good = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"

    def decode(data: bytes) -> object:
        proxy._check_answer(data)
        return data

    return [good], decode
