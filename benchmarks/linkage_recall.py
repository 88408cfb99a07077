"""Linkage of simulated families: do the bounds of the recall hold, and is the threshold right, at every overlap?

python -m benchmarks.linkage_recall [--rows N] [--seeds N] [--quick] [--others]

With --others, files of other seeds whose households go together with probability 0.8, for what was chosen on the first.

Every case's figures are kept in a file of the folder --folder, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from securevfl_psi.linkage import FamilyErrors, LinkageError, assign_greedy, encode_records, link_records, similar_pairs

from benchmarks.common import write
from benchmarks.linkage import KEY
from benchmarks.linkage_families import FIELDS, files_of, schema

OVERLAPS = (0.05, 0.1, 0.2, 0.5, 0.8, 1.0)
TOGETHER = (1.0, 0.5)
SURE = 0.9
"""The precision that is asked for where a threshold of its own is refused, as the refusal says."""
DIRT = {"12 % typing errors": FamilyErrors(), "30 % typing errors": FamilyErrors(typo=0.3, missing=0.08)}


def one(rows: int, common: float, together: float, seed: int, names: tuple[str, ...], dirt: str) -> dict[str, object]:
    """The linkage at its own threshold beside the truth."""
    files = files_of(rows, common, together, seed, DIRT[dirt])
    keep = [np.flatnonzero([any(v) for v in zip(*(t[n] for n in names), strict=True)]) for t in files.tables]
    tables = [{n: [t[n][i] for i in k] for n in names} for t, k in zip(files.tables, keep, strict=True)]
    people = [p[k] for p, k in zip(files.people, keep, strict=True)]
    a, b = (encode_records(table, schema(names), KEY) for table in tables)
    pairs = similar_pairs(a, b)
    taken = assign_greedy(pairs)
    right = np.cumsum(people[0][pairs.rows_a[taken]] == people[1][pairs.rows_b[taken]])
    best = float((2 * right / (np.arange(1, len(taken) + 1) + files.common)).max())
    try:
        found = link_records(a, b)
    except LinkageError as error:
        out: dict[str, object] = {"refused": str(error), "best f1": best}
        try:
            sure = link_records(a, b, precision=SURE)
        except LinkageError:
            return out
        true = int((people[0][sure.rows_a] == people[1][sure.rows_b]).sum())
        return out | {"asked precision": true / len(sure), "asked recall": true / files.common}
    true = int((people[0][found.rows_a] == people[1][found.rows_b]).sum())
    return {
        "best f1": best,
        "f1": 2 * true / (len(found) + files.common),
        "precision": true / len(found),
        "estimated precision": found.precision,
        "recall": true / files.common,
        "estimated recall": found.recall,
        "bounds": found.recall_between,
    }


def told(runs: list[dict[str, object]]) -> dict[str, object]:
    """Means, and how often the bounds hold."""
    made = [run for run in runs if "refused" not in run]
    out: dict[str, object] = {"runs": len(runs), "refused": len(runs) - len(made)}
    if made:
        mean = lambda name: round(float(np.mean([run[name] for run in made])), 3)  # type: ignore[misc]  # noqa: E731
        out |= {name: mean(name) for name in ("f1", "best f1", "precision", "estimated precision", "recall")}
        lows, highs = zip(*(run["bounds"] for run in made), strict=True)  # type: ignore[misc]
        out |= {"least": round(float(np.mean(lows)), 3), "most": round(float(np.mean(highs)), 3)}
        recalls = [float(run["recall"]) for run in made]  # type: ignore[arg-type]
        out["hold"] = sum(low <= r <= high for low, r, high in zip(lows, recalls, highs, strict=True))
    asked = [run for run in runs if "asked precision" in run]
    if asked:
        precisions, recalls = ([float(run[f"asked {what}"]) for run in asked] for what in ("precision", "recall"))  # type: ignore[arg-type]
        out["of those refused, at a precision of 0.9"] = {
            "runs": len(asked),
            "precision": round(float(np.mean(precisions)), 3),
            "least precision": round(min(precisions), 3),
            "recall": round(float(np.mean(recalls)), 3),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--fields", choices=list(FIELDS), action="append", help="default: all three sets")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "securevfl_linkage_recall")
    parser.add_argument("--others", action="store_true", help="seeds from 100 on, households together by 0.8")
    parser.add_argument("--quick", action="store_true", help="two cases of 300 rows and one seed")
    options = parser.parse_args()
    first = 100 if options.others else 0
    overlaps, kinds = OVERLAPS, options.fields or list(FIELDS)
    if options.quick:
        options.rows, options.seeds, overlaps, kinds = 300, 1, (0.2, 0.8), ["all fields"]
    options.folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, object] = {"rows": options.rows, "seeds": options.seeds}
    for kind in kinds:
        for dirt in DIRT:
            for together in (0.8,) if options.others else TOGETHER[:1] if options.quick else TOGETHER:
                for common in overlaps:
                    name = f"{kind}, {dirt}, together {together}, {common:.0%} in common"
                    path = options.folder / f"{options.rows} {options.seeds} {name}.json"
                    if not path.exists():
                        seeds, names = range(first, first + options.seeds), FIELDS[kind]
                        runs = [one(options.rows, common, together, s, names, dirt) for s in seeds]
                        path.write_text(json.dumps(told(runs)), encoding="utf-8")
                    figures[name] = json.loads(path.read_text(encoding="utf-8"))
                    print(time.strftime("%H:%M:%S"), name, figures[name], flush=True)
    write("linkage_recall_others" if options.others else "linkage_recall", figures)


if __name__ == "__main__":
    main()
