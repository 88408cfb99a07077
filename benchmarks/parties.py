"""Every algorithm and protection through processes, one for each party, held against the simulation; and what a plain
epoch costs there.

    python -m benchmarks.parties [--quick]

Each party is a process with its own files, certificate, state folder and gate, connected by TLS on loopback. Without
differential privacy everything that a label owner has to show is compared to the last bit, and so are the parts of the
model where nothing is shared at random between parties; to one in a thousand where CKKS computes, or may be chosen.
With differential privacy noise is fresh, and ε is compared. The ledgers of all parties are audited together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

import securevfl as sv
from benchmarks.common import write
from benchmarks.kills_run import tables
from securevfl.party_context import PartySecret
from securevfl.process.launch import read_start
from securevfl.report import Record
from securevfl.run.model_parts import model_part
from securevfl.run.store import read_tree, tree_digest
from securevfl.testing.company import Company, create_company
from securevfl.training import Algorithm, find_algorithm, registered_algorithms

OPTIONS: dict[str, dict[str, Any]] = {
    "splitnn": {"hidden": 4, "top": [], "bottom": [3]},
    "fedcvt": {"bottom": [4]},
    "risa": {"hidden": 4, "bottom": [3], "self_training": 1, "drop_every": 1},
    "fedda": {"hidden": 4, "bottom": [3], "first": 1, "generator_steps": 2},
    "ssl": {"bottom": [4]},
    "multi_vfl": {"hidden": 4, "top": []},
}
NOISE = sv.Gaussian(epsilon=30.0)
PROTECTIONS: dict[str, Any] = {
    "plain": sv.Plain(),
    "fixed": sv.Plain(fixed_point=True),
    "bfv": sv.BFV(),
    "ckks": sv.CKKS(),
    "paillier": sv.Paillier(),
    "auto": sv.Auto(),
    "plain-dp": sv.Plain(dp=sv.DP(features=NOISE)),
    "bfv-dp": sv.BFV(dp=sv.DP(features=NOISE)),
    "z-dp": sv.Plain(dp=sv.DP(features=sv.JointNoise(epsilon=30.0, weight_bound=20.0))),
    "labels-dp": sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=3.0))),
}
SLOW = ("ckks", "paillier")
"""Tried with few algorithms in the quick size."""


def jobs(*, quick: bool) -> list[tuple[str, str, sv.Job]]:
    """Algorithm, protection and job of each kind of run that there is."""
    cells = []
    for name in sorted(registered_algorithms()):
        kind: type[Algorithm] = find_algorithm(name)
        for protection, value in PROTECTIONS.items():
            if quick and (protection in SLOW or name not in ("splitnn", "multi_vfl")):
                continue
            algorithm = kind.from_values(OPTIONS.get(name, {}), name)
            epochs = max(2, algorithm.least_epochs)
            try:
                job = sv.Job(algorithm=algorithm, protection=value, epochs=epochs, batch_size=16, seed=3)
            except (sv.PolicyError, sv.InputError):
                continue  # the algorithm cannot have this protection, in a simulation either
            cells.append((name, protection, job))
    return cells


def _run(company: Company, name: str) -> int:
    """A process of one party: a copy of this one, which has loaded the libraries. Returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        output = os.open(company.folder / f"{name}.output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        read_start(company.agreement_file, name).run(wait=300.0)
        code = 0
    except sv.SecureVFLError as error:
        traceback.print_exc()
        code = error.exit_code
    except BaseException:  # a copy of this process may not go on as this one: the code tells, the file says why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def through_processes(company: Company) -> dict[str, int]:
    """Run all parties; party → exit code. Where one fails, the others are ended: they would wait for it."""
    children = {_run(company, name): name for name in company.names}
    codes: dict[str, int] = {}
    while children:
        child, status = os.wait()
        if child not in children:
            continue
        failed = any(codes.values())
        code = codes[children.pop(child)] = os.waitstatus_to_exitcode(status)
        if code and not failed:
            for other in children:
                os.kill(other, signal.SIGTERM)
    return codes


def compare(company: Company, job: sv.Job, secrets: dict[str, PartySecret]) -> list[str]:
    """Where the processes left something else than a simulation of the same tables."""
    alone = sv.simulate(job, company.people, secrets=secrets)
    run, parts = alone.record.runs[-1], alone.model().parts
    chief = company.people.label_owners[0].name
    own = Record.read(company.state_folder(chief) / "report" / "metrics.json").runs[0]
    wrong = []
    if job.protection.dp is None:
        near = 1e-3 if isinstance(job.protection, sv.CKKS | sv.Auto) else 0.0
        mine = [*own.test.values(), *(e.train_loss or 0.0 for e in own.epochs)]
        theirs = [*run.test.values(), *(e.train_loss or 0.0 for e in run.epochs)]
        if own.test.keys() != run.test.keys() or not np.allclose(mine, theirs, rtol=near, atol=near):
            wrong.append(f"{chief} shows {own.test}, the simulation {run.test}")
        for name in () if job.protection.is_sealed else parts:
            kept = read_tree(company.state_folder(name) / "model" / f"{name}.model.safetensors")
            if tree_digest(kept) != tree_digest(model_part(job, name, parts[name])):
                wrong.append(f"{name}'s part of the model differs")
    else:
        told = {
            (line.party, line.what, round(line.epsilon_rdp, 9), line.releases)
            for name in company.people
            for line in Record.read(company.state_folder(name) / "report" / "metrics.json").runs[0].epsilon
        }
        expected = {(line.party, line.what, round(line.epsilon_rdp, 9), line.releases) for line in run.epsilon}
        if told != expected:
            wrong.append(f"the parties counted {sorted(told)}, the simulation {sorted(expected)}")
    collected = company.folder / "collected"
    (collected / "ledgers").mkdir(parents=True)
    for name in company.names:
        shutil.copy(company.state_folder(name) / "ledgers" / f"{name}.jsonl", collected / "ledgers")
    audit = sv.audit(collected)
    wrong += [] if audit.is_complete else ["the ledgers do not have both ends of every link"]
    return wrong + list(audit.incomplete)


def every_cell(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Run each cell; counts, and what went wrong."""
    equal, wrong, counted = 0, list[str](), 0
    for name, protection, job in jobs(quick=quick):
        where = f"{name} {protection}"
        begin = time.perf_counter()
        try:
            company = create_company(folder / where.replace(" ", "-"), tables(name, 64), job)
            secrets = {one: PartySecret.from_seed(7, one) for one in company.people}
            company.store_secrets(secrets)
            codes = through_processes(company)
            different = [f"{party} ended with {code}" for party, code in codes.items() if code]
            if different:
                different += [(company.folder / f"{p}.output").read_text()[-600:] for p, c in codes.items() if c]
            else:
                different = compare(company, job, secrets)
        except sv.SecureVFLError as error:
            different = [f"{type(error).__name__}: {error}"]
        wrong += [f"{where}: {text}" for text in different]
        if not different:
            equal, counted = equal + (job.protection.dp is None), counted + (job.protection.dp is not None)
        print(f"{where}: {different or 'equal'} after {time.perf_counter() - begin:.1f} s", flush=True)
    return {"equal to the simulation": equal, "with fresh noise, ε equal": counted, "wrong": wrong}


def plain_epoch(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Seconds of a plain epoch through processes and in the simulation, in turns, and bytes. Both keep checkpoints
    after each epoch, as a process always does."""
    rows, epochs = (4_000, 6) if quick else (20_000, 6)
    people = sv.Parties.of(*_plain_tables(rows))
    job = sv.Job(protection=sv.Plain(), algorithm=sv.SplitNN(hidden=16), epochs=epochs, batch_size=256, seed=3)
    ratios, seconds = [], []
    for round_ in range(1 if quick else 3):
        company = create_company(folder / f"epoch-{round_}", people, job)
        if any(through_processes(company).values()):
            raise SystemExit("a party failed")
        own = Record.read(company.state_folder("bank") / "report" / "metrics.json").runs[0]
        alone = sv.simulate(job, company.people, checkpoints=folder / f"kept-{round_}").record.runs[-1]
        mine, theirs = ([e.seconds for e in run.epochs[1:]] for run in (own, alone))
        ratios.append(statistics.median(mine) / statistics.median(theirs))
        seconds.append([statistics.median(mine), statistics.median(theirs)])
    sent = sum(own.epochs[-1].bytes.values())
    return {
        "rows": rows,
        "processes / simulation": statistics.median(ratios),
        "seconds of an epoch [processes, simulation]": seconds,
        "bytes that the active party sends in an epoch": sent,
    }


def _plain_tables(rows: int) -> list[sv.PartyTable]:
    from securevfl.testing.parties import make_parties

    return list(make_parties(passive=2, rows=rows, width=8).values())


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two algorithms, quick protections")
    parser.add_argument("--only", choices=("cells", "epoch"), help="one part")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        figures: dict[str, Any] = {}
        if options.only != "epoch":
            figures |= every_cell(Path(place) / "cells", quick=options.quick)
        if options.only != "cells":
            figures |= plain_epoch(Path(place) / "epochs", quick=options.quick)
    write("parties", figures)
    if figures.get("wrong"):
        raise SystemExit(f"{len(figures['wrong'])} differences")


if __name__ == "__main__":
    main()
