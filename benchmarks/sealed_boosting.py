"""The sealed sums of one boosted tree, part by part, beside python-paillier, on one core.

    python -m benchmarks.sealed_boosting [--quick] [--peers-python PATH]

A tree of depth 5 on the credit table: 12,887 training rows, 6 and 12 columns at two passive parties, 32 quantile bins,
a key of 2048 bits, 12 bits of fixed point. Halves of nodes are drawn at random, the worst case: at each level half of
the rows are asked for. Nodes are shown (one encryption of each row for a tree, sums by node) or hidden (each level
encrypts all rows again, each row in its node's block). Every opened sum is compared with the sum of plain integers.

Seconds are CPU seconds of one process on one core. Of a tree's total, the owner's parts and those of each passive party
add up; in a real run the parties share them. "ahead" is what can be done before the tree: blindings. The tree of the
headline is the one of median total out of three. python-paillier's time is extrapolated from slices in the same run: an
encryption of each row, an addition for each row and column that a sum needs, a decryption of each sum, with g and h
packed into one number, and one by one. SecretFlow's HEU, where the peers' environment has it, computes the sums of the
same tree whole, nodes shown, after ours (`benchmarks/peers/heu_boosting.py`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import securevfl_crypto as crypto
from securevfl_crypto.sums import SealedSums, SumHolder, SumOwner, SumPlan

from benchmarks import skip
from benchmarks.common import write
from benchmarks.psi_peers import _run as run_peer
from benchmarks.psi_peers import peers_python
from securevfl import datasets

BOUNDS = (4096, 1024)

T = TypeVar("T")


@dataclass
class Parts:
    """Seconds and counts by what they went to."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def timed(self, name: str, work: Callable[[], T]) -> T:
        start = time.process_time()
        result = work()
        self.seconds[name] += time.process_time() - start
        return result


@dataclass(frozen=True)
class Size:
    """What a tree is made of; `columns` lists each passive party's."""

    rows: int = 12887
    columns: tuple[int, ...] = (6, 12)
    bins: int = 32
    depth: int = 5
    bits: int = 2048


def table(rows: int) -> np.ndarray:
    """The 18 columns of the credit table's passive parties, (rows, 18)."""
    people = datasets.default_credit(overlap=0.85, seed=0)
    columns = [column for party in people.passive for column in party.columns.values()]
    return np.stack([np.asarray(column, dtype=float) for column in columns], axis=1)[:rows]


def binned(values: np.ndarray, size: Size) -> list[tuple[np.ndarray, list[int]]]:
    """Each passive party's codes, uint8 (rows, columns), and numbers of bins."""
    parties, first = [], 0
    for count in size.columns:
        codes, bins = [], []
        for j in range(first, first + count):
            column = values[:, j % values.shape[1]]
            edges = np.unique(np.quantile(column, np.arange(1, size.bins) / size.bins))
            codes.append(np.searchsorted(edges, column, side="right"))
            bins.append(len(edges) + 1)
        parties.append((np.stack(codes, axis=1).astype(np.uint8), bins))
        first += count
    return parties


def levels(size: Size, rows: int, random: np.random.Generator) -> list[tuple[np.ndarray, int]]:
    """For each level the node of each row that is asked for, or −1, and how many nodes: one of two siblings."""
    found = [(np.zeros(rows, dtype=np.int64), 1)]
    for level in range(1, size.depth):
        node = random.integers(0, 1 << level, rows)
        found.append((np.where(node % 2 == 0, node // 2, -1), 1 << (level - 1)))
    return found


def tree(key: crypto.PaillierPrivateKey, size: Size, values: np.ndarray, *, hidden: bool) -> Parts:
    """One tree's sums, checked."""
    random, parts = np.random.default_rng(0), Parts()
    rows = size.rows
    gradients = np.stack([random.integers(-b if s == 0 else 0, b, rows) for s, b in enumerate(BOUNDS)], axis=1)
    plan = SumPlan(key_bits=size.bits, rows=rows, bounds=BOUNDS)
    owner = SumOwner(key, plan)
    parties = binned(values, size)
    holders = [SumHolder(key.public, plan) for _ in parties]
    batches = []
    if not hidden:
        parts.timed("ahead: blindings", lambda: owner.make_blindings(rows))
        wire = parts.timed("owner: encrypt", lambda: owner.encrypt_rows(gradients))
        batches = [parts.timed("passive: load and check", lambda h=holder: h.load_rows(wire)) for holder in holders]
        parts.counts["bytes of rows, to each passive party"] += wire.nbytes
    for node, nodes in levels(size, rows, random):
        totals = np.stack([gradients[node == k].sum(axis=0) for k in range(nodes)])
        if hidden:
            plan = replace(plan, nodes=nodes)
            owner = owner.with_plan(plan)
            parts.timed("ahead: blindings", lambda o=owner: o.make_blindings(rows))
            wire = parts.timed("owner: encrypt", lambda o=owner, n=node: o.encrypt_rows(gradients, n))
            holders = [holder.with_plan(plan) for holder in holders]
            batches = [
                parts.timed("passive: load and check", lambda h=holder, w=wire: h.load_rows(w)) for holder in holders
            ]
            parts.counts["bytes of rows, to each passive party"] += wire.nbytes
        for holder, batch, (codes, bins) in zip(holders, batches, parties, strict=True):
            shown = () if hidden else (node, nodes)
            answer = parts.timed(
                "passive: sum, pack, blind",
                lambda h=holder, b=batch, c=codes, n=bins, s=shown: h.compute_sums(b, c, n, *s),
            )
            asked = 1 if hidden else nodes
            found = parts.timed(
                "owner: open", lambda o=owner, a=answer, b=bins, t=totals, k=asked: o.open_sums(a, b, t, k)
            )
            check(found, gradients, codes, bins, node)
            count(parts, answer, codes, bins, node, hidden=hidden)
    return parts


def check(found: np.ndarray, gradients: np.ndarray, codes: np.ndarray, bins: list[int], node: np.ndarray) -> None:
    """Opened sums are the sums of the plain integers."""
    here, first = node >= 0, 0
    for j, number in enumerate(bins):
        right = np.zeros((len(found), number, len(BOUNDS)), dtype=np.int64)
        np.add.at(right, (node[here], codes[here, j]), gradients[here])
        if not np.array_equal(found[:, first : first + number], right):
            raise SystemExit(f"column {j}: sealed sums differ from plain ones")
        first += number


def count(
    parts: Parts, answer: SealedSums, codes: np.ndarray, bins: list[int], node: np.ndarray, *, hidden: bool
) -> None:
    """What a tree consists of, and what python-paillier would have to do for the same sums without blocks."""
    parts.counts["ciphertexts of answers"] += len(answer.ciphertexts)
    parts.counts["bytes of answers"] += answer.ciphertexts.nbytes
    parts.counts["additions"] += codes.size if hidden else int((node >= 0).sum()) * codes.shape[1]
    parts.counts["sums"] += (1 if hidden else int(node.max()) + 1) * sum(bins)


def python_paillier(bits: int) -> dict[str, float]:
    """Seconds of an encryption, an addition and a decryption of python-paillier, medians."""
    phe = skip.needed("phe", "python-paillier's time")
    public, secret = phe.generate_paillier_keypair(n_length=bits)
    sealed = [public.encrypt(i) for i in range(8)]

    def median(work: Callable[[], object], times: int) -> float:
        found = []
        for _ in range(times):
            start = time.process_time()
            work()
            found.append(time.process_time() - start)
        return statistics.median(found)

    return {
        "encrypt": median(lambda: public.encrypt(12345), 7),
        "add": median(lambda: [sealed[0] + sealed[1] for _ in range(50)], 5) / 50,
        "decrypt": median(lambda: secret.decrypt(sealed[2]), 7),
    }


def theirs(each: dict[str, float], parts: Parts, encryptions: int) -> float:
    """Seconds of the same sums with python-paillier, g and h in one number."""
    counts = parts.counts
    return encryptions * each["encrypt"] + counts["additions"] * each["add"] + counts["sums"] * each["decrypt"]


def heu(python: Path | None, size: Size, values: np.ndarray, ours: float) -> dict[str, Any]:
    """The sums of the tree that `tree` opens, nodes shown, by SecretFlow's HEU: its seconds, and over ours."""
    random = np.random.default_rng(0)
    gradients = np.stack([random.integers(-b if s == 0 else 0, b, size.rows) for s, b in enumerate(BOUNDS)], axis=1)
    nodes = np.stack([node for node, _ in levels(size, size.rows, random)])
    parties = binned(values, size)
    codes = np.concatenate([found for found, _ in parties], axis=1)
    bins = np.concatenate([found for _, found in parties])
    with TemporaryDirectory() as folder:
        np.savez(Path(folder) / "work.npz", gradients=gradients, nodes=nodes, codes=codes, bins=bins)
        arguments = ["heu_boosting.py", str(Path(folder) / "work.npz"), "--bits", str(size.bits)]
        found = run_peer(python, "heu", arguments, 900.0)
    for name, one in found.get("schemes", {}).items():
        if not one["right"]:
            raise SystemExit(f"HEU's {name}: sums differ from plain ones")
        one["HEU / ours"] = round(one["CPU seconds"]["tree"] / ours, 1)
    return found


def figures(parts: Parts) -> dict[str, object]:
    """What is written of one tree."""
    total = sum(parts.seconds.values())
    return {
        "seconds": {name: round(value, 3) for name, value in sorted(parts.seconds.items())},
        "seconds, all parts of all parties": round(total, 3),
        "seconds, without what is made ahead": round(total - parts.seconds["ahead: blindings"], 3),
        "counts": dict(parts.counts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2,000 rows, no growth")
    parser.add_argument("--peers-python", help="the interpreter that has HEU; see benchmarks/peers-requirements.txt")
    given = parser.parse_args()
    quick = given.quick
    os.environ["SECUREVFL_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    size = Size(rows=2000) if quick else Size()
    keys = {bits: crypto.generate_keypair(bits) for bits in ((2048,) if quick else (2048, 3072))}
    values = table(size.rows)
    tree(keys[2048], replace(size, rows=64, depth=2), values[:64], hidden=False)  # compiles kernels, makes tables
    content: dict[str, object] = {"cores": 1}
    each = python_paillier(size.bits)
    content["python-paillier, seconds"] = each
    for hidden in (False, True):
        trees = [tree(keys[size.bits], size, values, hidden=hidden) for _ in range(3)]
        parts = sorted(trees, key=lambda found: sum(found.seconds.values()))[1]
        whole = sum(parts.seconds.values())
        # nodes need no blocks with python-paillier: it encrypts each level anew, and decrypts a sum for each node
        again = size.depth if hidden else 1
        packed = theirs(each, parts, size.rows * again)
        content["nodes hidden" if hidden else "nodes shown"] = {
            **figures(parts),
            "python-paillier, g and h packed, seconds": round(packed, 1),
            "python-paillier / ours": {
                "g and h packed": round(packed / whole, 1),
                "one by one": round(2 * packed / whole, 1),
            },
        }
        if not hidden:
            content["SecretFlow's HEU, nodes shown"] = heu(peers_python(given.peers_python), size, values, whole)
    if not quick:
        changes = {
            "half the rows": replace(size, rows=size.rows // 2),
            "72 columns": replace(size, columns=(24, 48)),
            "128 bins": replace(size, bins=128),
            "depth 7": replace(size, depth=7),
            "one passive party, 18 columns": replace(size, columns=(18,)),
            "four passive parties, 18 columns": replace(size, columns=(4, 4, 5, 5)),
            "3072 bits": replace(size, bits=3072),
        }
        tree(keys[3072], replace(size, rows=64, depth=2, bits=3072), values[:64], hidden=False)
        content["growth"] = {
            f"{name}, nodes {'hidden' if hidden else 'shown'}": figures(
                tree(keys[changed.bits], changed, values[: changed.rows], hidden=hidden)
            )
            for name, changed in changes.items()
            for hidden in (False, True)
        }
    write("sealed_boosting-quick" if quick else "sealed_boosting", content)


if __name__ == "__main__":
    main()
