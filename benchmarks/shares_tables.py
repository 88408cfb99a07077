"""Tables of cells on shares, on one core: kernels of small words, and the cells of a tree as dealt and as owned.

    python -m benchmarks.shares_tables [--quick]

Kernels on every path of this machine, beside the same products modulo 2^64 and numpy's own of the same small words: one
party's part of 12,945 rows, as credit has. Then the cells of a tree of depth 5 on 23 columns of 32 bins: what sums and
sides cost each party, and what it is dealt, modulo 2^64, modulo 2^32 and 2^8, and where the parties own their columns.
CPU time; bins are random.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from securevfl_crypto.replicated import DealtOwned, Share, deal_shares
from securevfl_crypto.replicated.share import PARTIES
from securevfl_crypto.ring import NarrowMatrix, OneHotMatrix, matmul
from securevfl_crypto.ring import paths as ring_paths
from securevfl_crypto.ring.base import RingLoops

from benchmarks.common import write
from benchmarks.ring import figures, in_turns, paths
from securevfl.shares.trees import CellLayout, Cells, NarrowCells, SharedCells, deal_cells

COLUMNS, BINS, DEPTH = 23, 32, 5
DEALT, OWNED = 15, 8
"""Columns of the two others, which a party multiplies, and its own."""


def kernels(rows: int, rounds: int, least: float) -> dict[str, object]:
    """Sums over rows and sides of rows, for k columns of values and k nodes, on every path."""
    rng, found = np.random.default_rng(0), dict[str, object]()
    wide = rng.integers(0, 2**64, (DEALT * BINS, rows), dtype=np.uint64)
    codes = rng.integers(0, BINS, (OWNED, rows)).astype(np.uint8)
    hot = (codes[:, None, :] == np.arange(BINS, dtype=np.uint8)[:, None]).reshape(-1, rows)
    parts = {
        "dealt": (NarrowMatrix(wide.astype(np.uint32)), wide),
        "its own": (OneHotMatrix(codes, [BINS] * OWNED), hot.astype(np.uint64)),
    }
    for k in (2, 4, 16):
        values = rng.integers(0, 2**64, (rows, k), dtype=np.uint64)
        for label, (narrow, table) in parts.items():
            factors, small = rng.integers(0, 2**64, (k, len(table)), dtype=np.uint64), table.astype(np.uint32)
            found[f"sums, k = {k}, {label}"] = compare(
                partial(narrow.sum_rows, values),
                partial(matmul, table, values),
                partial(np.matmul, small, values.astype(np.uint32)),
                (rounds, least),
            )
            found[f"sides, k = {k}, {label}"] = compare(
                partial(narrow.combine_cells, factors),
                partial(matmul, factors, table),
                partial(np.matmul, factors.astype(np.uint8), small.astype(np.uint8)),
                (rounds, least),
            )
    return found


def compare(
    ours: Callable[[], np.ndarray],
    wide: Callable[[], np.ndarray],
    plain: Callable[[], np.ndarray],
    turns: tuple[int, float],
) -> dict[str, object]:
    """A product of small words on every path, beside the one modulo 2^64 and numpy's own of the same small words."""
    right, all_paths = plain(), paths()
    works: dict[str, Callable[[], object]] = {"numpy's @": plain}
    for name, path in all_paths.items():
        if (run_on(path, ours) != right).any():
            raise ValueError(f"{name} computes small words wrongly")
        works[name] = partial(run_on, path, ours)
        works[f"{name}, 2^64"] = partial(run_on, path, wide)
    best = next(iter(all_paths))
    pairs = {f"2^64 / ours, {name}": f"{name}, 2^64 / {name}" for name in all_paths}
    return figures(in_turns(works, *turns), {**pairs, "numpy's @ / ours": f"numpy's @ / {best}"})


def run_on(path: RingLoops, work: Callable[[], np.ndarray]) -> np.ndarray:
    """Compute products on a path."""
    with patch.object(ring_paths, "_chosen", lambda: path):
        return work()


def trees(rows: int, repeats: int) -> dict[str, object]:
    """A tree's sums and sides at each of the three parties, by how the cells were dealt; each party owns a third."""
    rng = np.random.default_rng(0)
    owners = tuple(sorted(column % PARTIES for column in range(COLUMNS)))
    layout = CellLayout((BINS,) * COLUMNS, (False,) * COLUMNS, (0,) * COLUMNS, owners)
    codes = rng.integers(0, BINS, (COLUMNS, rows)).astype(np.uint8)
    own = [codes[[owner == party for owner in owners]] for party in range(PARTIES)]
    hot = (codes[:, None, :] == np.arange(BINS, dtype=np.uint8)[:, None]).reshape(-1, rows).astype(np.uint64)

    def words(*shape: int) -> Share:
        mine, after = rng.integers(0, 2**64, (2, *shape), dtype=np.uint64)
        return Share(mine, after)

    levels = range(DEPTH)
    values = [words(rows, 2 * max(1, (1 << level) // 2)) for level in levels]  # g and h of left children
    sides = [words(1 << level, layout.cells) for level in levels]
    found: dict[str, object] = {}
    for name in ("2^64, dealt", "2^32 and 2^8, dealt", "2^32 and 2^8, owned"):
        parties: dict[str, list[float]] = {"sums": [], "sides": [], "preparing once": [], "megabytes dealt": []}
        for index in range(PARTIES):
            cells, start, octets = make_cells(name, layout, hot, own, index)
            parties["preparing once"].append(time.process_time() - start)
            parties["megabytes dealt"].append(octets / 1e6)
            parties["sums"].append(sum(fastest(partial(cells.sum_by_cell, each), repeats) for each in values))
            parties["sides"].append(sum(fastest(partial(cells.choose_sides, each), repeats) for each in sides))
        found[name] = {
            "CPU milliseconds or megabytes, by party": {
                what: [round(one if what == "megabytes dealt" else 1e3 * one, 2) for one in each]
                for what, each in parties.items()
            },
            "sums and sides, all parties, CPU milliseconds": round(1e3 * sum(parties["sums"] + parties["sides"]), 1),
            "kilobytes dealt a row": round(1e3 * sum(parties["megabytes dealt"]) / rows, 2),
        }
    return found


def make_cells(
    name: str, layout: CellLayout, hot: np.ndarray, own: list[np.ndarray], index: int
) -> tuple[Cells, float, int]:
    """A party's cells, when it began to prepare them, and the octets that it received."""
    if name.startswith("2^64"):
        wide = deal_shares(hot)[index]
        start = time.process_time()
        return SharedCells(layout, wide.share(), index), start, wide.nbytes
    is_owned = name.endswith("owned")
    dealt = [deal_cells(layout, p, codes, computing=p if is_owned else None) for p, codes in enumerate(own)]
    received = [each.get(index) for each in dealt]
    start = time.process_time()
    parts = [
        own[party] if each is None else each if isinstance(each, DealtOwned) else each.share()
        for party, each in enumerate(received)
    ]
    return NarrowCells(layout, parts, index), start, sum(each.nbytes for each in received if each is not None)


def fastest(work: Callable[[], object], repeats: int) -> float:
    """CPU seconds of the fastest of some repeats."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows and rounds")
    quick = parser.parse_args().quick
    rows, rounds, least, repeats = (1_000, 3, 0.002, 2) if quick else (12_945, 9, 0.02, 7)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    content = {
        "cores": 1,
        "paths": list(paths()),
        "load at the start": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        f"kernels, {rows} rows": kernels(rows, rounds, least),
        f"a tree of depth {DEPTH}, {rows} rows": trees(rows, repeats),
    }
    write("shares_tables-quick" if quick else "shares_tables", content)


if __name__ == "__main__":
    main()
