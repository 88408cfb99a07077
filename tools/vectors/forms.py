"""Parts that all vector files share: groups, test cases, pseudo-random inputs, bytes as hexadecimal text."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

__all__ = ["Case", "Compute", "Group", "fixed_randomness", "pseudo_random", "rows_of", "unhex"]

Case = dict[str, Any]
"""The fields of one test: inputs, and outputs."""
Compute = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Case]
"""Takes a path, a group's fields and a test's fields; returns the test's outputs."""


@dataclass(frozen=True)
class Group:
    """Tests of one type.

    Attributes:
        type: names the function that computes the outputs.
        source: where the vectors come from.
        tests: their inputs with ``comment``, and outputs that are known from elsewhere.
        fields: inputs that all tests share.
        flags: of all tests.
    """

    type: str
    source: str
    tests: list[Case]
    fields: Case = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def pseudo_random(label: str, size: int) -> bytes:
    """Bytes that look random and depend on the label alone: SHAKE-256 of it."""
    return hashlib.shake_256(label.encode()).digest(size)


def unhex(text: str, width: int | None = None) -> np.ndarray:
    """Hexadecimal text as uint8 (n,), or (n, width)."""
    octets = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    return octets if width is None else octets.reshape(-1, width)


def rows_of(texts: list[str]) -> np.ndarray:
    """Texts of equal length as the rows of an array, uint8 (n, width)."""
    return np.stack([unhex(text) for text in texts])


@contextmanager
def fixed_randomness(label: str) -> Iterator[None]:
    """While it lasts, ``secrets.token_bytes`` gives `pseudo_random` bytes: draw by draw ``label/0``, ``label/1``, …"""
    draws = 0

    def token_bytes(size: int) -> bytes:
        nonlocal draws
        draws += 1
        return pseudo_random(f"{label}/{draws - 1}", size)

    with patch.object(secrets, "token_bytes", token_bytes):
        yield
