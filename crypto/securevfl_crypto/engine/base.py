"""The interface of the engine: four operations on arrays with one row for each item."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from securevfl_crypto.errors import MalformedError

__all__ = ["Engine", "check_secret", "check_tag", "contiguous_rows"]

_KEPT = np.array([248] + [255] * 30 + [127], dtype=np.uint8)
_SET = np.array([0] * 31 + [64], dtype=np.uint8)


class Engine(ABC):
    """A code path. All paths give the same bytes for the same input.

    Attributes:
        name: the name of the path, one of `PATHS`.
    """

    name: str

    @abstractmethod
    def x25519(self, secret: bytes, points: np.ndarray) -> np.ndarray:
        """X25519 (RFC 7748, section 5) of one secret and many points.

        Args:
            secret: 32 bytes; clamped as the RFC says. Neither control flow nor addresses depend on it.
            points: u-coordinates, little-endian, uint8 (n, 32); bit 255 is ignored, values from p on are reduced.

        Returns:
            uint8 (n, 32); 32 zero bytes where the point has small order.

        Raises:
            MalformedError: the points have another type or shape, or the secret another length.
        """

    @abstractmethod
    def expand(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        """``expand_message_xmd`` with SHA-512 (RFC 9380, section 5.3.1): 96 uniform bytes for each message.

        Args:
            messages: of one length, uint8 (n, length).
            dst: domain separation tag, 1 to 255 bytes.

        Returns:
            uint8 (n, 96).

        Raises:
            MalformedError: the messages have another type or shape, or the tag another length.
        """

    @abstractmethod
    def hash_to_u(self, messages: np.ndarray, dst: bytes) -> np.ndarray:
        """The suite ``curve25519_XMD:SHA-512_ELL2_RO_`` (RFC 9380, section 8.5) before the cofactor is cleared.

        Args:
            messages: of one length, uint8 (n, length).
            dst: domain separation tag, 1 to 255 bytes.

        Returns:
            u-coordinates of Q0 + Q1, little-endian, uint8 (n, 32).

        Raises:
            MalformedError: the messages have another type or shape, or the tag another length.
        """

    @abstractmethod
    def sha512(self, rows: np.ndarray, prefix: bytes = b"") -> np.ndarray:
        """SHA-512 of `prefix` followed by each row.

        Args:
            rows: messages of one length, uint8 (n, length).
            prefix: a multiple of 128 bytes; it is compressed only once.

        Returns:
            uint8 (n, 64).

        Raises:
            MalformedError: the rows have another type or shape, or the prefix another length.
        """


def contiguous_rows(array: np.ndarray, width: int | None, what: str) -> np.ndarray:
    """The array, C-contiguous.

    Args:
        array: uint8 (n, width).
        width: None allows any.
        what: names the array in the error.

    Raises:
        MalformedError: the array is not uint8 (n, width).
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 2:
        shape = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise MalformedError(f"{what} are {shape}; uint8 (n, {width or 'length'}) was expected")
    if width is not None and array.shape[1] != width:
        raise MalformedError(f"{what} are uint8 {array.shape}; uint8 (n, {width}) was expected")
    return np.ascontiguousarray(array)


def check_secret(secret: bytes) -> bytes:
    """The secret, clamped (RFC 7748, section 5).

    numpy clamps it, because Python looks small integers up in a table, at addresses that depend on the secret.

    Raises:
        MalformedError: the secret is not 32 bytes.
    """
    if not isinstance(secret, bytes) or len(secret) != 32:
        size = f"{len(secret)} bytes" if isinstance(secret, bytes) else f"a {type(secret).__name__}"
        raise MalformedError(f"the secret is {size}; 32 bytes are needed")
    return (np.frombuffer(secret, dtype=np.uint8) & _KEPT | _SET).tobytes()


def check_tag(dst: bytes) -> bytes:
    """``DST_prime``: the tag and its length (RFC 9380, section 5.3.1).

    Raises:
        MalformedError: the tag is not bytes, is empty, or is longer than 255 bytes.
    """
    if not isinstance(dst, bytes):
        raise MalformedError(f"a domain separation tag is a {type(dst).__name__}; 1 to 255 bytes are needed")
    if not 1 <= len(dst) <= 255:
        raise MalformedError(f"a domain separation tag of {len(dst)} bytes; 1 to 255 are possible")
    return dst + bytes([len(dst)])
