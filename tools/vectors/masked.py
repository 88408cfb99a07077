"""Runs of the three computing parties behind one mask: truncations, comparisons and curves, with every message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
from securevfl_crypto.replicated.curves import Curve
from securevfl_crypto.replicated.keys import Streams
from securevfl_crypto.replicated.party import Party
from securevfl_crypto.replicated.share import Share
from securevfl_crypto.replicated.task import Task
from securevfl_crypto.replicated.truncation import run_masked_tasks
from securevfl_crypto.replicated.wire import MemoryWire, memory_wires, take_turns
from securevfl_crypto.ring import Stream, kernels, streams
from securevfl_crypto.ring.base import RingLoops
from securevfl_crypto.ring.paths import ring_loops

from vectors.forms import Case, Compute, Group, pseudo_random

__all__ = ["COMPUTE", "groups"]

Fields = Mapping[str, Any]
_TOP = (1 << 64) - 1
_KEYS = ("key0", "key1", "key2", "own2")
_VALUES = (0, 1, -1, 65_535, 65_536, -65_536, (1 << 62) - 1, -(1 << 62), 123_456_789_012, -123_456_789_012)
_SMALL = (0, -1, 65_536, (6 << 32) - 1, -(3 << 40))


def _deal_values(values: tuple[int, ...], label: str) -> list[list[str]]:
    """Three summands of each value, two of them drawn."""
    drawn = np.frombuffer(pseudo_random(label, 16 * len(values)), dtype="<u8").reshape(2, -1)
    last = [value - int(a) - int(b) for value, a, b in zip(values, *drawn, strict=True)]
    return [[f"{int(word) & _TOP:016x}" for word in part] for part in (*drawn, last)]


def _describe_run(
    comment: str,
    values: tuple[int, ...],
    shift: int,
    curve: Curve | None = None,
    flags: tuple[str, ...] = (),
) -> Case:
    return {
        "comment": comment,
        "flags": list(flags),
        "summands": _deal_values(values, comment),
        "shift": shift,
        "thresholds": list(curve.thresholds) if curve else [],
        "slopes": list(curve.slopes) if curve else [],
        "gates": list(curve.gates) if curve else [],
        "start": curve.start if curve else 0,
    }


def groups() -> list[Group]:
    """The groups of ``masked.json``."""
    edge = ("EdgeWord",)
    tests = [
        _describe_run("16 bits are cut off", _VALUES, 16, flags=edge),
        _describe_run("one bit is cut off", _VALUES, 1, flags=edge),
        _describe_run("61 bits are cut off", _VALUES, 61, flags=edge),
        _describe_run("nothing is cut off", _VALUES, 0, flags=edge),
        _describe_run("one comparison", _SMALL, 0, Curve((0,))),
        _describe_run("three comparisons behind one mask", _SMALL, 16, Curve((-1, 0, 1))),
        _describe_run("ReLU6 and its gate", _SMALL, 16, Curve((0, 6 << 16), (1, -1), (1, -1))),
        _describe_run("a curve without a gate", _SMALL, 16, Curve((-65_536, 2), (3, -5), start=77)),
        _describe_run("a gate alone", _SMALL, 16, Curve((0, 1), gates=(1, 2))),
    ]
    return [
        Group(
            "MaskedRun",
            "made for this file",
            tests,
            {name: pseudo_random(f"masked {name}", 32).hex() for name in _KEYS},
        )
    ]


def _open_streams(index: int, group: Fields) -> Streams:
    mine, after = (Stream(bytes.fromhex(group[f"key{k % 3}"])) for k in (index, index + 1))
    return Streams(index, mine, after, Stream(bytes.fromhex(group["own2"])) if index == 2 else Stream.with_fresh_key())


def _format_words(words: np.ndarray) -> list[str]:
    return [f"{int(word):016x}" for word in words.ravel()]


def _format_rows(rows: np.ndarray) -> list[str]:
    return [row.tobytes().hex() for row in rows]


def _run_parties(group: Fields, test: Fields) -> tuple[list[list[Share]], tuple[MemoryWire, MemoryWire, MemoryWire]]:
    curve = None
    if test["thresholds"]:
        thresholds, slopes, gates = (tuple(test[name]) for name in ("thresholds", "slopes", "gates"))
        curve = Curve(thresholds, slopes, gates, test["start"])
    wires = memory_wires(record=True)

    async def run(index: int) -> list[Share]:
        summand = np.array([int(word, 16) for word in test["summands"][index]], dtype=np.uint64)
        party = Party(index, wires[index], _open_streams(index, group))
        party.begin_operation()
        found, _ = await run_masked_tasks(party, [Task(summand, test["shift"], curve)])
        return found[0]

    return take_turns([run(index) for index in range(3)], wires[0].links), wires


def _run_masked(path: str, group: Fields, test: Fields) -> Case:
    def given() -> RingLoops:  # a party takes the process's path
        return ring_loops(path)

    with patch.object(kernels, "ring_loops", given), patch.object(streams, "ring_loops", given):
        shares, wires = _run_parties(group, test)
    views = [
        {(source, label): arrays[1:] for source, label, arrays in wire.received} for wire in wires
    ]  # the first is the header
    to_first, to_second, to_last = views
    dealt = to_second[2, "opening"]
    out: Case = {
        "openings": [
            _format_words(part)
            for part in (to_second[0, "opening"][0], to_first[1, "opening"][0], to_first[2, "opening"][0])
        ],
        "results": [_format_words(to_second[0, "result"][0]), _format_words(to_first[1, "result"][0])],
        "shares": [[word for share in shares[index] for word in _format_words(share.mine)] for index in range(3)],
    }
    if not test["thresholds"] or test["slopes"]:
        out["dealtWords"] = _format_words(dealt[1])
    if test["thresholds"]:
        out["dealtBits"] = _format_rows(dealt[-1])
        out["rows"] = [_format_rows(to_last[index, "rows"][0]) for index in range(2)]
        out["answers"] = _format_words(to_second[2, "answers"][0])
    return out


COMPUTE: dict[str, Compute] = {"MaskedRun": _run_masked}
