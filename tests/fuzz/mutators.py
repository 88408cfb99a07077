"""Changes to bytes, drawn from a seeded generator: blind ones, and some that know JSON, lines and lengths."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any

__all__ = ["Mutator", "blind", "headed_json", "json_values", "lines", "mixed"]

Mutator = Callable[[bytes, random.Random], bytes]

_BYTES = (0, 1, 0x7F, 0x80, 0xFF, 0x90, 0xC0, 0xC6, 0xCF, 0xD3, 0xDD, 0x22, 0x2C, 0x0A)
_WORDS = tuple(
    number.to_bytes(size, order)
    for size in (4, 8)
    for number in (0, 1, (1 << (8 * size - 1)) - 1, 1 << (8 * size - 1), (1 << (8 * size)) - 1, 1 << 30)
    for order in ("little", "big")
)
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "é\u200b", "\ud800", "a" * 3000, [], {}, [[]], [None], {"a": {}}, [1, "a"], "-1", "1e999", "0x1"),
)


def blind(data: bytes, luck: random.Random) -> bytes:
    """Bits flipped, bytes and numbers of interest written, ranges cut, doubled, deleted and moved."""
    if luck.random() < 0.02:
        return luck.randbytes(luck.randrange(200))
    out = bytearray(data)
    for _ in range(luck.choice((1, 1, 1, 2, 4, 8))):
        if not out:
            break
        near = min(len(out), 300) if luck.random() < 0.6 else len(out)
        at, size = luck.randrange(near), luck.choice((1, 1, 2, 4, 8, 32))
        match luck.randrange(9):
            case 0 | 1:
                out[at] ^= 1 << luck.randrange(8)
            case 2:
                out[at] = luck.choice(_BYTES)
            case 3:
                word = luck.choice(_WORDS)
                out[at : at + len(word)] = word
            case 4:
                del out[at : (at + size if luck.random() < 0.5 else len(out))]
            case 5:
                out[at:at] = out[at : at + size]
            case 6:
                source = luck.randrange(len(out))
                out[at : at + size] = out[source : source + size]
            case 7:
                out[at:at] = luck.randbytes(size)
            case _:
                out += luck.randbytes(size) if luck.random() < 0.5 else bytes(size)
    return bytes(out)


def lines(data: bytes, luck: random.Random) -> bytes:
    """Lines left out, doubled, swapped or cut, and fields of lines replaced."""
    rows = data.split(b"\n")
    for _ in range(luck.choice((1, 1, 2, 3))):
        at, other = luck.randrange(len(rows)), luck.randrange(len(rows))
        match luck.randrange(5):
            case 0 if len(rows) > 1:
                del rows[at]
            case 1:
                rows.insert(other, rows[at])
            case 2:
                rows[at], rows[other] = rows[other], rows[at]
            case _:
                fields = rows[at].split(b",")
                odd = (b"", b"nan", b"NULL", b"-1", b"1e999", b'"', b'""', b"\xff", b"\xe2\x80\x8b", b"9" * 400)
                fields[luck.randrange(len(fields))] = luck.choice(odd)
                rows[at] = b",".join(fields)
    return b"\n".join(rows)


def json_values(data: bytes, luck: random.Random) -> bytes:
    """Values of a JSON document, or of one of its lines, replaced, renamed, left out or nested. Bytes that are no JSON
    are changed blindly."""
    rows = data.split(b"\n") if b'\n{"' in data else [data]
    at = luck.randrange(len(rows))
    try:
        content = json.loads(rows[at])
    except ValueError:
        return blind(data, luck)
    for _ in range(luck.choice((1, 1, 2, 3))):
        content = _changed(content, luck)
    rows[at] = json.dumps(content).encode()
    return b"\n".join(rows)


def _changed(content: Any, luck: random.Random) -> Any:
    nodes = [content]
    for node in nodes:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        nodes += [one for one in inner if isinstance(one, dict | list)]
    node, odd = luck.choice(nodes), copy.deepcopy(luck.choice(_VALUES))
    if isinstance(node, dict) and node:
        key = luck.choice(list(node))
        match luck.randrange(5):
            case 0:
                del node[key]
            case 1:
                node[key + "x"] = node.pop(key)
            case 2:
                node[key] = [node[key]]
            case _:
                node[key] = odd
    elif isinstance(node, list):
        node.insert(luck.randrange(len(node) + 1), odd)
    else:
        return odd
    return content


def headed_json(data: bytes, luck: random.Random) -> bytes:
    """As `json_values`, within a safetensors file: eight bytes of length, a JSON header, data."""
    if len(data) < 8:
        return blind(data, luck)
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = data[8 : 8 + size], data[8 + size :]
    try:
        content = json.loads(header)
        tree = json.loads(content["__metadata__"]["tree"])
    except (ValueError, KeyError, TypeError):
        return blind(data, luck)
    if luck.random() < 0.6:
        content["__metadata__"]["tree"] = json.dumps(_changed(tree, luck))
    else:
        content = _changed(content, luck)
    header = json.dumps(content).encode()
    return struct.pack("<Q", len(header)) + header + rest


def mixed(*mutators: Mutator) -> Mutator:
    """One of them at a time, and now and then two."""

    def change(data: bytes, luck: random.Random) -> bytes:
        data = luck.choice(mutators)(data, luck)
        return luck.choice(mutators)(data, luck) if luck.random() < 0.1 else data

    return change
