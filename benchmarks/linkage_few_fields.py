"""Linkage by few fields: true beside estimated precision, and what placeholders of birthdays do to both.

    python -m benchmarks.linkage_few_fields [--rows 1500] [--seeds 5] [--quick]

Simulated files of households (`simulate_families`), half or a tenth in common, compared by names alone, with the
postcode, and with the birthday, at the automatic threshold. In *1900* nine birthdays of ten are 1 January 1900 in both
files, as some systems write what nobody knows; in *empty* the same ones are left out.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import numpy as np
from securevfl_psi.linkage import (
    Families,
    LinkageError,
    encode_records,
    find_placeholders,
    link_records,
    simulate_families,
)

from benchmarks.common import write
from benchmarks.linkage import KEY
from benchmarks.linkage_families import schema

NAMES = ("given_name", "surname")
CASES: dict[str, tuple[tuple[str, ...], str | None]] = {
    "names": (NAMES, None),
    "names, postcode": ((*NAMES, "postcode"), None),
    "names, birthday": ((*NAMES, "date_of_birth"), None),
    "names, birthday, 1900": ((*NAMES, "date_of_birth"), "19000101"),
    "names, birthday, empty": ((*NAMES, "date_of_birth"), ""),
}
"""Name → the fields, and what stands in nine birthdays of ten; None leaves them as they are."""


def tables_of(made: Families, fields: Sequence[str], instead: str | None) -> list[dict[str, list[object]]]:
    """Both files' columns."""
    found = []
    for side, table in enumerate(made.tables):
        columns: dict[str, list[object]] = {name: list(table[name]) for name in fields}
        if instead is not None:
            gone = np.random.default_rng(side).random(len(columns["surname"])) < 0.9
            days = zip(columns["date_of_birth"], gone.tolist(), strict=True)
            columns["date_of_birth"] = [(instead or None) if lost else day for day, lost in days]
        found.append(columns)
    return found


def one(made: Families, case: str) -> dict[str, float | str]:
    """One pair of files: the precision, as estimated and in truth, or why it is refused."""
    fields, instead = CASES[case]
    tables = tables_of(made, fields, instead)
    told = len(find_placeholders(tables[0], fields))
    a, b = (encode_records(table, schema(fields), KEY) for table in tables)
    try:
        linked = link_records(a, b)
    except LinkageError as error:
        return {"refused": str(error), "placeholders told": told}
    right = made.people[0][linked.rows_a] == made.people[1][linked.rows_b]
    return {
        "precision": float(right.mean()),
        "estimated": linked.precision,
        "pairs": float(len(right)),
        "placeholders told": told,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="300 rows, one seed")
    asked = parser.parse_args()
    rows, seeds = (300, 1) if asked.quick else (asked.rows, asked.seeds)
    found: dict[str, object] = {}
    for common in (0.5, 0.1):
        for case in CASES:
            runs = [one(simulate_families(rows, common=common, seed=10 + seed), case) for seed in range(seeds)]
            kept = [run for run in runs if "refused" not in run]
            means = {
                name: statistics.fmean(float(run[name]) for run in kept) for name in ("precision", "estimated") if kept
            }
            name = f"{case}, {common:.0%} in common"
            found[name] = {"refused": len(runs) - len(kept), **means, "runs": runs}
            print(name, len(runs) - len(kept), "refused", means, flush=True)
    write("linkage_few_fields", {"rows": rows, "cases": found})


if __name__ == "__main__":
    main()
