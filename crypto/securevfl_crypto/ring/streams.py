"""Randomness that two parties share without sending it: AES-256 in counter mode under a key that only they know.

A share is hidden by a word of a stream. If the same word hides two secrets, their difference is visible to whoever sees
both. Hence two rules, which this module enforces: a stream gives each place once, and its key comes from a key exchange
that is as fresh as the process: a process that restarts from a checkpoint cannot know how far it had counted.
"""

from __future__ import annotations

import math
import os
import secrets
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from securevfl_crypto.errors import MalformedError, ReusedError
from securevfl_crypto.ring.base import COLUMNS
from securevfl_crypto.ring.paths import ring_loops

__all__ = ["Exchange", "Stream"]

_KEY = 32
_PIECE = 1 << 19
"""Octets of keystream at a time, which stay in the second cache; a multiple of `COLUMNS`."""
_ZEROS = memoryview(bytes(_PIECE))
_WORD, _OCTET = np.dtype("<u8"), np.dtype(np.uint8)
_PURPOSE = b"securevfl ring stream 1"


_forks = 0
"""How many forks lie between the first process and this one."""


def _forget_after_fork() -> None:
    global _forks  # noqa: PLW0603 - a fact of the process
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def _allocate(shape: int | tuple[int, ...], kind: np.dtype[Any], beyond: int = 0) -> np.ndarray:
    sizes = (shape,) if isinstance(shape, int) else shape
    if min(sizes, default=0) < 0:
        raise MalformedError(f"a size of {min(sizes)}; sizes are not negative")
    return np.empty(sizes if not beyond else sizes[0] + beyond, dtype=kind)


def _keystream_rows(octets: float) -> int:
    """Rows of keystream that suffice for this many octets, on average, with six standard deviations to spare."""
    return math.ceil((octets + 6 * math.sqrt(octets) + 8) / COLUMNS)


class Stream:
    """Uniform words, octets and residues under one key. Both holders of the key get the same from the same place.

    Place `use` is the keystream of AES-256-CTR (NIST SP 800-38A) from the counter block ``use · 2^64`` on, so places
    never overlap. All methods draw from the same places. Callers that count `use` upwards cost no memory; others cost
    an entry of a set for each place that is out of turn. Not for several threads.

    Args:
        key: 32 bytes, from `Exchange.shared_stream`, or known to one party only (`Stream.with_fresh_key`). It must
            never come from a seed of the job.

    Raises:
        MalformedError: the key is not 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != _KEY:
            size = f"{len(key)} bytes" if isinstance(key, bytes) else f"a {type(key).__name__}"
            raise MalformedError(f"the key of a stream is {size}; {_KEY} bytes are needed")
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self._scratch = np.empty(_PIECE, dtype=np.uint8)
        self._forks = _forks
        self._below = 0  # every place below was used,
        self._beyond: set[int] = set()  # and these, above

    @classmethod
    def with_fresh_key(cls) -> Stream:
        """A stream under a fresh key of the operating system that nobody else has."""
        return cls(secrets.token_bytes(_KEY))

    def draw_words(self, use: int, shape: int | tuple[int, ...]) -> np.ndarray:
        """Uniform words, uint64 of this shape.

        Args:
            use: the place, 0 to 2^64 − 1.
            shape: of the result.

        Raises:
            ReusedError: the place was used before, or the stream was copied into another process by a fork.
            MalformedError: the place or the shape is out of range.
        """
        out = _allocate(shape, _WORD)
        self._begin_use(use)
        self._draw_keystream(out)
        return out.astype(np.uint64, copy=False)

    def draw_octets(self, use: int, count: int) -> np.ndarray:
        """`count` uniform octets, uint8. Arguments and errors as for `draw_words`."""
        out = _allocate(count, _OCTET)
        self._begin_use(use)
        self._draw_keystream(out)
        return out

    def draw_residues(self, use: int, count: int, modulus: int) -> np.ndarray:
        """`count` numbers uniform from 0 to modulus − 1, uint8, exactly uniform: octets that would bias are dropped.

        Octets from the largest multiple of the modulus on are dropped, the others reduced. How many are dropped says
        nothing about those that are kept.

        Args:
            use: the place.
            count: of the numbers.
            modulus: 2 to 256.

        Raises:
            ReusedError, MalformedError: as for `draw_words`; or the modulus is out of range.
        """
        if not 2 <= modulus <= 256:
            raise MalformedError(f"residues modulo {modulus}; 2 to 256 are possible")
        share = (256 - 256 % modulus) / 256
        size = min(_PIECE, _keystream_rows(max(0, count) / share) * COLUMNS)
        out = _allocate(count, _OCTET, beyond=size)
        self._begin_use(use)
        path = ring_loops()
        found = 0
        while found < count:
            raw = self._scratch[: min(size, _keystream_rows((count - found) / share) * COLUMNS)]
            self._fill_piece(raw.data)
            found += path.residues(raw, modulus, out[found:])
        return out[:count]

    def _begin_use(self, use: int) -> None:
        if not isinstance(use, int) or not 0 <= use < 1 << 64:
            raise MalformedError(f"place {use!r} of a stream; 0 to 2^64 − 1 are possible")
        if self._forks != _forks:
            raise ReusedError("a stream was copied by a fork; each process exchanges keys of its own")
        if use < self._below or use in self._beyond:
            raise ReusedError(
                f"place {use} of a stream was used before; twice the same mask shows the difference of two secrets"
            )
        self._beyond.add(use)
        while self._below in self._beyond:
            self._beyond.remove(self._below)
            self._below += 1
        self._cipher.reset_nonce((use << 64).to_bytes(16, "big"))

    def _draw_keystream(self, out: np.ndarray) -> None:
        """Fill an array with the keystream that follows, in pieces that stay in the cache."""
        if out.size:
            octets = out.data.cast("B")
            for start in range(0, len(octets), _PIECE):
                self._fill_piece(octets[start : start + _PIECE])

    def _fill_piece(self, piece: memoryview) -> None:
        self._cipher.update_into(_ZEROS[: len(piece)], piece)

    def __reduce__(self) -> NoReturn:
        raise ReusedError("a stream cannot be copied or stored: the copy would give the same words again")


class Exchange:
    """One party's half of fresh key exchanges: X25519 (RFC 7748), then HKDF with SHA-256 (RFC 5869).

    Make one for each incarnation of a process and each peer set; never store it. Public keys have to arrive over
    channels that authenticate the peer.

    Args:
        name: this party's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = X25519PrivateKey.generate()
        self._given: set[tuple[bytes, str]] = set()
        self.public_key: bytes = self._key.public_key().public_bytes_raw()
        """32 bytes for the peers."""

    def shared_stream(self, peer: str, public_key: bytes, label: str) -> Stream:
        """The stream that this party and a peer share, the same at both.

        The key is bound to both names, both public keys and the label.

        Args:
            peer: the other party's name.
            public_key: the other party's, 32 bytes.
            label: what the stream is for, and for which job; streams of different labels are independent.

        Raises:
            MalformedError: the key is no X25519 key of another party: of another length, of small order, or this
                party's own; or both parties have one name.
            ReusedError: this stream was given out before; a second one would repeat it.
        """
        if not isinstance(public_key, bytes) or len(public_key) != 32:
            raise MalformedError(f"the public key of {peer!r} is not 32 bytes")
        if peer == self._name or public_key == self.public_key:
            raise MalformedError(f"{peer!r} has this party's own name or public key; each party makes its own")
        if (public_key, label) in self._given:
            raise ReusedError(f"the stream {label!r} with {peer!r} was made before; a second one would repeat it")
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(public_key))
        except ValueError:
            raise MalformedError(f"the public key of {peer!r} is a point of small order") from None
        self._given.add((public_key, label))
        low, high = sorted([(self._name.encode(), self.public_key), (peer.encode(), public_key)])
        parts = (_PURPOSE, *low, *high, label.encode())
        info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return Stream(HKDF(hashes.SHA256(), _KEY, salt=None, info=info).derive(shared))

    def __reduce__(self) -> NoReturn:
        raise ReusedError("an exchange cannot be copied or stored: its streams would be given again")
