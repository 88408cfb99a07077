"""What may be asked on secret shares: attacks by the active party, before the rules that bound them and after, and the
honest job beside them.

    python -m benchmarks.asked [--quick] [--seeds N] [--only TEXT] [--again]

Two tables: the UCI credit table, and Fashion-MNIST in 16 means of pixels, on which no rule was shaped. *On shares* runs
real jobs, all parties in one process; *twins* are the same models in the clear, for matrices of many jobs. On shares
each attack runs under the rules as they come between organisations (`on`) and with each rule switched off that has a
switch (`off`); in a version without rules, once (`before`). Where rules refuse, the cell holds
the refusal. Cells that are done stay in ``results/asked.json`` and are not run again, unless with `--again`;
`--quick` writes nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.asking.attacks import ATTACKS
from benchmarks.asking.runs import has_rules
from benchmarks.asking.second import SECOND
from benchmarks.asking.tables import TABLES, Table
from benchmarks.asking.third import THIRD
from benchmarks.asking.twins import KINDS, matrix, passes
from benchmarks.common import before, data, write

SIZES = ((800, 200), (1600, 400), (6400, 1600))
_LABELS = ("honest", "coin", "own columns and 20 % coin", "a column, 300 rows known")
_HONEST_SEEDS = 10

Work = Callable[[], dict[str, Any]]


def cells(table: Table, seeds: int, *, quick: bool) -> Iterator[tuple[str, Work]]:
    """Every cell of a table: its name and what computes it.

    Args:
        table: asked about.
        seeds: of attacks; the honest job has ten, and one in the quick size.
        quick: whether sizes are small.
    """
    for rules in ("on", "off") if has_rules() else ("before",):
        for name, attack in (dict(ATTACKS) | (dict(SECOND) | dict(THIRD) if rules == "on" else {})).items():
            more = (1 if quick else _HONEST_SEEDS) if name == "honest" else seeds
            for seed in range(more):
                yield (
                    f"shares, {rules}, {name}, {table.name}, seed {seed}",
                    partial(attack, table, rules, seed, quick),
                )
    tries = 4 if quick else 24
    for kind in list(KINDS)[:1] if quick else KINDS:
        for seed in range(1 if quick else seeds):
            yield f"twins, {kind}, {table.name}, seed {seed}", partial(matrix, table, kind, seed)
    labels = (*_LABELS, *(f"one party alone: {party}" for party in table.passive))
    for label in labels[:2] if quick else labels:
        for train, valid in SIZES[:1] if quick else SIZES:
            yield (
                f"twins, passes, {label}, {table.name}, {train}+{valid}",
                partial(passes, table, label, train, valid, tries),
            )


def main() -> None:
    """Run what is not there yet, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one table, small sizes, half a minute")
    parser.add_argument("--seeds", type=int, default=3, help="of attacks")
    parser.add_argument("--only", default="", help="cells whose name contains one of a|b|c")
    parser.add_argument("--again", action="store_true", help="also cells that are there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {} if options.quick else dict(before("asked").get("cells", {}))  # type: ignore[call-overload]
    for what in list(TABLES)[:1] if options.quick else TABLES:
        table = data(TABLES[what], f"the table {what}")
        if table is None:
            continue
        for cell, work in cells(table, 1 if options.quick else options.seeds, quick=options.quick):
            if not any(text in cell for text in options.only.split("|")):
                continue
            if cell in found and not options.again:
                continue
            start = time.perf_counter()
            found[cell] = work()
            print(f"{time.perf_counter() - start:6.1f} s  {cell}: {found[cell]}", flush=True)
            if not options.quick:
                write("asked", {"cells": found}, show=False)


if __name__ == "__main__":
    main()
