"""What this project makes of two tables: trees in plain, in this process, or three commands on CSV files."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as sv
from benchmarks.ten_tables.peers import METRICS
from benchmarks.ten_tables.tables import PublicTable
from securevfl.jobfile import read_job
from securevfl.jobfile.drafting import draft_job
from securevfl.run import join_parties
from securevfl.run.simulation import run_parties

__all__ = ["run_commands", "train_plain_trees", "train_unsealed"]

SEALED_BINS = 32
"""Bins of a column where sums are encrypted and the job names none: see `sv.Boosting`."""
_ID = "client_no"


def train_plain_trees(table: PublicTable, folder: Path, seed: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Boosting with its defaults and the budget that ``init`` drafts, without protection.

    Args:
        table: says the label and the task.
        folder: where the two CSV files are.
        seed: of the job.

    Returns:
        Metric, rounds, CPU-seconds; and the identifiers of rows that train, validate and test.
    """
    is_number = table.task == "number"
    target: dict[str, Any] = {"target": "number"} if is_number else {}
    first = sv.read_table(folder / "first.csv", name="first", id=_ID, label=table.label, prepare="auto", **target)
    second = sv.read_table(folder / "second.csv", name="second", id=_ID, prepare="auto")
    budget = sv.Boosting().fit_budget(first.rows)
    plan: dict[str, Any] = {"epochs": budget.epochs, "patience": budget.patience, "seed": seed}
    plan["task"] = "regression" if is_number else "classification"
    job = sv.Job(algorithm=sv.Boosting(), protection=sv.Plain(), **plan)
    parties = sv.Parties.of(first, second)
    aligned = join_parties(parties, job)
    start = time.process_time()
    ran = run_parties(job, parties, aligned, run="ten tables")
    spent = time.process_time() - start
    trained, ids = ran.trained["first"], np.asarray(first.ids)[aligned.parties["first"].rows]
    found = {"metric": trained.test[METRICS[table.task]], "rounds": trained.best_epoch, "cpu seconds": round(spent, 1)}
    return found, [ids[part] for part in (ran.split.train, ran.split.valid, ran.split.test)]


def train_unsealed(table: PublicTable, folder: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What ``init --algorithm boosting`` drafts, without encryption, with as many bins as trees have under it.

    Args:
        table: says the label.
        folder: where the two CSV files are.

    Returns:
        As `run_commands`.

    Raises:
        ValueError: the draft has not the protection that is expected.
    """
    text = draft_job(
        [folder / "first.csv", folder / "second.csv"], folder, label=table.label, algorithm="boosting"
    ).text
    edits = {'name = "boosting"': f'name = "boosting"\nbins = {SEALED_BINS}', 'name = "paillier"': 'name = "plain"'}
    for old, new in edits.items():
        if text.count(old) != 1:
            raise ValueError(f"{old} stands {text.count(old)} times in a draft, where once was expected:\n{text}")
        text = text.replace(old, new)
    (folder / "job.toml").write_text("baselines = []\n" + text, encoding="utf-8")
    file = read_job(folder / "job.toml")
    start = time.process_time()
    result = sv.simulate(file.job, file.parties, baselines=[])
    spent, (run,) = time.process_time() - start, result.record.runs
    found = {
        "metric": run.test[METRICS[table.task]],
        "epoch": run.best_epoch,
        "epochs": len(run.epochs),
        "warnings": run.warnings,
        "cpu seconds": round(spent, 1),
    }
    return found, _draw_split(folder, list(result.test_ids))


def run_commands(
    table: PublicTable, folder: Path, algorithm: str, seconds: float
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """``init``, ``check`` and ``run`` without an edit.

    Args:
        table: says the label and the task.
        folder: where the two CSV files are.
        algorithm: name for ``init``; empty for what it drafts unasked.
        seconds: after which the commands are given up.

    Returns:
        Metric, kept epoch, protection and CPU-seconds; and the identifiers of rows that train, validate and test, of
        which the first two are drawn: the files of a run name the test rows alone.

    Raises:
        subprocess.TimeoutExpired: the commands took longer.
    """
    chosen = ["--algorithm", algorithm] * bool(algorithm)
    label = ["--label", table.label]
    commands = [["init", "first.csv", "second.csv", *label, *chosen], ["check", "job.toml"], ["run", "job.toml"]]
    commands[-1] += ["--out", "found"]
    began, start = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for words in commands:
        with (folder / "log").open("a", encoding="utf-8") as log:
            left = max(1.0, seconds - (time.monotonic() - began))
            command = [sys.executable, "-m", "securevfl", *words]
            subprocess.run(command, check=True, stdout=log, stderr=log, cwd=folder, timeout=left)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    found, split = _read_run(table, folder)
    spent = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    return found | {"cpu seconds": round(spent, 1)}, split


def _read_run(table: PublicTable, folder: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What the three commands left, as `run_commands` returns it."""
    job = read_job(folder / "job.toml").job
    (run,) = [
        one
        for one in json.loads((folder / "found" / "metrics.json").read_text(encoding="utf-8"))["runs"]
        if one["key"] not in ("alone", "alone_boosted", "pooled", "pooled_boosted")
    ]
    found = {
        "metric": run["test"][METRICS[table.task]],
        "epoch": run["best_epoch"],
        "algorithm": job.algorithm.name,
        "protection": run["key"],
        "warnings": run["warnings"],
    }
    scored = (folder / "found" / "scores.csv").read_text(encoding="utf-8").splitlines()[1:]
    test = list(dict.fromkeys(line.split(",")[0].strip('"') for line in scored))
    return found, _draw_split(folder, test)


def _draw_split(folder: Path, test: list[str]) -> list[np.ndarray]:
    """Identifiers of rows that train, validate and test, of which the first two are drawn."""
    everybody = [line.split(",")[0] for line in (folder / "first.csv").read_text(encoding="utf-8").splitlines()[1:]]
    known = set(test)
    rest = np.random.default_rng(0).permutation(np.array([one for one in everybody if one not in known]))
    return [rest[len(rest) // 8 :], rest[: len(rest) // 8], np.array(test)]
