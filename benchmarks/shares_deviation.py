"""What a computing party that deviates reads of a partner's column, and whether the range bit shows it.

    python -m benchmarks.shares_deviation

A logistic regression on shares, 256 rows, twelve steps; the party adds numbers to the weights of one column in the last
step (`tests/support/deviating.py`). The active party then opens final predictions, one number a row. Columns of yes and
no are packed, several into one number. Seconds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.deviating import ATTACKED, Reading, column_weights, draw_tables, packed_columns, read_by_deviating

OWN, THEIRS, LABELS = draw_tables()
CASES: dict[str, dict[str, Any]] = {
    "no deviation": {"size": 0.0},
    "party 0 adds 1024": {"size": 1024.0},
    "party 1 adds 1024": {"size": 1024.0, "party": 1},
    "party 2 adds 1024": {"size": 1024.0, "party": 2},
    "party 0 adds 1024, and to the range bit": {"size": 1024.0, "forges": True},
    "party 1 adds 1024, and to the range bit": {"size": 1024.0, "party": 1, "forges": True},
    "party 2 adds 1024, and to the range bit": {"size": 1024.0, "party": 2, "forges": True},
    "party 0 adds 15": {"size": 15.0},
    "party 0 adds 15, step of 2^-14": {"size": 15.0, "rate": 2.0**-14},
    "party 0 adds 15, step of 2^-14, predictions at 2^-4": {"size": 15.0, "rate": 2.0**-14, "bits": 4},
}


def figures(found: Reading) -> dict[str, object]:
    """The range bit, and how well a line through the opened numbers gives the income."""
    income = THEIRS[:, ATTACKED]
    line = np.polyval(np.polyfit(found.logits, income, 1), found.logits)
    return {
        "range bit": list(found.bits),
        "correlation": round(abs(float(np.corrcoef(found.logits, income)[0, 1])), 4),
        "R2": round(1 - float(((line - income) ** 2).mean() / income.var()), 6),
    }


def main() -> None:
    """Run, print, write."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    found: dict[str, object] = {}
    for name, case in CASES.items():
        given = dict(case)
        size = float(given.pop("size"))
        weights = column_weights(size) if size else None
        found[name] = figures(read_by_deviating(OWN, THEIRS, LABELS, weights, **given))
    packed = {}
    for bits, columns in ((8, 12), (8, 9), (4, 7)):
        yes, read, bit = packed_columns(columns, bits)
        right = (yes == read).mean(axis=0)
        packed[f"{columns} columns of yes and no in one number at 2^-{bits}"] = {
            "range bit": list(bit),
            "cells right": round(float(right.mean()), 4),
            "worst column": round(float(right.min()), 4),
        }
    write("shares_deviation", {"rows": len(OWN), "one column": found, "packed": packed})


if __name__ == "__main__":
    main()
