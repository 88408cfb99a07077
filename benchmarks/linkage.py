"""Record linkage on FEBRL4 beside clkhash + anonlink, same fields, in one run; and what wrong pairs cost a model.

python -m benchmarks.linkage [--peer-python PATH] [--quick]

FEBRL4 is looked for where SECUREVFL_DATA points, or in ../shared/data; without it only the experiment on wrong pairs
runs, on the credit table of the package. The peers run in a Python of their own if one is named (clkhash 0.18.3 needs
an older `cryptography` than this project), or in this one; without them only our figures are written. Our thresholds
are chosen without the truth, the peers' is fixed.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from securevfl_psi.linkage import (
    Balanced,
    Blip,
    Code,
    Date,
    Encodings,
    Field,
    Hardening,
    LinkageError,
    Prefix,
    Schema,
    Soundex,
    Text,
    Whole,
    XorFold,
    assign_greedy,
    blocking_tokens,
    encode_records,
    hamming_tokens,
    link_records,
    similar_pairs,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import skip
from benchmarks.common import write

KEY = hashlib.sha256(b"benchmarks.linkage").digest()  # fixed, so that figures repeat; another moves F1 by some 0.0005
DATA = Path(os.environ.get("SECUREVFL_DATA", Path(__file__).parents[2] / "shared" / "data"))
ADDRESS = ("given_name", "surname", "street_number", "address_1", "address_2", "suburb", "postcode", "state")
FIELDS = {
    "names + address": ADDRESS,
    "names + address + birth date": (*ADDRESS, "date_of_birth"),
    "names + birth date": ("given_name", "surname", "date_of_birth"),
}
KINDS = {"street_number": Code(), "postcode": Code(), "phone": Code(), "date_of_birth": Date()}
NAMES_OF_KINDS = {Code: "code", Date: "date", Text: "text"}
PEER_BITS = (300, 500, 700)
"""Bits that all fields of a record set together, in the peer's filter of 1024."""
PEER_LEAST = {300: 0.5, 500: 0.57, 700: 0.62}
"""Where the peer's own pairs are cut to look for its best threshold; lower ones make its solver take minutes."""


@dataclass(frozen=True)
class Files:
    """Two files of records and, for each, who is meant."""

    tables: tuple[dict[str, list[str]], dict[str, list[str]]]
    people: tuple[np.ndarray, np.ndarray]

    @property
    def common(self) -> int:
        return len(np.intersect1d(*self.people))

    def quality(self, rows_a: np.ndarray, rows_b: np.ndarray) -> dict[str, float]:
        right = int((self.people[0][rows_a] == self.people[1][rows_b]).sum())
        precision, recall = right / max(len(rows_a), 1), right / self.common
        return {"precision": precision, "recall": recall, "f1": 2 * right / (len(rows_a) + self.common)}

    def best(self, rows_a: np.ndarray, rows_b: np.ndarray, scores: np.ndarray) -> dict[str, float]:
        """The best F1 of all thresholds, chosen by the truth; pairs come most similar first."""
        right = np.cumsum(self.people[0][rows_a] == self.people[1][rows_b])
        f1 = 2 * right / (np.arange(1, len(right) + 1) + self.common)
        return {"f1": float(f1.max()), "threshold": float(scores[f1.argmax()])}


def febrl(a: int = 5000, common: int = 5000) -> Files:
    """FEBRL4; with smaller numbers, `a` records a side of which `common` are the same people."""
    tables, people = [], []
    for part in "ab":
        with gzip.open(DATA / f"febrl4{part}.csv.gz", "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        person = np.array([int(row["rec_id"].split("-")[1]) for row in rows])
        order = np.random.default_rng(0).permutation(5000)
        wanted = order[:a] if part == "a" else np.r_[order[:common], order[a : 2 * a - common]]
        keep = np.flatnonzero(np.isin(person, wanted))
        tables.append({name: [rows[i][name] for i in keep] for name in rows[0]})
        people.append(person[keep])
    return Files((tables[0], tables[1]), (people[0], people[1]))


def schema(names: tuple[str, ...], hardening: tuple[Hardening, ...] = (XorFold(),), salt: str | None = None) -> Schema:
    salted = ("given_name", "surname") if salt else ()
    fields = (Field(name=n, kind=KINDS.get(n, Text()), salt=salt if n in salted else None) for n in names)
    return Schema(fields=tuple(fields), hardening=hardening)


def ours(files: Files, plan: Schema, rules: list[dict[str, object]] | str | None = None) -> dict[str, object]:
    start = time.perf_counter()
    a, b = (encode_records(table, plan, KEY) for table in files.tables)
    blocks = blocks_of(files, plan, rules, (a, b))
    encoded = time.perf_counter()
    try:
        linked = link_records(a, b, blocks=blocks)
    except LinkageError as error:
        return {"refused": str(error)}
    done = time.perf_counter()
    candidates = similar_pairs(a, b, blocks=blocks)
    taken = assign_greedy(candidates)
    return {
        **files.quality(linked.rows_a, linked.rows_b),
        "threshold": linked.threshold,
        "estimated precision": linked.precision,
        "estimated recall": linked.recall,
        "best threshold by the truth": files.best(
            candidates.rows_a[taken], candidates.rows_b[taken], candidates.scores[taken]
        ),
        "pairs compared": linked.compared,
        "seconds encode": encoded - start,
        "seconds link": done - encoded,
    }


def blocks_of(
    files: Files,
    plan: Schema,
    rules: list[dict[str, object]] | str | None,
    encoded: tuple[Encodings, Encodings],
) -> tuple[np.ndarray, np.ndarray] | None:
    if rules is None:
        return None
    if isinstance(rules, str):
        return hamming_tokens(encoded[0]), hamming_tokens(encoded[1])
    of = [blocking_tokens(table, plan, rules, KEY) for table in files.tables]  # type: ignore[arg-type]
    return of[0], of[1]


def peer(cases: dict[str, tuple[Files, tuple[str, ...]]], python: str) -> dict[str, object]:
    """clkhash's CLKs of 1024 bits and anonlink's greedy solver, by bits of a record and number of foldings."""
    tasks, labels = [], []
    for case, (files, names) in cases.items():
        fields = [{"name": name, "kind": NAMES_OF_KINDS[type(KINDS.get(name, Text()))]} for name in names]
        rows = [[list(row) for row in zip(*(t[n] for n in names), strict=True)] for t in files.tables]
        for folds in (0, 1):
            for total in PEER_BITS:
                task = {"fields": fields, "a": rows[0], "b": rows[1], "total_bits": total << folds, "folds": folds}
                tasks += [{**task, "threshold": at} for at in (0.7, PEER_LEAST[total])]
                labels += [(case, folds, total, at) for at in ("0.70", "least")]
    with tempfile.TemporaryDirectory() as folder:
        request, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        request.write_text(json.dumps({"tasks": tasks}), encoding="utf-8")
        script = Path(__file__).parent / "linkage_peer.py"
        done = subprocess.run([python, script, request, answer], check=False, capture_output=True, text=True)
        if "ModuleNotFoundError" in done.stderr:
            skip.note("clkhash and anonlink", "they are not installed: see benchmarks/linkage_peer.py")
            return {"absent": "clkhash 0.18.3 and anonlink 0.15.3 were not installed"}
        if done.returncode:
            raise RuntimeError(done.stderr)
        got = json.loads(answer.read_text(encoding="utf-8"))
    out: dict[str, object] = {"versions": got["versions"]}
    for (case, folds, total, at), result in zip(labels, got["answers"], strict=True):
        files = cases[case][0]
        pairs = sorted(((-s, i, j) for i, j, s in result["pairs"]))
        scores, rows_a, rows_b = (np.array(c) for c in zip(*pairs, strict=True))
        scores, rows_a, rows_b = -scores, rows_a.astype(np.int64), rows_b.astype(np.int64)
        entry = out.setdefault(case, {}).setdefault(f"{total} bits, {folds} foldings", {})  # type: ignore[attr-defined]
        if at == "least":
            entry["best threshold by the truth"] = files.best(rows_a, rows_b, scores)
            continue
        for threshold in (0.7, 0.8, 0.9):
            keep = scores >= threshold
            entry[f"at {threshold:.2f}"] = files.quality(rows_a[keep], rows_b[keep])
        entry |= {name: result[name] for name in ("seconds encode", "seconds link")}
    return out


def exact(files: Files) -> float:
    """Share of the true pairs that are equal in names and birth date."""
    names = FIELDS["names + birth date"]
    seen = [dict(zip(p.tolist(), zip(*(t[n] for n in names), strict=True), strict=True)) for p, t in
            zip(files.people, files.tables, strict=True)]  # fmt: skip
    return sum(seen[0][p] == seen[1][p] and all(seen[0][p]) for p in seen[0] if p in seen[1]) / files.common


def credit() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of the bank (limit, person, bills), of the other (repayment status, payments), and the label."""
    packed = resources.files("securevfl.data") / "files" / "default_credit.csv.xz"
    with packed.open("rb") as stream, lzma.open(stream, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    other = [name for name in rows[0] if name.startswith("PAY_")]
    label = next(name for name in rows[0] if name.startswith("default"))
    bank = [name for name in rows[0] if name not in other and name not in (label, "ID")]
    take = lambda names: np.array([[float(row[n]) for n in names] for row in rows])  # noqa: E731
    return take(bank), take(other), take([label])[:, 0].astype(int)


def auc(
    bank: np.ndarray, other: np.ndarray, label: np.ndarray, test: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> float:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(np.hstack([bank, other]), label)
    return float(roc_auc_score(test[2], model.predict_proba(np.hstack(test[:2]))[:, 1]))


def wrong_pairs(seeds: int = 5, train: int = 5000) -> dict[str, object]:
    """AUC of a logistic regression on rows of which a share was paired with another person's: on rightly paired test
    rows, and where the test rows are as wrong."""
    columns = credit()
    out: dict[str, object] = {}
    for rate in (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        figures = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(columns[2]))
            (bank, other, label), test = ((c[part] for c in columns) for part in (order[:train], order[train:]))
            clean = tuple(test)
            dirty = (clean[0], mispaired(clean[1], rate, rng), clean[2])
            given = mispaired(other, rate, rng)
            bank = np.asarray(bank)
            figures.append((auc(bank, given, label, clean), auc(bank, given, label, dirty)))  # type: ignore[arg-type]
        mean = np.mean(figures, axis=0)
        out[f"{rate:.3f}"] = {"auc": float(mean[0]), "auc, test rows as wrong": float(mean[1])}
    return out


def mispaired(rows: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """A share of the rows, passed round among themselves."""
    rows = np.array(rows)
    wrong = rng.permutation(len(rows))[: round(rate * len(rows))]
    rows[wrong] = rows[np.roll(wrong, 1)]
    return rows


def end_to_end(train: int = 5000) -> dict[str, object]:
    """Credit clients with FEBRL4's names: link, train on what was linked, test on clients that were never linked."""
    columns = credit()
    files = febrl()
    rows = np.random.default_rng(0).permutation(len(columns[2]))
    client = {person: rows[i] for i, person in enumerate(sorted(files.people[0].tolist()))}
    test = tuple(c[rows[train:]] for c in columns)
    out: dict[str, object] = {}
    for name, names in {**FIELDS, "names + suburb": ("given_name", "surname", "suburb")}.items():
        a, b = (encode_records(table, schema(names), KEY) for table in filled(files, names).tables)
        linked = link_records(a, b)
        of = [np.array([client[p] for p in filled(files, names).people[side][r].tolist()])
              for side, r in ((0, linked.rows_a), (1, linked.rows_b))]  # fmt: skip
        got = auc(columns[0][of[0]], columns[1][of[1]], columns[2][of[0]], test)  # type: ignore[arg-type]
        out[name] = {"pairs": len(linked), "wrong": float((of[0] != of[1]).mean()), "auc": got}
    every = rows[:train]
    out["true pairs"] = {"pairs": train, "wrong": 0.0, "auc": auc(*(c[every] for c in columns), test)}  # type: ignore[arg-type, call-arg]
    nothing = np.zeros((train, 0))
    alone = (test[0], np.zeros((len(test[0]), 0)), test[2])
    out["the bank alone"] = {"pairs": 0, "wrong": 0.0, "auc": auc(columns[0][every], nothing, columns[2][every], alone)}
    return out


def filled(files: Files, names: tuple[str, ...]) -> Files:
    """Without the records that have none of the fields."""
    keep = [np.flatnonzero([any(v) for v in zip(*(t[n] for n in names), strict=True)]) for t in files.tables]
    tables = [{n: [c[i] for i in k] for n, c in t.items()} for t, k in zip(files.tables, keep, strict=True)]
    people = [p[k] for p, k in zip(files.people, keep, strict=True)]
    return Files((tables[0], tables[1]), (people[0], people[1]))


def linkage(python: str, *, quick: bool) -> dict[str, object]:
    """All figures that need FEBRL4."""
    everyone, half, tenth = febrl(), febrl(2500, 1250), febrl(2500, 250)
    if quick:
        everyone, half, tenth = febrl(500, 500), febrl(500, 250), febrl(500, 100)
    n = everyone.common
    cases = {f"{name}, all {n}": (filled(everyone, names), names) for name, names in FIELDS.items()}
    for files in (half, tenth):
        label = f"{files.common} of {len(files.people[0])}"
        cases |= {f"{name}, {label}": (filled(files, names), names) for name, names in FIELDS.items()}
    full = FIELDS["names + address + birth date"]
    rules: list[dict[str, object]] = [
        {"surname": Soundex(), "given_name": Soundex()},
        {"postcode": Whole()},
        {"date_of_birth": Whole()},
        {"suburb": Prefix(5), "surname": Prefix(1)},
    ]
    hardened = {
        "none": schema(full, ()),
        "XorFold (default)": schema(full),
        "Balanced": schema(full, (Balanced(),)),
        "XorFold, Blip(0.02)": schema(full, (XorFold(), Blip(0.02))),
        "XorFold, Blip(0.1)": schema(full, (XorFold(), Blip(0.1))),
        "XorFold, names salted by year of birth": schema(full, salt="date_of_birth"),
    }
    return {
        "data": f"FEBRL4, {n} + {n} records; encodings of 1024 bits; our thresholds are chosen without the truth",
        "exact match of names and birth date finds": exact(everyone),
        "ours, no hardening": {case: ours(files, schema(names, ())) for case, (files, names) in cases.items()},
        "ours, XorFold": {case: ours(files, schema(names)) for case, (files, names) in cases.items()},
        "clkhash + anonlink": peer(cases, python),
        "ours by hardening": {name: ours(everyone, plan) for name, plan in hardened.items()},
        "ours by blocking": {
            "keyed tokens": ours(everyone, schema(full), rules),
            "hamming tokens": ours(everyone, schema(full), "hamming"),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", default=sys.executable, help="a Python that has clkhash and anonlink")
    parser.add_argument("--quick", action="store_true", help="500 records a side, one seed")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    here = all((DATA / f"febrl4{part}.csv.gz").is_file() for part in "ab")
    if here:
        figures |= linkage(options.peer_python, quick=options.quick)
    else:
        skip.note("linkage on FEBRL4", f"febrl4a.csv.gz and febrl4b.csv.gz are not in {DATA}: set SECUREVFL_DATA")
    figures["credit, share of wrong pairs in training"] = wrong_pairs(seeds=1 if options.quick else 5)
    if here and not options.quick:
        figures["credit with FEBRL4's names, end to end"] = end_to_end()
    write("linkage", figures)


if __name__ == "__main__":
    main()
