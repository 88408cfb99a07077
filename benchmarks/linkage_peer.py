"""clkhash and anonlink on the records of a file, for `benchmarks.linkage`.

Needs nothing else of this repository, so that it runs in an environment of its own: clkhash 0.18.3 pins an older
`cryptography` than this project.

python benchmarks/linkage_peer.py REQUEST.json ANSWER.json
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time

import anonlink
from clkhash import clk
from clkhash.comparators import NgramComparison
from clkhash.field_formats import BitsPerFeatureStrategy, FieldHashingProperties, StringSpec
from clkhash.key_derivation import generate_key_lists
from clkhash.schema import Schema

LENGTH = 1024


def schema(fields: list[dict[str, object]], total: int, folds: int) -> Schema:
    """One string field each: bigrams of texts, positional single characters of codes and dates; `total` bits shared."""
    specs = []
    for field in fields:
        positional = field["kind"] != "text"
        hashing = FieldHashingProperties(
            comparator=NgramComparison(1 if positional else 2, positional=positional),
            strategy=BitsPerFeatureStrategy(total // len(fields)),
        )
        specs.append(StringSpec(str(field["name"]), hashing))
    return Schema(specs, LENGTH << folds, xor_folds=folds)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    out = []
    for task in request["tasks"]:
        plan = schema(task["fields"], task["total_bits"], task["folds"])
        keys = generate_key_lists("secret of the parties", len(task["fields"]))
        start = time.perf_counter()
        encoded = [clk.hash_chunk(task[part], keys, plan, validate_data=False)[0] for part in ("a", "b")]
        hashed = time.perf_counter()
        candidates = anonlink.candidate_generation.find_candidate_pairs(
            encoded, anonlink.similarities.dice_coefficient, task["threshold"]
        )
        groups = anonlink.solving.greedy_solve(candidates)
        done = time.perf_counter()
        score = {
            (int(i), int(j)): float(s)
            for s, i, j in zip(candidates[0], candidates[2][0], candidates[2][1], strict=True)
        }
        pairs = []
        for group in groups:
            if len(group) == 2:
                rows = dict(group)
                pairs.append((rows[0], rows[1], score[rows[0], rows[1]]))
        out.append({"pairs": pairs, "seconds encode": hashed - start, "seconds link": done - hashed})
    versions = {name: importlib.metadata.version(name) for name in ("clkhash", "anonlink")}
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump({"versions": versions, "answers": out}, file)


if __name__ == "__main__":
    main()
