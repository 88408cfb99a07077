"""Does this version train the same models as version 0.1, bit by bit?

    git worktree add ../securevfl-0.1 4bacf19
    python -m benchmarks.unchanged --old ../securevfl-0.1 [--only splitnn risa …]

Each version trains every algorithm over the same parties in a process of its own, in plain, in the integers of the
sealed cut, and under BFV. What is compared: the active party's rows after alignment by PSI, its probabilities of the
test rows, and the loss of every epoch, each as a SHA-256 of its bytes. Multi-VFL's weights are covered by the same
digests of its first label owner. Noise of differential privacy comes from the operating system, so such runs have no
digest.

Since passive parties alone draw the first weights of the cut, whatever trains over a cut begins elsewhere than in 0.1:
its probabilities and losses differ, and under BFV they differ from run to run. `local` and `fedcvt` have no such
weights. To compare the others, take two versions after that change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SETTINGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "splitnn": ("splitnn", {"hidden": 4, "top": (4,), "bottom": (5,)}),
    "splitnn, momentum": ("splitnn", {"hidden": 4, "top": (), "cut_momentum": 0.5, "cut_weight_decay": 0.01}),
    "logistic_regression": ("logistic_regression", {}),
    "local": ("local", {"hidden": 4, "top": (4,)}),
    "zero_imputation": ("zero_imputation", {"hidden": 4, "top": (4,)}),
    "random_match": ("random_match", {"hidden": 4, "top": (4,), "bottom": (4,)}),
    "all_labels": ("all_labels", {"hidden": 4, "top": ()}),
    "entity_augmentation": ("entity_augmentation", {"hidden": 4, "top": (4,), "bottom": (4,)}),
    "ssl": ("ssl", {"hidden": 4, "bottom": (6,), "pretraining": 20}),
    "fedcvt": ("fedcvt", {"bottom": (6,)}),
    "fedda": ("fedda", {"hidden": 4, "bottom": (6,), "first": 2, "generator_steps": 10}),
    "risa": ("risa", {"hidden": 4, "bottom": (6,), "self_training": 2, "confidence": 0.6}),
    "risa, no evidence": (
        "risa",
        {"hidden": 4, "bottom": (6,), "self_training": 2, "confidence": 0.6, "evidential": False},
    ),
    "multi_vfl": ("multi_vfl", {"hidden": 4, "top": (4,), "bottom": (3,), "server": "fedyogi", "server_lr": 0.02}),
}
PLAIN_ONLY = {"fedcvt", "fedda", "local", "multi_vfl"}
UNDER_BFV = {"splitnn", "risa"}
"""With momentum each side rounds its own random share: two such runs of one version differ in the last place."""


def digest(*arrays: object) -> str:
    """SHA-256 of the arrays' bytes, its first 16 digits."""
    import numpy as np

    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(np.asarray(array)).tobytes())
    return found.hexdigest()[:16]


def owners() -> Any:
    """Two label owners without columns and two data owners, over 240 people."""
    import numpy as np

    import securevfl as sv

    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(240, 4)), rng.normal(size=(240, 4))
    label = (one.sum(axis=1) + two.sum(axis=1) > 0).astype(np.int64)
    ids = [f"p{i:04d}" for i in range(240)]
    fold = np.repeat([0, 1, 2], [80, 20, 20])
    tables = [
        sv.PartyTable(
            name=f"owner{k}",
            ids=ids[k * 120 : (k + 1) * 120],
            columns={},
            label=label[k * 120 : (k + 1) * 120],
            classes=(0, 1),
            fold=fold if k == 0 else None,
        )
        for k in range(2)
    ]
    for name, values in (("lab", one), ("shop", two)):
        columns = {f"{name}{j}": values[:, j] for j in range(4)}
        tables.append(sv.PartyTable(name=name, ids=ids, columns=columns))
    return sv.Parties.of(*tables)


def runs(only: list[str]) -> Iterator[tuple[str, list[str]]]:
    """What this process's version trains: name → digests. Works with 0.1 and with this version."""
    import torch
    from helpers import parties, scarce

    import securevfl as sv

    torch.set_num_threads(1)
    classes_of = {kind.name: kind for kind in vars(sv.algorithms).values() if isinstance(getattr(kind, "name", 0), str)}
    protections = {"plain": sv.Plain(), "integers": sv.Plain(fixed_point=True), "bfv": sv.BFV()}
    for name, (algorithm, settings) in SETTINGS.items():
        for protection, made in protections.items():
            left_out = (protection != "plain" and algorithm in PLAIN_ONLY) or (
                protection == "bfv" and name not in UNDER_BFV
            )
            if left_out or (only and algorithm not in only):
                continue
            for classes in (2,) if protection != "plain" or algorithm == "multi_vfl" else (2, 3):
                if algorithm == "multi_vfl":
                    people = owners()
                elif algorithm in ("splitnn", "logistic_regression"):
                    people = parties(passive=2, rows=150, classes=classes)
                else:
                    people = scarce(1, rows=160, classes=classes)
                job = sv.Job(
                    algorithm=classes_of[algorithm](**settings), protection=made, epochs=4, batch_size=20, seed=3
                )
                result = sv.simulate(job, people)
                (run,) = result.record.runs
                scores = result.scores[run.key]
                ids = "\n".join(result.test_ids).encode()
                found = [digest(list(ids)), digest(scores), digest([epoch.train_loss for epoch in run.epochs])]
                yield f"{name}, {protection}, {classes} classes", found


def child(tree: Path, only: list[str]) -> dict[str, list[str]]:
    """What the version in `tree` trains, from a process of its own."""
    path = os.pathsep.join(str(tree / part) for part in ("", "psi", "crypto", "tests"))
    command = [sys.executable, str(Path(__file__).resolve()), "--print", *only]
    environment = os.environ | {"PYTHONPATH": path + os.pathsep + str(Path(__file__).resolve().parents[1])}
    ended = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{tree}: {ended.stderr[-2000:]}")
    return dict(json.loads(line) for line in ended.stdout.splitlines())


def main() -> None:
    """Print what is the same and what is not; the exit status is 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--old", type=Path, help="a checkout of version 0.1")
    parser.add_argument("--only", nargs="*", default=[], help="names of algorithms")
    parser.add_argument("--print", nargs="*", default=None, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.print is not None:
        for item in runs(chosen.print):
            print(json.dumps(item), flush=True)
        return
    if chosen.old is None:
        from benchmarks import skip  # not above: the other version's process has other benchmarks

        skip.skip("benchmarks.unchanged", "it needs a checkout of version 0.1: --old FOLDER")
    old, new = child(chosen.old.resolve(), chosen.only), child(Path(__file__).resolve().parents[1], chosen.only)
    differ = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
    for name in sorted(old):
        print(f"{'DIFFERS' if name in differ else 'same   '}  {name}  {' '.join(new.get(name, ['missing']))}")
    print(f"{len(old) - len(differ)} of {len(old)} runs are the same, bit by bit")
    raise SystemExit(1 if differ else 0)


if __name__ == "__main__":
    main()
