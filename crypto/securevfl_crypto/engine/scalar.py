"""Paths that process one item at a time with maintained libraries: libsodium (PyNaCl) and OpenSSL (`cryptography`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from securevfl_crypto.elligator2 import expand_message_xmd, sums_of_maps
from securevfl_crypto.engine.base import Engine, check_secret, check_tag, contiguous_rows
from securevfl_crypto.errors import EngineError, MalformedError

__all__ = ["ScalarEngine"]

_SMALL_ORDER = bytes(32)


def _multiply_by_libsodium(secret: bytes) -> Callable[[bytes], bytes]:
    try:
        from nacl.bindings import crypto_scalarmult
        from nacl.exceptions import CryptoError
    except ImportError:
        raise EngineError("the path 'libsodium' needs PyNaCl: pip install pynacl") from None

    def multiply(point: bytes) -> bytes:
        try:
            product: bytes = crypto_scalarmult(secret, point)
        except (CryptoError, RuntimeError):  # raised for a result of zero
            return _SMALL_ORDER
        return product

    return multiply


def _multiply_by_openssl(secret: bytes) -> Callable[[bytes], bytes]:
    key = X25519PrivateKey.from_private_bytes(secret)

    def multiply(point: bytes) -> bytes:
        try:
            return key.exchange(X25519PublicKey.from_public_bytes(point))
        except ValueError:
            return _SMALL_ORDER

    return multiply


class ScalarEngine(Engine):
    """An engine that processes item by item.

    Args:
        name: ``"libsodium"`` or ``"cryptography"``.

    Raises:
        EngineError: the library is not installed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._prepare = {"libsodium": _multiply_by_libsodium, "cryptography": _multiply_by_openssl}[name]
        self._prepare(bytes(32))

    def x25519(self, secret: bytes, points: np.ndarray) -> np.ndarray:
        """See `Engine.x25519`."""
        raw = contiguous_rows(points, 32, "points").tobytes()
        multiply = self._prepare(check_secret(secret))
        return _stack_rows((multiply(raw[i : i + 32]) for i in range(0, len(raw), 32)), 32)

    def expand(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        """See `Engine.expand`."""
        check_tag(dst)
        rows = contiguous_rows(messages, None, "messages")
        return _stack_rows((expand_message_xmd(row.tobytes(), dst, 96) for row in rows), 96)

    def hash_to_u(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        """See `Engine.hash_to_u`."""
        raw = self.expand(messages, dst).tobytes()
        halves = [int.from_bytes(raw[i : i + 48], "big") for i in range(0, len(raw), 48)]
        return _stack_rows((int(x).to_bytes(32, "little") for x, _ in sums_of_maps(halves)), 32)

    def sha512(self, rows: np.ndarray, prefix: bytes = b"") -> np.ndarray:
        """See `Engine.sha512`."""
        data = contiguous_rows(rows, None, "messages")
        if len(prefix) % 128:
            raise MalformedError(f"a prefix of {len(prefix)} bytes; a multiple of 128 is needed")
        begun = hashlib.sha512(prefix)

        def digest(row: bytes) -> bytes:
            one = begun.copy()
            one.update(row)
            return one.digest()

        return _stack_rows((digest(row.tobytes()) for row in data), 64)


def _stack_rows(items: Iterable[bytes], width: int) -> np.ndarray:
    return np.frombuffer(bytearray().join(items), dtype=np.uint8).reshape(-1, width)  # a bytearray: may be written to
