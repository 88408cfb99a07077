"""The scorecard on shares beside the scorecard at a cut, on the credit table: the same bins, what it scores and costs.

    python -m benchmarks.scorecard_shares [--quick] [--seeds 3] [--epochs 12]

Each seed is trained at a plain cut and on shares; the first seed also at a cut under BFV, which seals what the cut
sends, and on shares with the points handed out. Counts by bin run under Paillier with 3072 bits at every cut. Figures
are AUC on the test rows, CPU seconds of all parties together (one process), bytes that all parties sent, and rounds on
shares; of handed out points, the AUC with which a party ranks its training rows by them, and by the counts that it
would get at a cut.
"""

from __future__ import annotations

import argparse
import re
import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import securevfl as sv
from benchmarks.common import data, write
from securevfl.cut import Protection
from securevfl.run import join_parties
from securevfl.run.simulation import RunOutcome, run_parties
from securevfl.testing.trial import roles_begun

__all__ = ["run"]

_ROUNDS = re.compile(r"([\d.]+) rounds")


def run(protection: Protection, people: sv.Parties, seed: int, epochs: int) -> dict[str, Any]:
    """Train one scorecard.

    Args:
        protection: of the job.
        people: all parties.
        seed: of the split and of training.
        epochs: how many are trained; the last one is kept.
    """
    job = sv.Job(algorithm=sv.Scorecard(), protection=protection, epochs=epochs, patience=None, keep="last", seed=seed)
    aligned = join_parties(people, job)
    begin, spent = time.perf_counter(), time.process_time()
    with roles_begun() as begun:
        ran = run_parties(job, people, aligned, run="scorecard")
    found: dict[str, Any] = {
        "auc": ran.trained[people.active.name].test["auc"],
        "CPU seconds": time.process_time() - spent,
        "seconds": time.perf_counter() - begin,
        "MB": sum(e.bytes for one in ran.ledgers.values() for e in one.iter_entries() if e.way == "sent") / 1e6,
        "training rows": len(ran.split.train),
    }
    if protection.on_shares:
        found |= _rounds(ran, people.active.name, epochs)
    if protection.hands_out:
        found["ranking"] = _ranking({role.site.name: role for role in begun}, people.active.name, ran.split.train)
    return found


def _rounds(ran: RunOutcome, active: str, epochs: int) -> dict[str, float]:
    notes = ran.trained[active].notes
    (step,) = [float(found[1]) for note in notes if "rounds a step" in note and (found := _ROUNDS.search(note))]
    (counting,) = [float(found[1]) for note in notes if "stayed on shares" in note and (found := _ROUNDS.search(note))]
    steps = epochs * -(-len(ran.split.train) // sv.Job().batch_size)
    return {"rounds a step": step, "rounds of counting": counting, "rounds": counting + step * steps}


def _ranking(roles: dict[str, Any], active: str, rows: np.ndarray) -> dict[str, dict[str, float]]:
    """For each passive party, the AUC of its own points and of its own weights of evidence on its training rows."""
    y = roles[active].labels(rows).numpy()
    found = {}
    for name, role in roles.items():
        if name == active:
            continue
        bins, points, evidence = role.find_bins(rows), np.zeros(len(rows)), np.zeros(len(rows))
        for j, column in enumerate(role.card["columns"]):
            own = np.array([one["points"] for one in column["bins"]])
            count = np.bincount(bins[:, j], minlength=len(own))
            positives = np.bincount(bins[:, j], weights=y, minlength=len(own))
            points -= own[bins[:, j]]
            evidence += np.log((positives + 0.5) / (count - positives + 0.5))[bins[:, j]]
        found[name] = {"points": float(roc_auc_score(y, points)), "counts": float(roc_auc_score(y, evidence))}
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, 3,000 clients, one epoch")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    asked = parser.parse_args()
    seeds, rows, epochs = (1, 3000, 1) if asked.quick else (asked.seeds, None, asked.epochs)
    protections: dict[str, Protection] = {"plain cut": sv.Plain(), "shares": sv.Shares()}
    first: dict[str, Protection] = {"BFV cut": sv.BFV(), "shares, points handed out": sv.Shares(model="parts")}
    found: list[dict[str, Any]] = []
    for seed in range(seeds):
        people = data(partial(sv.datasets.default_credit, overlap=0.85, seed=seed, rows=rows), "credit")
        if people is None:
            return
        every = protections | (first if seed == 0 else {})
        found.append({name: run(protection, people, seed, epochs) for name, protection in every.items()})
        print(seed, {name: round(one["auc"], 4) for name, one in found[-1].items()}, flush=True)
    gaps = [one["shares"]["auc"] - one["plain cut"]["auc"] for one in found]
    write("scorecard_shares", {"epochs": epochs, "seeds": found, "largest gap in AUC": max(map(abs, gaps))})


if __name__ == "__main__":
    main()
