"""Do two versions train the same models and send the same messages, bit for bit?

    git worktree add ../before d44675f
    python -m benchmarks.unchanged --old ../before [--only splitnn risa …] [--under plain shares …]

Each version trains every algorithm under every protection over the same parties, in a separate process with its own
code. Five values of each run are compared, each as a SHA-256 of its bytes: the active party's rows after alignment by
PSI, its probabilities of the test rows, the loss of every epoch, the list of messages in all ledgers (direction, peer,
kind, content, shapes, size), and the messages' own SHA-256 from the ledgers, that is, the bytes on the wire.

Both processes replace the operating system's randomness by one fixed stream, so shares and noise can be compared too.
SEAL draws its own randomness: ciphertexts of BFV and CKKS differ, and so do the last digits of CKKS; such runs are
*close*. An algorithm that refuses a protection has to refuse it in both versions; refusals are counted separately.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

SMALL: Mapping[str, Any] = {"hidden": 4, "top": (4,)}
SETTINGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "all_labels": ("all_labels", {"hidden": 4, "top": ()}),
    "apc_vfl": ("apc_vfl", {"bottom": (6,), "code": 4, "top": (4,), "steps": 10, "student_steps": 10}),
    "best": ("best", {**SMALL, "folds": 2, "methods": ("residual",)}),
    "boosting": ("boosting", {"lr": 0.3, "depth": 2, "bins": 8, "min_hessian": 0.01, "rows": 0.9, "columns": 0.8}),
    "distilled": ("distilled", {**SMALL, "teacher_steps": 6, "folds": 2}),
    "entity_augmentation": ("entity_augmentation", {**SMALL, "bottom": (4,)}),
    "fedcvt": ("fedcvt", {"bottom": (6,)}),
    "fedda": ("fedda", {"hidden": 4, "bottom": (6,), "first": 2, "generator_steps": 10}),
    "fedhssl": (
        "fedhssl",
        {**SMALL, "bottom": (6,), "rounds": 2, "cross_steps": 4, "local_steps": 4, "projection": 8, "squeeze": 4},
    ),
    "few_shot_vfl": ("few_shot_vfl", {"bottom": (6,), "local_steps": 10, "agreement": 0.5, "confidence": 0.6}),
    "laser": ("laser", {**SMALL, "masks": "fixed"}),
    "local": ("local", SMALL),
    "logistic_regression": ("logistic_regression", {}),
    "mftl": ("mftl", {"bottom": (6,)}),
    "multi_vfl": ("multi_vfl", {"hidden": 4, "top": (4,), "bottom": (3,), "server": "fedyogi", "server_lr": 0.02}),
    "party_dropout": ("party_dropout", SMALL),
    "plugvfl": ("plugvfl", {**SMALL, "reader": (4,)}),
    "random_match": ("random_match", {**SMALL, "bottom": (4,)}),
    "residual": ("residual", {**SMALL, "folds": 2}),
    "risa": ("risa", {"hidden": 4, "bottom": (6,), "self_training": 2, "confidence": 0.6}),
    "risa, no evidence": (
        "risa",
        {"hidden": 4, "bottom": (6,), "self_training": 2, "confidence": 0.6, "evidential": False},
    ),
    "scorecard": ("scorecard", {"lr": 0.05, "bins": 4, "least": 4, "key_bits": 2048}),
    "sfhtl": ("sfhtl", {"bottom": (6,), "first": 2, "confidence": 0.7}),
    "splitnn": ("splitnn", {"hidden": 4, "top": (4,), "bottom": (5,)}),
    "splitnn, momentum": ("splitnn", {"hidden": 4, "top": (), "cut_momentum": 0.5, "cut_weight_decay": 0.01}),
    "ssl": ("ssl", {"hidden": 4, "bottom": (6,), "pretraining": 20}),
    "zero_imputation": ("zero_imputation", SMALL),
}
PROTECTIONS: Mapping[str, Callable[[Any], Any]] = {
    "plain": lambda sv: sv.Plain(),
    "integers": lambda sv: sv.Plain(fixed_point=True),
    "dp": lambda sv: sv.Plain(dp=sv.DP(labels=sv.Gaussian(epsilon=8.0))),
    "dp, features": lambda sv: sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=8.0))),
    "responses": lambda sv: sv.Plain(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=4.0))),
    "shares": lambda sv: sv.Shares(),
    "bfv": lambda sv: sv.BFV(),
    "ckks": lambda sv: sv.CKKS(),
    "paillier": lambda sv: sv.Paillier(bits=2048),
}
"""Name → its protection from a version's public names."""
SLOW = {"bfv", "ckks", "paillier"}
UNCONTROLLED: Mapping[str, set[str]] = {"bfv": {"bytes"}, "ckks": {"bytes", "probabilities", "losses"}}
"""Protection → values in which two runs of one version differ: SEAL draws its own randomness; CKKS is approximate."""
CLOSE = 1e-5
"""Bound of the difference of probabilities for a run of `UNCONTROLLED` values to be close."""
VALUES = ("rows", "probabilities", "losses", "messages", "bytes")


def fix_randomness() -> None:
    """Replace the operating system's randomness by a fixed stream, in this process, before anything imports it."""
    drawn = 0

    def stream(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_128(drawn.to_bytes(8, "little")).digest(size)

    os.urandom = stream
    random._urandom = stream  # type: ignore[attr-defined]  # what the module `secrets` draws from
    from cryptography.hazmat.primitives.asymmetric import ed25519, x25519

    for kind in (ed25519.Ed25519PrivateKey, x25519.X25519PrivateKey):  # OpenSSL draws them from the system itself
        kind.generate = classmethod(lambda cls: cls.from_private_bytes(os.urandom(32)))  # type: ignore[assignment]


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


def people_of(algorithm: str, classes: int, *, small: bool) -> Any:
    """The parties of a run: two label owners for Multi-VFL, otherwise one active and two passive parties, or one
    passive party where the algorithm takes one."""
    with suppress(ModuleNotFoundError):  # older versions have the file in tests/ itself
        sys.modules["helpers"] = import_module("support.helpers")
    helpers = vars(import_module("helpers"))
    low_overlap = helpers.get("low_overlap_parties") or helpers["scarce"]  # its name in older versions
    make_parties = helpers.get("make_parties") or helpers["parties"]
    from securevfl.training import find_algorithm

    rows = 90 if small else 160
    if algorithm == "multi_vfl":
        return owners()
    if algorithm in ("splitnn", "logistic_regression", "boosting", "scorecard"):
        return make_parties(passive=2, rows=rows, classes=classes)
    return low_overlap(find_algorithm(algorithm).most_passive or 2, rows=rows, classes=classes)


def messages_of(result: Any, key: str) -> tuple[str, str]:
    """SHA-256 of the list of messages, and of the messages' content."""
    shapes, contents = hashlib.sha256(), hashlib.sha256()
    for party, ledger in sorted(result.ledgers[key].items()):
        for e in ledger.entries:
            line = [party, e.way, e.peer, e.kind, e.what, sorted(e.shapes.items()), e.bytes, e.cipher, e.bits, e.noise]
            shapes.update(repr(line).encode())
            if e.what != "ledger/head":  # it contains the hash of ledger lines, which record the time
                contents.update(e.digest.encode())
    return shapes.hexdigest()[:16], contents.hexdigest()[:16]


def train(algorithm: str, settings: Mapping[str, Any], protection: str, classes: int) -> dict[str, Any]:
    """What one run gives: five digests and its probabilities, or the kind of error that refused it."""
    import securevfl as sv
    from securevfl.training import find_algorithm

    secret = vars(sys.modules[sv.Observer.__module__])["PartySecret"]  # its module has another name in other versions
    from_seed = vars(secret).get("from_seed", vars(secret).get("derived")).__get__(None, secret)  # and so has this
    small = protection in SLOW
    people = people_of(algorithm, classes, small=small)
    try:
        job = sv.Job(
            algorithm=find_algorithm(algorithm)(**settings),
            protection=PROTECTIONS[protection](sv),
            epochs=1 if protection == "paillier" else 2 if small else 4,
            batch_size=20,
            seed=3,
        )
        result = sv.simulate(
            job, people, baselines=(), observer=sv.Observer(), secrets={n: from_seed(3, n) for n in people}
        )
    except sv.SecureVFLError as error:
        return {"refused": type(error).__name__}
    (run,) = result.record.runs
    scores = result.scores[run.key]
    messages, contents = messages_of(result, run.key)
    losses = [repr(epoch.train_loss) for epoch in run.epochs]  # None on shares, where nobody learns it
    found = [digest(list("\n".join(result.test_ids).encode())), digest(scores)]
    found += [digest(list("\n".join(losses).encode())), messages, contents]
    return dict(zip(VALUES, found, strict=True)) | {"scores": [round(float(value), 9) for value in scores.ravel()]}


def runs(only: list[str], under: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What this process's version trains: name → its values. Works in either version."""
    import torch

    torch.set_num_threads(1)
    for name, (algorithm, settings) in SETTINGS.items():
        for protection in PROTECTIONS:
            if (only and algorithm not in only) or (under and protection not in under):
                continue
            for classes in (2, 3) if protection == "plain" and algorithm != "multi_vfl" else (2,):
                begun = time.perf_counter()
                found = train(algorithm, settings, protection, classes)
                yield f"{name}, {protection}, {classes} classes", found | {"seconds": time.perf_counter() - begun}


def child(tree: Path, only: list[str], under: list[str]) -> dict[str, dict[str, Any]]:
    """What the version in `tree` trains, from a separate process."""
    parts = [tree / part for part in ("", "net", "psi", "crypto", "tests")]
    path = os.pathsep.join(str(part) for part in parts if part.is_dir())  # PYTHONPATH comes before installed packages
    # Entry points come from the environment: a checkout with another list of algorithms brings its own.
    python = tree / ".venv" / "bin" / "python"
    python = python if python.is_file() else Path(sys.executable)
    command = [str(python), str(Path(__file__).resolve()), "--print", "--only", *only, "--under", *under]
    # A fixed hash seed: an order of sets would otherwise differ between two processes of one version.
    environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{tree}: exit status {ended.returncode}")
    found = dict(json.loads(line) for line in ended.stdout.splitlines())
    used = found.pop("package")
    if Path(used) != tree / "securevfl":
        raise SystemExit(f"{tree}: its process imported {used}")
    return found


def compare(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str]:
    """One run of both versions: ``same``, ``close``, ``refused`` or ``DIFFERS``, and how."""
    if old.get("refused") or new.get("refused"):
        kinds = [one.get("refused", "trains") for one in (old, new)]
        return ("refused" if kinds[0] == kinds[1] else "DIFFERS"), " → ".join(dict.fromkeys(kinds))
    differ = [value for value in VALUES if old.get(value) != new.get(value)]
    if not differ:
        return "same", ""
    if not new:
        return "DIFFERS", "missing"
    pairs = zip(old["scores"], new["scores"], strict=False)
    most = max((abs(one - other) for one, other in pairs), default=0.0)
    close = set(differ) <= UNCONTROLLED.get(name.split(", ")[-2], set()) and most <= CLOSE
    return ("close" if close else "DIFFERS"), f"{', '.join(differ)}; probabilities by up to {most:.1e}"


def main() -> None:
    """Print what is the same and what is not; the exit status is 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--old", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--only", nargs="*", default=[], help="names of algorithms")
    parser.add_argument("--under", nargs="*", default=[], choices=list(PROTECTIONS), help="protections")
    parser.add_argument("--print", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.print:
        fix_randomness()
        import securevfl

        print(json.dumps(["package", str(Path(securevfl.__file__).parent)]), flush=True)
        for item in runs(chosen.only, chosen.under):
            print(json.dumps(item), flush=True)
        return
    if chosen.old is None:
        from benchmarks import skip  # not above: the other version's process has other benchmarks

        skip.skip("benchmarks.unchanged", "it needs a checkout of another version: --old FOLDER")
    here = Path(__file__).resolve().parents[1]
    old, new = (child(tree, chosen.only, chosen.under) for tree in (chosen.old.resolve(), here))
    found = {name: compare(name, old.get(name, {}), new.get(name, {})) for name in old | new}
    for name, (verdict, how) in found.items():
        print(f"{verdict:<8} {name}  {how}  ({new.get(name, {}).get('seconds', 0):.1f} s)")
    verdicts = [verdict for verdict, _ in found.values()]
    trained = len(verdicts) - verdicts.count("refused")
    print(f"{verdicts.count('same')} of {trained} runs are the same, bit for bit; ", end="")
    print(f"{verdicts.count('close')} differ only in SEAL's randomness; ", end="")
    print(f"both versions refuse {verdicts.count('refused')} others")
    raise SystemExit(1 if "DIFFERS" in verdicts else 0)


if __name__ == "__main__":
    main()
