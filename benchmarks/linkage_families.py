"""Linkage of simulated files of households beside anonlink; estimated beside true recall; and match scores as weights.

python -m benchmarks.linkage_families [--peer-python PATH] [--rows N] [--seeds N] [--quick]

Every seed's figures are kept in a file of the folder --folder, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from securevfl_psi.linkage import (
    FamilyErrors,
    Field,
    LinkageError,
    Schema,
    Text,
    Whole,
    assign_greedy,
    encode_records,
    estimate_by_witnesses,
    estimate_matches,
    find_duplicates,
    link_records,
    similar_pairs,
    simulate_families,
    witness_tokens,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.common import before, write
from benchmarks.linkage import KEY, KINDS, Files, credit, peer

NAMES = ("given_name", "surname", "street_number", "street", "suburb", "postcode", "phone", "date_of_birth")
FIELDS = {
    "all fields": NAMES,
    "without birth date": NAMES[:-1],
    "names, phone, birth date": ("given_name", "surname", "phone", "date_of_birth"),
}
WITNESSES = (
    {"surname": Whole(), "date_of_birth": Whole()},
    {"given_name": Whole(), "phone": Whole()},
)
WITNESSED = {
    "8 % move, typing errors in 12 % of the values": FamilyErrors(),
    "errors in 25 %": FamilyErrors(typo=0.25, missing=0.08),
    "errors come together": FamilyErrors(uneven=2.0),
}
CASES = [(common, together) for together in (1.0, 0.8, 0.5) for common in (0.8, 0.5, 0.1)]


def schema(names: tuple[str, ...]) -> Schema:
    return Schema(fields=tuple(Field(name=n, kind=KINDS.get(n, Text())) for n in names))


def files_of(rows: int, common: float, together: float, seed: int, errors: FamilyErrors) -> Files:
    made = simulate_families(rows, common=common, together=together, seed=seed, errors=errors)
    tables = [{name: [value or "" for value in column] for name, column in table.items()} for table in made.tables]
    return Files((tables[0], tables[1]), made.people)


def ours(files: Files, names: tuple[str, ...]) -> dict[str, object]:
    """At the automatic threshold, at the best of any, and at that of an estimate that knows no households."""
    keep = [np.flatnonzero([any(v) for v in zip(*(t[n] for n in names), strict=True)]) for t in files.tables]
    tables = [{n: [t[n][i] for i in k] for n in names} for t, k in zip(files.tables, keep, strict=True)]
    people = tuple(p[k] for p, k in zip(files.people, keep, strict=True))
    a, b = (encode_records(table, schema(names), KEY) for table in tables)
    candidates = similar_pairs(a, b)
    taken = assign_greedy(candidates)
    scores, rows_a, rows_b = candidates.scores[taken], candidates.rows_a[taken], candidates.rows_b[taken]
    right, count = np.cumsum(people[0][rows_a] == people[1][rows_b]), np.arange(1, len(taken) + 1)
    f1 = 2 * right / (count + files.common)
    out: dict[str, object] = {"best f1": float(f1.max()), "best threshold": float(scores[f1.argmax()])}
    for name, encodings in (("households", (a, b)), ("strangers only", None)):
        try:
            found = estimate_matches(candidates, taken, encodings)
            threshold = found.choose_threshold()
        except LinkageError as error:
            out[name] = {"refused": str(error)}
            continue
        at = int(np.searchsorted(-scores, -threshold, side="right"))
        out[name] = {
            "threshold": threshold,
            "precision": float(right[at - 1] / at),
            "recall": float(right[at - 1] / files.common),
            "f1": float(f1[at - 1]),
            "estimated precision": found.precision(threshold),
            "estimated recall": found.recall(threshold),
        }
    return out


def weights(files: Files, seed: int, train: int = 3000) -> dict[str, float]:
    """AUC of a logistic regression of credit clients named like the records: on true pairs, on linked ones, and on
    linked ones weighted by the probability of the pair; at two thresholds. Test clients were never linked."""
    bank, other, label = credit()
    rows = np.random.default_rng(seed).permutation(len(label))
    everyone = np.union1d(*files.people)
    client = dict(zip(everyone.tolist(), rows[: len(everyone)].tolist(), strict=True))
    test = rows[len(everyone) :]
    a, b = (encode_records(table, schema(NAMES), KEY) for table in files.tables)
    out: dict[str, float] = {}

    def auc(of_a: np.ndarray, of_b: np.ndarray, weight: np.ndarray | None) -> float:
        x = np.hstack([bank[of_a], other[of_b]])
        mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
        model = LogisticRegression(max_iter=2000).fit((x - mean) / scale, label[of_a], sample_weight=weight)
        held = (np.hstack([bank[test], other[test]]) - mean) / scale
        return float(roc_auc_score(label[test], model.predict_proba(held)[:, 1]))

    true = np.array([client[p] for p in np.intersect1d(*files.people).tolist()])
    out["true pairs"] = auc(true, true, None)
    automatic = link_records(a, b)
    for name, linked in (
        ("automatic", automatic),
        ("generous", link_records(a, b, threshold=automatic.threshold - 0.1)),
    ):
        of = [np.array([client[p] for p in people[r].tolist()]) for people, r in
              zip(files.people, (linked.rows_a, linked.rows_b), strict=True)]  # fmt: skip
        out[f"{name}, wrong"] = float((of[0] != of[1]).mean())
        out[name] = auc(of[0], of[1], None)
        out[f"{name}, weighted"] = auc(of[0], of[1], np.maximum(linked.probabilities, 1e-6))
    return out


def witnessed(rows: int, common: float, together: float, seed: int, errors: FamilyErrors) -> dict[str, object]:
    """With two sets of fields as witnesses: estimates and their intervals beside the truth, at the threshold that they
    give, beside what the scores alone say at theirs."""
    files = files_of(rows, common, together, seed, errors)
    keep = [np.flatnonzero([any(v) for v in zip(*(t[n] for n in NAMES), strict=True)]) for t in files.tables]
    tables = [{n: [t[n][i] for i in k] for n in NAMES} for t, k in zip(files.tables, keep, strict=True)]
    people = [p[k] for p, k in zip(files.people, keep, strict=True)]
    a, b = (encode_records(table, schema(NAMES), KEY) for table in tables)
    one, other = (witness_tokens(table, schema(NAMES), WITNESSES, KEY) for table in tables)
    candidates = similar_pairs(a, b)
    taken = assign_greedy(candidates)
    scores = candidates.scores[taken]
    right = np.cumsum(people[0][candidates.rows_a[taken]] == people[1][candidates.rows_b[taken]])
    f1 = 2 * right / (np.arange(1, len(taken) + 1) + files.common)
    out: dict[str, object] = {"people": files.common, "best f1": float(f1.max())}
    try:
        found = estimate_by_witnesses(candidates, taken, (a, b), (one, other))
        threshold = found.choose_threshold()
    except LinkageError as error:
        return out | {"refused": str(error)}
    at = int(np.searchsorted(-scores, -threshold, side="right"))
    precision, recall = found.confidence_ranges(threshold)
    out |= {"estimated people": found.common, "people, 95 %": found.common_range, "f1": float(f1[at - 1])}
    out |= {"precision": float(right[at - 1] / at), "recall": float(right[at - 1] / files.common)}
    out |= {"estimated precision": found.precision(threshold), "precision, 95 %": precision}
    out |= {"estimated recall": found.recall(threshold), "recall, 95 %": recall}
    try:
        alone = estimate_matches(candidates, taken, (a, b))
        threshold = alone.choose_threshold()
    except LinkageError as error:
        return out | {"scores alone": {"refused": str(error)}}
    at = int(np.searchsorted(-scores, -threshold, side="right"))
    told = {"f1": float(f1[at - 1]), "recall": float(right[at - 1] / files.common)}
    return out | {"scores alone": told | {"estimated recall": alone.recall(threshold)}}


def duplicates(rows: int, seed: int) -> dict[str, int]:
    made = simulate_families(rows, errors=FamilyErrors(duplicates=0.05), seed=seed)
    out = {"duplicates": 0, "merged": 0, "merged wrongly": 0}
    for table, people in zip(made.tables, made.people, strict=True):
        found = find_duplicates(table, schema(NAMES))
        out["duplicates"] += len(people) - len(np.unique(people))
        out["merged"] += found.duplicates
        out["merged wrongly"] += int((people != people[found.rows[found.person]]).sum())
    return out


def of_witnesses(kept: Callable[[str, Callable[[], object]], object], seeds: int) -> dict[str, list[object]]:
    """Errors, share in common, and how far households are together → a run for each seed."""
    return {
        f"{label}; {common:.0%} in common, together {together}": [
            kept(
                f"witnessed_{label[:9]}_{common}_{together}_{seed}".replace(" ", "_"),
                partial(witnessed, 1000, common, together, seed, errors),
            )
            for seed in range(seeds)
        ]
        for label, errors in WITNESSED.items()
        for common in (0.8, 0.5, 0.2, 0.1)
        for together in (1.0, 0.5)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", default=sys.executable, help="a Python that has clkhash and anonlink")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recall-seeds", type=int, default=20, help="files of 2,000 rows, nobody moves and with moves")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "securevfl_linkage_families")
    parser.add_argument("--only-witnesses", action="store_true", help="keep the other figures of the last run")
    parser.add_argument("--quick", action="store_true", help="one case of 500 rows and one seed of each part")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.seeds, options.recall_seeds = 500, 1, 1
    options.folder.mkdir(parents=True, exist_ok=True)

    def kept(name: str, make: object) -> object:
        path = options.folder / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(make()), encoding="utf-8")  # type: ignore[operator]
            print(time.strftime("%H:%M:%S"), name, flush=True)
        return json.loads(path.read_text(encoding="utf-8"))

    if options.only_witnesses:
        write("linkage_families", before("linkage_families") | {"witnesses, 1,000 rows": of_witnesses(kept, 20)})
        return
    moving, staying = FamilyErrors(), FamilyErrors(household_moves=0, member_moves=0)
    figures: dict[str, object] = {"rows": options.rows, "seeds": options.seeds}
    estimated: dict[str, list[object]] = {"nobody moves": [], "8 % move": []}
    for label, errors in (("nobody moves", staying), ("8 % move", moving)):
        for seed in range(options.recall_seeds):
            name = f"recall_{label[0]}_{seed}"
            estimated[label].append(
                kept(name, lambda s=seed, e=errors: ours(files_of(2000, 0.6, 0.8, s, e), NAMES))  # type: ignore[misc]
            )
    figures["estimates, 2,000 rows, all fields"] = estimated
    figures["weights"] = [
        kept(f"weights_{seed}", lambda s=seed: weights(files_of(3000, 0.6, 0.5, s, moving), s))
        for seed in range(1 if options.quick else 5)
    ]
    figures["witnesses, 1,000 rows"] = of_witnesses(kept, 1 if options.quick else 20)
    figures["duplicates, 3,000 rows"] = [
        kept(f"duplicates_{seed}", lambda s=seed: duplicates(3000, s)) for seed in range(1 if options.quick else 5)
    ]
    for common, together in CASES[:1] if options.quick else CASES:
        for seed in range(options.seeds):
            for label, names in FIELDS.items():
                name = f"{options.rows}_{common}_{together}_{label.replace(' ', '_').replace(',', '')}_{seed}"

                def both(s: int = seed, c: float = common, t: float = together, n: tuple[str, ...] = names) -> object:
                    files = files_of(options.rows, c, t, s, moving)
                    found = ours(files, n)
                    if s == 0:
                        found["peer"] = peer({"files": (files, n)}, options.peer_python)
                    return found

                figures[f"{label}, {common:.0%} in common, together {together}, seed {seed}"] = kept(name, both)
    write("linkage_families", figures)


if __name__ == "__main__":
    main()
