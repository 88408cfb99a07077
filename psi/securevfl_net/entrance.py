"""How a caller names the party that it calls, so that many parties can share one port.

A caller that is the TLS client puts the name into its ClientHello (SNI, RFC 6066, section 3). One that is the TLS
server sends one byte, ``S``; if nobody there can tell whom it calls, it calls again and sends ``D`` and the name's 20
bytes before. The name is a digest of the agreement, which contains a random number, and of the party called: it shows a
wiretapper which connections belong together, and nothing else; and whoever does not know the agreement cannot name it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

__all__ = ["HELLO", "LONGEST", "NOT_HERE", "REVERSED", "Call", "knock_for", "name_entrance", "read_call"]

HELLO = 0x16
"""First byte of a TLS client's hello (RFC 8446, section 5.1)."""
REVERSED = b"S"
"""Sent by a caller that is the TLS server: the called side begins. Parties' roles in TLS follow from their names."""
NOT_HERE = b"\x15\x03\x03\x00\x02\x02\x70"
"""A TLS alert, ``unrecognized_name`` (RFC 8446, section 6.2): nobody of this name takes calls here now."""
LONGEST = 5 + (1 << 14)
"""Most bytes of a ClientHello, which is one record here."""
_KNOCK = b"D"
_NAME = 20
_SUFFIX = ".svfl"


@dataclass(frozen=True)
class Call:
    """The beginning of a connection.

    Attributes:
        name: whom it calls, see `name_entrance`; empty if it does not say.
        skip: bytes before those that the party called expects.
    """

    name: str
    skip: int = 0


def name_entrance(agreement: bytes, party: str) -> str:
    """The name of a party of an agreement, as a host's name.

    Args:
        agreement: SHA-256 of the proposal, 32 bytes.
        party: the one that is called.
    """
    return _digest(agreement, party).hex() + _SUFFIX


def knock_for(agreement: bytes, party: str) -> bytes:
    """What a caller that is the TLS server sends before ``S``, 21 bytes."""
    return _KNOCK + _digest(agreement, party)


def _digest(agreement: bytes, party: str) -> bytes:
    return hashlib.sha256(b"securevfl entrance\0" + agreement + party.encode()).digest()[:_NAME]


def read_call(seen: bytes) -> Call | None:
    """Read whom a caller calls from the first bytes of its connection; None if more bytes are needed.

    Raises:
        ValueError: no party begins like this. Its text is one of a few: a caller's bytes are not in it.
    """
    if not seen:
        return None
    if seen[:1] == REVERSED:
        return Call("")
    if seen[:1] == _KNOCK:
        whole = len(_KNOCK) + _NAME
        return Call(seen[1:whole].hex() + _SUFFIX, whole) if len(seen) >= whole else None
    if seen[0] != HELLO:
        raise ValueError("the bytes received are not TLS: is the caller a party?")
    if len(seen) < 5:
        return None
    length = int.from_bytes(seen[3:5])
    if seen[1] != 3 or not 4 < length <= LONGEST - 5:
        raise ValueError("its first TLS record is none")
    if len(seen) < 5 + length:
        return None
    return Call(_read_server_name(_Reader(seen[5 : 5 + length])))


class _Reader:
    """Bytes from which parts are taken.

    Args:
        data: all of them.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        if len(self.data) < count:
            raise ValueError("its ClientHello ends too early")
        found, self.data = self.data[:count], self.data[count:]
        return found

    def take_sized(self, width: int) -> _Reader:
        """Take a length of `width` bytes, and as many bytes."""
        return _Reader(self.take(int.from_bytes(self.take(width))))


def _read_server_name(record: _Reader) -> str:
    """The host's name in a ClientHello (RFC 8446, section 4.1.2); empty if there is none."""
    if record.take(1) != b"\x01":
        raise ValueError("its first TLS message is no ClientHello")
    hello = record.take_sized(3)
    hello.take(2 + 32)
    for width in (1, 2, 1):  # session, cipher suites, compression
        hello.take_sized(width)
    extensions = hello.take_sized(2)
    while extensions.data:
        kind, content = extensions.take(2), extensions.take_sized(2)
        if kind == b"\0\0":
            names = content.take_sized(2)
            if names.take(1) != b"\0" or not (name := names.take_sized(2).data).isascii():
                raise ValueError("the name in its ClientHello is no host's")
            return name.decode("ascii")
    return ""
