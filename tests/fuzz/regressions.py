"""Inputs that once ended in a foreign error: the decoder and the bytes, in hexadecimal."""

from __future__ import annotations

import struct

import msgspec

__all__ = ["REGRESSIONS"]


def _message(shape: tuple[int, ...], guard: tuple[str, int, str, float] = ("none", 0, "", 0.0)) -> str:
    """A message whose header announces an array of this shape."""
    header = msgspec.msgpack.encode(("control", "w", {}, guard, [("a", "<f4", shape)]))
    return (struct.pack("<4sHHII", b"SVFL", 1, 0, len(header), 0) + header + bytes(-len(header) % 8)).hex()


REGRESSIONS: tuple[tuple[str, str], ...] = (
    ("message", _message((0, 2**62, 2**62))),
    ("message", _message((0, 2**63))),
    ("message", _message((0, 2**64 - 1))),
    ("message", _message((0, 2**31, 2**31, 2**31))),
    ("message", _message((0,), ("none", -(2**63), "", 0.0))),
    ("message", _message((0,), ("none", 0, "", float("nan")))),
    ("message", _message((0,), ("none", 0, "", float("-inf")))),
    (
        "audit",  # a hash of other than ASCII letters, compared in constant time
        b'{"line":"open","version":2,"party":"bank","run":"r","job":"j","policy":"none","prev":"c","hash":"\xc3\xa9"}\n'.hex(),
    ),
    ("sign of life", "0000000000000000 96010101 a1ff a0 c400"),  # a name of other than UTF-8
    ("sign of life", "0000c07f00000000"),  # seconds that are no number
    ("metrics.json", b'{"format": 1, "name": "r\xee", "title": "t"}'.hex()),
    ("sweep.json", b'{"format": 1, "name": "r\xff"}'.hex()),
)
