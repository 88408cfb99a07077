"""What both halves of `held` have: the layout, the session, the transforms and randomness of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from securevfl_crypto.errors import MalformedError, ReusedError
from securevfl_crypto.rlwe.held_layout import BASIS, DEGREE, HeldContent, HeldLayout
from securevfl_crypto.rlwe.held_random import HeldRandom, hash_session
from securevfl_crypto.transforms import TransformRing

__all__ = ["HeldHalf", "check_matrix"]

_LEAST_SESSION = 16


class HeldHalf:
    """What both halves have: the layout, the session, and arithmetic.

    Args:
        batch, width, outputs: B, d and E.
        session: bytes that both parties know and that both contributed fresh randomness to, at least 16.
        ring: the transforms; None: the fastest of this machine.

    Raises:
        MalformedError: a size is out of range, or the session is too short.
    """

    def __init__(
        self, batch: int, width: int, outputs: int, *, session: bytes, ring: TransformRing | None = None
    ) -> None:
        if not isinstance(session, bytes) or len(session) < _LEAST_SESSION:
            raise MalformedError(f"a session of fewer than {_LEAST_SESSION} bytes; both parties contribute to it")
        self.layout = HeldLayout(batch, width, outputs)
        self._ring = TransformRing(BASIS.primes, DEGREE) if ring is None else ring
        self._random = HeldRandom()
        self._uniform = hash_session(session)
        sizes = f"securevfl held products 1, {batch} x {width} x {outputs}".encode()
        self._session_tag = hashlib.sha256(sizes + hashlib.sha256(session).digest()).digest()[:8]

    def name_key(self, body: bytes | memoryview) -> bytes:
        """Eight bytes that name key, session and layout in messages."""
        return hashlib.sha256(self._session_tag + bytes(body)).digest()[:8]

    def message_size(self, content: HeldContent, rows: int | None = None) -> int:
        """The bytes of a message, for whoever receives it; `rows` counts for steps and products."""
        return self.layout.message_size(content, self.count_rows(rows))

    def count_rows(self, rows: int | None) -> int:
        """So many rows, or as many as a batch has at most.

        Raises:
            MalformedError: none, or more than a batch has.
        """
        found = self.layout.batch if rows is None else rows
        self.layout.check_rows(found)
        return found

    def __reduce__(self) -> NoReturn:
        raise ReusedError("a half of held products is not copied or stored: its randomness would be used twice")


def check_matrix(words: np.ndarray, shape: Sequence[int]) -> None:
    """Check the type and shape of an array of words.

    Raises:
        MalformedError: it is not uint64 of this shape.
    """
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.shape != tuple(shape):
        what = f"{words.dtype} {words.shape}" if isinstance(words, np.ndarray) else type(words).__name__
        raise MalformedError(f"words of {what}; expected uint64 {tuple(shape)}")
