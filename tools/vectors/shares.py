"""The ring of shares: residues, streams, the comparison, products modulo 2^64, 2^32 and 2^8, fixed point."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
from securevfl_crypto.ring import NarrowMatrix, OneHotMatrix, Stream, decode_words, encode_words, narrow, streams
from securevfl_crypto.ring.kernels import extract_coins
from securevfl_crypto.ring.paths import ring_loops

from vectors.forms import Case, Compute, Group, pseudo_random, unhex

__all__ = ["COMPUTE", "groups", "large_words"]

Fields = Mapping[str, Any]
_TOP = (1 << 64) - 1
_EDGES = (
    0,
    1,
    2,
    (1 << 62) - 1,
    1 << 62,
    (1 << 62) + 1,
    1 << 63,
    (1 << 63) - 1,
    _TOP,
    _TOP - 1,
    1 << 52,
    (1 << 52) - 1,
)


def _format_hex(value: int) -> str:
    return f"{value & _TOP:016x}"


def _draw_octets(label: str) -> int:
    return int.from_bytes(pseudo_random(label, 8), "little")


def _take_residues(label: str, modulus: int) -> str:
    return bytes(octet % modulus for octet in pseudo_random(label, 64)).hex()


def large_words(label: str, count: int) -> np.ndarray:
    """Words of a label, of which every seventh is all ones."""
    words = np.frombuffer(pseudo_random(label, 8 * count), dtype="<u8").astype(np.uint64)
    words[::7] = _TOP
    return words


def narrow_words(label: str, *shape: int) -> np.ndarray:
    """Words of 32 bits of a label, of which every seventh is all ones."""
    words = np.frombuffer(pseudo_random(label, 4 * math.prod(shape)), dtype="<u4").astype(np.uint32)
    words[::7] = 2**32 - 1
    return words.reshape(shape)


def _comparison_tests() -> list[Case]:
    """Shared numbers at the ends of their range behind drawn and extreme masks."""
    cases = []
    values = (0, 1, -1, (1 << 62) - 1, -(1 << 62), 12345, -54321)
    masks = (0, _TOP, 1 << 62, _draw_octets("mask 0"), _draw_octets("mask 1"))
    for number, (z, r) in enumerate([(z, r) for z in values for r in masks]):
        cases.append(
            {
                "comment": f"z = {z}",
                "flags": ["EdgeWord"] if r in (0, _TOP, 1 << 62) or abs(z) > 1 << 60 else [],
                "mask": _format_hex(r),
                "opened": _format_hex(z + (1 << 62) + r),
                "firstBits": _take_residues(f"bits {number}", 67),
                "factors": _take_residues(f"factors {number}", 66),
                "zeros": _take_residues(f"zeros {number}", 67),
                "turn": pseudo_random(f"turn {number}", 1)[0],
            }
        )
    return cases[::2] + cases[1:8:2]


def groups() -> list[Group]:
    """The groups of ``ring.json``."""
    source = "made for this file"
    every = bytes(range(256)).hex()
    raws = [every, "ff" * 64, "00" * 64, "c5" * 64, "c9" * 64, pseudo_random("raw", 192).hex()]
    matrices = [
        ([[*_EDGES[:4]], [*_EDGES[4:8]], [*_EDGES[8:]]], [[_TOP, 1], [1 << 63, _TOP], [_TOP - 1, 3], [1 << 52, _TOP]]),
        ([[_TOP] * 5] * 2, [[_TOP] * 3] * 5),
    ]
    drawn = [(5, 33, 7), (9, 40, 17), (65, 128, 130), (3, 300, 20)]
    numbers = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 2.0**-17, 3 * 2.0**-17, -(2.0**-17), 2.0**45, -(2.0**45), 12345.678]
    return [
        Group(
            "Residues",
            source,
            [
                {"comment": f"{len(raw) // 2} octets", "flags": ["EdgeWord"], "raw": raw, "modulus": modulus}
                for raw in raws
                for modulus in (66, 67)
            ]
            + [{"comment": "another modulus", "raw": every, "modulus": modulus} for modulus in (2, 3, 255, 256)],
        ),
        Group(
            "Stream",
            source,
            [
                {"comment": "residues", "use": use, "count": count, "modulus": modulus}
                for use, count, modulus in ((0, 100, 67), (1, 100, 66), (2**64 - 1, 5, 67))
            ]
            + [{"comment": "words", "use": use, "count": 5, "modulus": 0} for use in (0, 1, 2**64 - 1)],
            {"key": pseudo_random("stream key", 32).hex()},
        ),
        Group("Comparison", source, _comparison_tests()),
        Group(
            "MatrixProduct",
            source,
            [
                {
                    "comment": "edge words",
                    "flags": ["EdgeWord"],
                    "a": [[_format_hex(word) for word in row] for row in a],
                    "b": [[_format_hex(word) for word in row] for row in b],
                }
                for a, b in matrices
            ],
        ),
        Group(
            "LargeProduct",
            source,
            [
                {"comment": "a product large enough for a kernel", "rows": m, "inner": k, "columns": n}
                for m, k, n in drawn
            ],
            {"aLabel": "left", "bLabel": "right"},
            ("EdgeWord",),
        ),
        Group(
            "NarrowProduct",
            source,
            [
                {"comment": "a table of small words", "cells": m, "rows": n, "columns": k}
                for m, n, k in ((1, 1, 1), (5, 130, 3), (9, 64, 8), (30, 257, 5))
            ],
            {"tableLabel": "table", "valuesLabel": "values", "factorsLabel": "factors"},
            ("EdgeWord",),
        ),
        Group(
            "BinSums",
            source,
            [
                {"comment": "sums by bin", "bins": bins, "rows": n, "columns": k}
                for bins, n, k in (([3], 1, 1), ([7, 1, 32], 130, 3), ([256, 2], 70, 8))
            ],
            {"codesLabel": "codes", "valuesLabel": "values", "factorsLabel": "factors"},
            ("EdgeWord",),
        ),
        Group("FixedPoint", source, [{"comment": "rounded to 16 bits", "value": repr(one)} for one in numbers]),
    ]


def _reduce_modulo(path: str, group: Fields, test: Fields) -> Case:
    raw = unhex(test["raw"]).copy()
    out = np.zeros_like(raw)
    count = ring_loops(path).residues(raw, test["modulus"], out)
    return {"residues": out[:count].tobytes()}


def _draw_stream(path: str, group: Fields, test: Fields) -> Case:
    stream = Stream(bytes.fromhex(group["key"]))
    if test["modulus"]:
        with patch.object(streams, "ring_loops", lambda: ring_loops(path)):  # a stream takes the process's path
            return {"residues": stream.draw_residues(test["use"], test["count"], test["modulus"]).tobytes()}
    return {"words": [_format_hex(int(word)) for word in stream.draw_words(test["use"], test["count"])]}


def _compare_words(path: str, group: Fields, test: Fields) -> Case:
    loops = ring_loops(path)
    r, c = (np.array([int(test[name], 16)], dtype=np.uint64) for name in ("mask", "opened"))
    first, factors, zeros = (unhex(test[name], 64).copy() for name in ("firstBits", "factors", "zeros"))
    turns = np.array([test["turn"]], dtype=np.uint8)
    second = loops.deal_bits(r, first)
    sent = [
        loops.mask_comparison(c, bits, factors, zeros, turns, first=one)
        for one, bits in ((True, first), (False, second))
    ]
    found = loops.count_zeros(*sent)
    top = np.uint64(62)
    sign = (c >> top ^ r >> top ^ found ^ extract_coins(turns)) & np.uint64(1)
    return {
        "secondBits": second.tobytes(),
        "fromFirst": sent[0].tobytes(),
        "fromSecond": sent[1].tobytes(),
        "zeroCount": int(found[0]),
        "isNonNegative": int(sign[0]),
    }


def _read_words(rows: list[list[str]]) -> np.ndarray:
    return np.array([[int(word, 16) for word in row] for row in rows], dtype=np.uint64)


def _multiply_numbers(path: str, group: Fields, test: Fields) -> Case:
    product = ring_loops(path).product(_read_words(test["a"]), _read_words(test["b"]))
    return {"product": [[_format_hex(int(word)) for word in row] for row in product]}


def _multiply_large(path: str, group: Fields, test: Fields) -> Case:
    m, k, n = test["rows"], test["inner"], test["columns"]
    a, b = large_words(group["aLabel"], m * k).reshape(m, k), large_words(group["bLabel"], k * n).reshape(k, n)
    product = np.ascontiguousarray(ring_loops(path).product(a, b)).astype("<u8")
    return {"first": _format_hex(int(product[0, 0])), "digest": hashlib.sha512(product.tobytes()).digest()[:32]}


def _multiply_matrix(path: str, matrix: NarrowMatrix | OneHotMatrix, group: Fields, k: int) -> Case:
    with patch.object(narrow, "ring_loops", lambda: ring_loops(path)):  # a matrix takes the process's path
        sums = matrix.sum_rows(narrow_words(group["valuesLabel"], matrix.rows, k))
        octets = matrix.combine_cells(narrow_words(group["factorsLabel"], k, matrix.cells))
    raws = {"sums": sums.astype("<u4").tobytes(), "octets": octets.tobytes()}
    return {name: hashlib.sha512(raw).digest()[:32] for name, raw in raws.items()}


def _multiply_narrow(path: str, group: Fields, test: Fields) -> Case:
    table = narrow_words(group["tableLabel"], test["cells"], test["rows"])
    return _multiply_matrix(path, NarrowMatrix(table), group, test["columns"])


def _sum_by_bin(path: str, group: Fields, test: Fields) -> Case:
    bins = test["bins"]
    drawn = np.frombuffer(pseudo_random(group["codesLabel"], len(bins) * test["rows"]), dtype=np.uint8)
    codes = (drawn.reshape(len(bins), -1) % np.array(bins)[:, None]).astype(np.uint8)
    return _multiply_matrix(path, OneHotMatrix(codes, bins), group, test["columns"])


def _encode_input(path: str, group: Fields, test: Fields) -> Case:
    words = encode_words(np.array([float(test["value"])]))
    return {"word": _format_hex(int(words[0])), "decoded": repr(float(decode_words(words)[0]))}


COMPUTE: dict[str, Compute] = {
    "Residues": _reduce_modulo,
    "Stream": _draw_stream,
    "Comparison": _compare_words,
    "MatrixProduct": _multiply_numbers,
    "LargeProduct": _multiply_large,
    "NarrowProduct": _multiply_narrow,
    "BinSums": _sum_by_bin,
    "FixedPoint": _encode_input,
}
