"""How a party introduces itself to a relay, before the relay passes bytes on.

```
party  "SVFLRLY1"                                   8 bytes: whoever says anything else is dropped without an answer
relay  nonce                                       16 bytes
party  side, meeting id, key's name, proof          1 + 32 + 16 + 32 bytes
relay  one letter: W waiting for the other side, and then P paired; or why not
```

The proof is HMAC-SHA-256 (RFC 2104) with the token's digest over all that was said, so that a token is never sent and a
listener on the way cannot use what it hears. The meeting id says who belongs together: 256 random bits that both
parties know. Who is TLS server (`Side.SERVER`) was agreed; both dial out.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import time
from enum import IntEnum
from pathlib import Path

from securevfl_net.errors import InputError
from securevfl_net.identity import Code, Refusal
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
    "introduce",
    "introduction",
    "key_of",
    "name_of",
    "proof",
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
"""Bytes of what a party asks for."""
WAITING, PAIRED = b"W", b"P"
ANSWERS = {
    b"T": "it does not know this token, or the proof is wrong: ask its operator for one",
    b"L": "this address or token has as many connections as it may",
    b"Q": "the token's bytes of today are used up",
    b"N": "the other party did not come in time",
    b"X": "another connection of the same side took this one's place",
}
_AGAIN = {b"N", b"X"}
"""Answers that are no fault: the other party is not there yet, or this one called again."""


class Side(IntEnum):
    """Of a party in the TLS that runs through the relay."""

    SERVER = 0
    CLIENT = 1


def key_of(token: bytes) -> bytes:
    """The key that proves a token; what the relay keeps."""
    return hashlib.sha256(b"securevfl relay token\0" + token).digest()


def name_of(key: bytes) -> bytes:
    """Tells the relay which key it is, 16 bytes."""
    return hashlib.sha256(b"securevfl relay key\0" + key).digest()[:_NAME]


def proof(key: bytes, nonce: bytes, side: int, meeting: bytes) -> bytes:
    """That its maker holds the key, for this nonce alone."""
    return hmac.digest(key, b"securevfl relay 1\0" + nonce + bytes((side,)) + meeting, "sha256")


def introduction(token: bytes, nonce: bytes, side: Side, meeting: bytes) -> bytes:
    """What a party says after the nonce."""
    key = key_of(token)
    return bytes((side,)) + meeting + name_of(key) + proof(key, nonce, side, meeting)


def introduce(sock: socket.socket, meeting: bytes, token: bytes, side: Side, seconds: float) -> None:
    """Ask a relay for the other party, and wait for it. Afterwards `sock` reads and writes that party's bytes.

    Args:
        sock: connected to the relay, blocking.
        meeting: id that both parties know, 32 bytes.
        token: of this party at the relay, 32 bytes.
        side: of this party in TLS.
        seconds: to wait in all.

    Raises:
        Refusal: the relay does not want it or it is no relay (``relay``), or the other party did not come
            (``no-answer``).
    """
    end = time.monotonic() + seconds
    try:
        sock.settimeout(seconds)
        sock.sendall(HELLO)
        nonce = _exactly(sock, NONCE, end)
        sock.sendall(introduction(token, nonce, side, meeting))
        answer = _exactly(sock, 1, end)
        if answer == WAITING:
            answer = _exactly(sock, 1, end)
    except TimeoutError:
        raise Refusal(Code.NO_ANSWER, f"the relay has not brought the other party within {seconds:g} s") from None
    except OSError as error:
        raise Refusal(Code.RELAY, f"the relay hung up ({error.strerror or error}): is one at this address?") from None
    if answer != PAIRED:
        words = ANSWERS.get(answer, f"it answers {answer!r}, as no relay does: is one at this address?")
        raise Refusal(Code.NO_ANSWER if answer in _AGAIN else Code.RELAY, f"the relay refuses: {words}")


def _exactly(sock: socket.socket, count: int, end: float) -> bytes:
    found = b""
    while len(found) < count:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        more = sock.recv(count - len(found))
        if not more:
            raise ConnectionError("it says nothing more")
        found += more
    return found


def read_token(path: str | Path) -> bytes:
    """A token from a private file: 64 hexadecimal digits, as `securevfl relay --new-token` writes it.

    Raises:
        InputError: others can read the file, or it holds no token.
    """
    return _hex(Path(path), TOKEN, "a relay's token, 64 hexadecimal digits")


def read_rendezvous(text: str) -> bytes:
    """A meeting id from 64 hexadecimal digits.

    Raises:
        InputError: it is none, or one that nobody drew at random.
    """
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != ID or len(set(found)) < 8:
        raise InputError(f"{text[:80]!r} is no meeting id; 64 hexadecimal digits from 32 random bytes were expected")
    return found


def _hex(path: Path, count: int, what: str) -> bytes:
    text = read_private(path, 1024, what)
    try:
        found = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        found = b""
    if len(found) != count:
        raise InputError(f"{path} is not {what}")
    return found
