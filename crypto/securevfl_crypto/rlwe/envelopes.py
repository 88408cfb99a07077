"""Messages of the lattice schemes: a header of 36 bytes, and ring elements in as few bytes as their primes allow.

The header: ``SVRL``, version, scheme, content, chain, eight bytes of the key's fingerprint, the rows, features and
outputs of a tile, the number of rows of x or S, and the number of ring elements. Messages are uint8 (1, bytes). An
upload is a seed and c0, modulo q. An answer is c1 and those coefficients of c0 that hold results or, in products, are
checked, modulo q'.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.rlwe.parameters import DEGREE
from securevfl_crypto.rlwe.residues import read_residues, write_residues
from securevfl_crypto.rlwe.seal import SEED_BYTES, SealContext
from securevfl_crypto.rlwe.tiling import Tiling

__all__ = ["Content", "Envelope"]

_HEAD = struct.Struct("<4sBBBB8s5I")
_MAGIC, _VERSION = b"SVRL", 2


class Content(IntEnum):
    """Contents of a message."""

    WEIGHTS = 1
    STEPS = 2
    PRODUCT = 3
    GRADIENT = 4


@dataclass(frozen=True)
class Envelope:
    """The expected form of a message.

    Attributes:
        content: the content of the message.
        scheme: the number of the scheme.
        chain: the number of the chain.
        tag: the tag of the key.
        tiling: the sizes of the block's tiles.
        rows: the rows of x or S; 0 if messages do not depend on it.
        seal: the context of the chain.
    """

    content: Content
    scheme: int
    chain: int
    tag: bytes
    tiling: Tiling
    rows: int
    seal: SealContext

    def write_uploads(self, sealed: Sequence[tuple[np.ndarray, bytes]]) -> np.ndarray:
        """Encode (c0, seed) pairs as a message, uint8 (1, bytes)."""
        widths = self.seal.chain.widths
        return self._write_message(
            [part for first, seed in sealed for part in (seed, write_residues(first, widths))], sealed
        )

    def read_uploads(self, message: np.ndarray, count: int) -> list[tuple[np.ndarray, bytes]]:
        """Read the (c0, seed) pairs that `write_uploads` wrote.

        Raises:
            MalformedError: the type, length or header differs, or a residue is out of range.
        """
        primes = self.seal.data.primes
        widths = self.seal.chain.widths
        size = SEED_BYTES + DEGREE * sum(widths)
        body, found = self._read_body(message, count, count * size), []
        for start in range(0, len(body), size):
            seed = bytes(body[start : start + SEED_BYTES])
            found.append((read_residues(body[start + SEED_BYTES : start + size], primes, widths, DEGREE), seed))
        return found

    def write_answers(self, answers: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Encode (coefficients of c0, c1) pairs as a message, uint8 (1, bytes)."""
        widths = self.seal.chain.widths[: len(self.seal.kept.primes)]
        return self._write_message([write_residues(half, widths) for pair in answers for half in pair], answers)

    def read_answers(self, message: np.ndarray, sizes: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Read the pairs that `write_answers` wrote.

        Args:
            message: as received.
            sizes: the number of coefficients of c0 in each pair.

        Raises:
            MalformedError: the type, length or header differs, or a residue is out of range.
        """
        primes = self.seal.kept.primes
        widths = self.seal.chain.widths[: len(primes)]
        width = sum(widths)
        body, found = self._read_body(message, len(sizes), width * (sum(sizes) + DEGREE * len(sizes))), []
        for size in sizes:
            first = read_residues(body[: size * width], primes, widths, size)
            body = body[size * width :]
            found.append((first, read_residues(body[: DEGREE * width], primes, widths, DEGREE)))
            body = body[DEGREE * width :]
        return found

    def join_parts(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Join messages with parts of the ring elements into one, in their order."""
        bodies = [part.tobytes()[_HEAD.size :] for part in parts]
        counts = [_HEAD.unpack_from(part.tobytes())[-1] for part in parts]
        return np.frombuffer(b"".join([self._header(sum(counts)), *bodies]), dtype=np.uint8)[None]

    def split_answers(
        self, message: np.ndarray, sizes: Sequence[int], parts: Sequence[tuple[Envelope, int]]
    ) -> list[np.ndarray]:
        """Split a message into several: the inverse of `join_parts`.

        Args:
            message: as received.
            sizes: the number of coefficients of c0 in each pair.
            parts: the envelope and the number of pairs of each part.

        Raises:
            MalformedError: the type, length or header of the message differs. Residues are not checked here.
        """
        width = sum(self.seal.chain.widths[: len(self.seal.kept.primes)])
        body, found, start = self._read_body(message, len(sizes), width * (sum(sizes) + DEGREE * len(sizes))), [], 0
        for envelope, count in parts:
            size = width * (sum(sizes[start : start + count]) + DEGREE * count)
            found.append(envelope._write_message([bytes(body[:size])], sizes[start : start + count]))
            body, start = body[size:], start + count
        return found

    def _header(self, count: int) -> bytes:
        tile = self.tiling.rows, self.tiling.features, self.tiling.outputs
        return _HEAD.pack(_MAGIC, _VERSION, self.scheme, self.content, self.chain, self.tag, *tile, self.rows, count)

    def _write_message(self, parts: list[bytes], elements: Sequence[object]) -> np.ndarray:
        return np.frombuffer(b"".join([self._header(len(elements)), *parts]), dtype=np.uint8)[None]

    def _read_body(self, message: np.ndarray, count: int, size: int) -> memoryview:
        shape = (1, _HEAD.size + size)
        if not isinstance(message, np.ndarray) or message.dtype != np.uint8 or message.shape != shape:
            what = f"{message.dtype} {message.shape}" if isinstance(message, np.ndarray) else type(message).__name__
            raise MalformedError(
                f"a message of {what}; expected uint8 {shape}: both sides must use the same scheme, block and rows"
            )
        raw, head = memoryview(message.tobytes()), self._header(count)
        if raw[: _HEAD.size] != head:
            raise MalformedError(
                f"a message begins with {raw[: _HEAD.size].hex()}; expected {head.hex()}: content, scheme, version, "
                "key, layout or number of rows differs"
            )
        return raw[_HEAD.size :]
