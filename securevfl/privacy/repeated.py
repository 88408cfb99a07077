"""Repeatable noise for predictions: the same row and values always get the same noise.

Independent noise averages out: over n predictions of a row, its standard deviation falls by √n. So a party derives a
row's noise from a secret, the row's identifier and the released values, with SHAKE256 as a pseudorandom function (a
keyed sponge, FIPS 202). The same row with the same values gets the same noise, at the cost of one release however often
it is predicted. Other values, rows or model parts get other noise, because two releases with equal noise would reveal
their exact difference.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np
import torch

from securevfl.privacy.noise import Entropy

__all__ = ["KEY_BYTES", "RepeatedNoise"]

KEY_BYTES = 32
"""Length of a party's secret."""

_CONTEXT = b"securevfl repeated noise v1"


class RepeatedNoise:
    """Random bytes for the noise of rows, the same for the same row and values.

    Args:
        key: the party's secret, `KEY_BYTES` long; see `draw_key`.
        names: identifier of each numbered row.

    Raises:
        ValueError: a key of another length.
    """

    def __init__(self, key: bytes, names: Sequence[str]) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key has {len(key)} bytes instead of {KEY_BYTES}")
        self._key = key
        self._names = names

    @staticmethod
    def draw_key() -> bytes:
        """A new secret from the operating system."""
        return os.urandom(KEY_BYTES)

    def entropy(self, what: str, rows: np.ndarray, values: torch.Tensor) -> Entropy:
        """Random bytes for noise on values (n, d) of the rows numbered `rows` (n,), row after row.

        Args:
            what: the mechanism with its σ and Δ: other sizes get other noise.
            rows: whose values these are.
            values: what is released.
        """
        # float32 on the host: the noise must not depend on where or in which width the model ran.
        contents = values.detach().cpu().to(torch.float32).reshape(len(rows), -1).numpy()

        def draw_bytes(count: int) -> bytes:
            each = count // max(len(rows), 1)
            return b"".join(
                self._draw_bytes(what, self._names[row], content.tobytes(), each)
                for row, content in zip(rows.tolist(), contents, strict=True)
            )

        return draw_bytes

    def _draw_bytes(self, what: str, name: str, content: bytes, count: int) -> bytes:
        parts = (_CONTEXT, self._key, what.encode(), name.encode(), content)
        # Lengths make the encoding injective: no two inputs give the same bytes.
        framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return hashlib.shake_256(framed).digest(count)
