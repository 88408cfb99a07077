"""The protocol by which a party introduces itself to a relay, before the relay forwards bytes.

``` party  "SVFLRLY1"                                   8 bytes: a connection that sends anything else is dropped
without an answer relay  nonce                                       16 bytes party  side, meeting id, key's name, proof
1 + 32 + 16 + 32 bytes relay  one letter: W waiting for the other side, and then P paired; or why not ```

The proof is HMAC-SHA-256 (RFC 2104) with the token's digest over the nonce, side and meeting id, so the token is never
sent and an eavesdropper cannot reuse the proof. The meeting id, 256 random bits shared by both parties, pairs two
connections. The parties agreed on the TLS server (`Side.SERVER`); both dial out.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import time
from enum import IntEnum
from pathlib import Path

from securevfl_net.errors import InputError
from securevfl_net.identity import Refusal, RefusalCode
from securevfl_net.identity.files import read_private

__all__ = [
    "ANSWERS",
    "ASKED",
    "HELLO",
    "ID",
    "NONCE",
    "PAIRED",
    "TOKEN",
    "WAITING",
    "Side",
    "build_introduction",
    "introduce",
    "key_of",
    "name_of",
    "prove_key",
    "read_rendezvous",
    "read_token",
]

HELLO = b"SVFLRLY1"
NONCE = 16
ID = 32
"""Bytes of a meeting id."""
TOKEN = 32
"""Bytes of a token."""
_NAME = 16
_PROOF = 32
ASKED = 1 + ID + _NAME + _PROOF
"""Bytes of a party's request."""
WAITING, PAIRED = b"W", b"P"
ANSWERS = {
    b"T": "unknown token or wrong proof: ask its operator for a token",
    b"L": "this address or token has reached its limit of connections",
    b"Q": "the token's daily bytes are used up",
    b"N": "the other party did not arrive in time",
    b"X": "another connection of the same side replaced this one",
}
_AGAIN = {b"N", b"X"}
"""Answers after which to try again: the other party has not arrived, or this party connected twice."""


class Side(IntEnum):
    """A party's side in the TLS connection through the relay."""

    SERVER = 0
    CLIENT = 1


def key_of(token: bytes) -> bytes:
    """Derive the key that proves a token; the relay stores only this key."""
    return hashlib.sha256(b"securevfl relay token\0" + token).digest()


def name_of(key: bytes) -> bytes:
    """Return the public name of a key, 16 bytes, by which the relay finds it."""
    return hashlib.sha256(b"securevfl relay key\0" + key).digest()[:_NAME]


def prove_key(key: bytes, nonce: bytes, side: int, meeting: bytes) -> bytes:
    """Prove possession of the key, for this nonce only."""
    return hmac.digest(key, b"securevfl relay 1\0" + nonce + bytes((side,)) + meeting, "sha256")


def build_introduction(token: bytes, nonce: bytes, side: Side, meeting: bytes) -> bytes:
    """Build a party's request, sent after the nonce."""
    key = key_of(token)
    return bytes((side,)) + meeting + name_of(key) + prove_key(key, nonce, side, meeting)


def introduce(sock: socket.socket, meeting: bytes, token: bytes, side: Side, seconds: float) -> None:
    """Ask a relay for the other party and wait for it. Afterwards `sock` is connected to that party.

    Args:
        sock: connected to the relay, blocking.
        meeting: the id shared by both parties, 32 bytes.
        token: this party's token at the relay, 32 bytes.
        side: this party's side in TLS.
        seconds: total time limit.

    Raises:
        Refusal: the relay refuses, or it is not a relay (``relay``); or the other party did not arrive (``no-answer``).
    """
    end = time.monotonic() + seconds
    try:
        sock.settimeout(seconds)
        sock.sendall(HELLO)
        nonce = _read_exactly(sock, NONCE, end)
        sock.sendall(build_introduction(token, nonce, side, meeting))
        answer = _read_exactly(sock, 1, end)
        if answer == WAITING:
            answer = _read_exactly(sock, 1, end)
    except TimeoutError:
        raise Refusal(
            RefusalCode.NO_ANSWER, f"the relay did not connect the other party within {seconds:g} s"
        ) from None
    except OSError as error:
        raise Refusal(
            RefusalCode.RELAY, f"the relay hung up ({error.strerror or error}): is this a relay's address?"
        ) from None
    if answer != PAIRED:
        words = ANSWERS.get(answer, f"it answers {answer!r}, unlike any relay: is this a relay's address?")
        raise Refusal(RefusalCode.NO_ANSWER if answer in _AGAIN else RefusalCode.RELAY, f"the relay refuses: {words}")


def _read_exactly(sock: socket.socket, count: int, end: float) -> bytes:
    found = b""
    while len(found) < count:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        more = sock.recv(count - len(found))
        if not more:
            raise ConnectionError("it closed the connection")
        found += more
    return found


def read_token(path: str | Path) -> bytes:
    """Read a token from a private file: 64 hexadecimal digits, as written by `securevfl relay --new-token`.

    Raises:
        InputError: other users can read the file, or it does not contain a token.
    """
    return _read_hex(Path(path), TOKEN, "a relay's token, 64 hexadecimal digits")


def read_rendezvous(text: str) -> bytes:
    """Parse a meeting id from 64 hexadecimal digits.

    Raises:
        InputError: it is not a meeting id, or is evidently not random.
    """
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != ID or len(set(found)) < 8:
        raise InputError(f"{text[:80]!r} is not a meeting id; expected 64 hexadecimal digits from 32 random bytes")
    return found


def _read_hex(path: Path, count: int, what: str) -> bytes:
    text = read_private(path, 1024, what)
    try:
        found = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        found = b""
    if len(found) != count:
        raise InputError(f"{path} is not {what}")
    return found
