"""One process of `benchmarks.kills`: runs a small job with checkpoints, and writes down each release that it made."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.metrics  # noqa: F401 - before the clock
import torch

import securevfl as sv
from securevfl.data import hold_out
from securevfl.party_context import PartySecret
from securevfl.privacy.joint import JointRelease
from securevfl.privacy.rows import RowRelease
from securevfl.run import join_parties
from securevfl.testing.parties import low_overlap_parties, make_parties
from securevfl.training import find_algorithm

OPTIONS: dict[str, dict[str, Any]] = {
    "splitnn": {"hidden": 4, "top": [], "bottom": [3]},
    "logistic_regression": {},
    "fedcvt": {"bottom": [4]},
    "risa": {"hidden": 4, "bottom": [3], "self_training": 1, "drop_every": 1},
    "fedda": {"hidden": 4, "bottom": [3], "first": 1, "generator_steps": 2},
    "entity_augmentation": {"hidden": 4},
    "multi_vfl": {"hidden": 4, "top": []},
}
NOISE = sv.Gaussian(epsilon=30.0)
PROTECTIONS = {
    "plain": sv.Plain(),
    "fixed": sv.Plain(fixed_point=True),
    "bfv": sv.BFV(),
    "plain-dp": sv.Plain(dp=sv.DP(features=NOISE)),
    "z-dp": sv.Plain(dp=sv.DP(features=sv.JointNoise(epsilon=30.0, weight_bound=20.0))),
}


def tables(name: str, rows: int) -> sv.Parties:
    """Small tables that fit the algorithm."""
    kind = find_algorithm(name)
    if kind.many_owners:
        people = make_parties(passive=1, rows=rows)
        bank = people["bank"]
        bank = replace(bank, fold=hold_out(len(bank.ids), valid=0.2, test=0.2, seed=0))
        return sv.Parties.of(bank, replace(bank, name="lender"), people["shop1"])
    return low_overlap_parties(1, rows=2 * rows, width=2) if kind.uses_others else make_parties(passive=1, rows=rows)


def watch(file: Path) -> None:
    """Write down each release of rows after it was made, beside the package's own counting."""
    made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(release: RowRelease | JointRelease, rows: np.ndarray) -> None:
        reserve: Any = release.counts._reserve
        key = f"{reserve.func.__self__.party} {reserve.args[0]}"  # the party, and the release's name in its journal
        os.write(made, (json.dumps([key, rows.tolist()]) + "\n").encode())

    call, share = RowRelease.__call__, JointRelease.draw_share

    def released(self: RowRelease, values: Any, rows: np.ndarray, **more: Any) -> Any:
        fresh = rows[self.counts_as_release(rows)] if self.once else rows
        sent = call(self, values, rows, **more)
        note(self, fresh)
        return sent

    def shared(self: JointRelease, rows: np.ndarray, width: int) -> Any:
        sent = share(self, rows, width)
        note(self, rows)
        return sent

    RowRelease.__call__ = released  # type: ignore[method-assign]
    JointRelease.draw_share = shared  # type: ignore[method-assign]


def work(name: str, protection: str, folder: Path, attempt: int) -> int:
    """Run, or go on; the exit code.

    Args:
        name: of the algorithm.
        protection: its name in `PROTECTIONS`.
        folder: of the run.
        attempt: which process of the run this is.
    """
    torch.set_num_threads(1)
    watch(folder / f"made-{attempt}.jsonl")
    people = tables(name, 40 if protection == "bfv" else 80)
    job = sv.Job(
        algorithm=find_algorithm(name).from_values(OPTIONS[name]),
        protection=PROTECTIONS[protection],
        epochs=2 if protection == "bfv" else 3,
        batch_size=16,
    )
    told: dict[str, int] = {}
    secrets = {party: PartySecret.from_seed(1, party) for party in [*people, "coordinator"]}
    (folder / "begun").touch()
    began = time.perf_counter()
    try:
        result = sv.simulate(
            job,
            people,
            aligned=join_parties(people, job),
            checkpoints=folder / "kept",
            secrets=secrets,
            ledgers=folder / f"ledgers-{attempt}",
        )
    except sv.SecureVFLError as error:
        print(type(error).__name__, error, flush=True)
        return error.exit_code
    for file in (folder / "kept").glob("*/*.journal.jsonl"):
        told |= _told(file, result)
    (scores,) = result.scores.values()
    figures = {"scores": scores.tolist(), "seconds": time.perf_counter() - began, "times": told}
    (folder / "result.json").write_text(json.dumps(figures))
    return 0


def _told(file: Path, result: sv.Result) -> dict[str, int]:
    """Party and release → how often ε counts the most-released row; from the report, not from the journal."""
    party = file.name.removesuffix(".journal.jsonl")
    (run,) = result.record.runs
    names = {line["release"] for line in map(json.loads, file.read_text().splitlines()) if "release" in line}
    counted = [one for one in run.epsilon if one.party == party]
    found = {}
    for name in names:
        what = name.rsplit(" ", 1)[1]
        alike = [one.releases for one in counted if one.what == what]
        found[f"{party} {name}"] = max(alike, default=0)
    return found
