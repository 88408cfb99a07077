"""A party's part of a model: its file, its entry in the ledger, and how the party reads it alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from securevfl_net.durable import write_atomic

from securevfl.errors import InputError
from securevfl.party import Job, possible_defaults
from securevfl.party.eligibility import describe_predicted
from securevfl.run.store import read_tree, tree_digest

__all__ = ["MODEL_PART", "PART", "RUN", "ModelPart", "model_part", "read_first_part", "run_of", "write_run"]

PART = ".model.safetensors"
"""Suffix of a part's file name, after the party's name."""

RUN = "model.run"
"""The file beside a part that names the run which all parts are of: 64 hexadecimal digits, the same at all parties."""

MODEL_PART = "model part"
"""The ledger note that contains the digest of the party's part."""

_NEEDED = {"parts", "batch_size", "times", "encoder", "classes", "names"}
_DIGITS = 64


def model_part(job: Job, party: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Build the content of a part's file."""
    return {"job": job.digest, "party": party, "origin": _describe_origin(job), **part}


def _describe_origin(job: Job) -> dict[str, object]:
    """The training of a part, as far as a job that goes on from it needs to know."""
    protection, target = job.protection, describe_predicted(job)
    found = {
        "algorithm": job.algorithm.name,
        "protection": protection.name,
        "model": str(getattr(protection, "model", "")),
        "helper": str(getattr(protection, "helper", "")),
        "computing": str(getattr(protection, "computing", "")),
        "private": protection.dp is not None,
    }
    return found if target == "classes" else found | {"target": target}


def run_of(digests: Mapping[str, str]) -> str:
    """A name for the run that these parts are of, where all of them are in one place: SHA-256 of their digests.

    Args:
        digests: party → digest of its part, see `ModelPart.digest`.
    """
    text = "".join(f"{party}\n{digest}\n" for party, digest in sorted(digests.items()))
    return hashlib.sha256(b"securevfl model run v1\n" + text.encode()).hexdigest()


def write_run(folder: Path, run: str) -> None:
    """Write the name of a run beside its parts; each party takes it along with its own."""
    write_atomic(folder / RUN, f"{run}\n".encode(), private=True)


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """One party's part of a trained model, read without the other parts.

    Attributes:
        party: whose it is.
        job: that trained it.
        run: name of the run, the same at all parties; empty if the file beside the part does not give one.
        tree: trained weights and the encoding of the party's columns.
    """

    party: str
    job: Job
    run: str
    tree: Mapping[str, Any] = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the part's content, hexadecimal; the party's ledger has it in the note `MODEL_PART`."""
        return tree_digest(dict(self.tree))

    @classmethod
    def load(cls, place: str | Path, party: str, job: Job, *, run: str = "") -> ModelPart:
        """Read a party's part.

        Args:
            place: its file, or the folder that it is in.
            party: whose.
            job: that it was trained by.
            run: name of the run; by default read from the file beside the part.

        Raises:
            InputError: no such file, a damaged one, another party's, or one that another job trained.
        """
        path = Path(place)
        file = path / f"{party}{PART}" if path.is_dir() else path
        tree = read_tree(file)
        if not isinstance(tree, dict) or _NEEDED - set(tree) or tree.get("party") != party:
            raise InputError(f"{file} does not contain {party!r}'s part of a model: copy the file that the run saved")
        trained = next((one for one in possible_defaults(job) if one.digest == tree.get("job")), None)
        if trained is None:
            raise InputError(f"{file} was trained by another job; give the job that trained it, unchanged")
        return cls(party=party, job=trained, run=run or _read_run(file.parent), tree=tree)


def read_first_part(place: Path, party: str, run: str, job: Job, passive: Sequence[str]) -> dict[str, Any]:
    """A party's part of an earlier model, from which a job of an agreement goes on.

    Args:
        place: the state folder of the earlier agreement, or the folder of the part.
        party: whose.
        run: the earlier model's, as the agreement names it.
        job: that goes on.
        passive: names of the passive parties.

    Raises:
        InputError: no such part, another run's, or one from which this job cannot go on.
    """
    folder = place / "model" if (place / "model").is_dir() else place
    file = folder / f"{party}{PART}"
    tree = read_tree(file)
    if not isinstance(tree, dict) or _NEEDED - set(tree) or tree.get("party") != party:
        raise InputError(f"{file} does not contain {party!r}'s part of a model: name the earlier state folder in start")
    if (found := _read_run(folder)) != run:
        raise InputError(
            f"{folder} is of run {found[:16] or 'unknown'}…, and the agreement goes on from {run[:16]}…: name that one "
            "in start"
        )
    origin, wanted = tree.get("origin"), _describe_origin(job)
    if origin != wanted:
        differs = (
            [name for name in {**wanted, **origin} if origin.get(name) != wanted.get(name)]
            if isinstance(origin, dict)
            else []
        )
        why = (
            f"it differs in {', '.join(differs)}" if differs else "an older version trained it and did not say by what"
        )
        raise InputError(
            f"the job cannot go on from {file}: {why}; name the same algorithm and protection, or train from the "
            "beginning"
        )
    if sorted(map(str, tree.get("passive", ()))) != sorted(passive):
        raise InputError(
            f"{file} was trained with {', '.join(map(str, tree.get('passive', ())))}; name the same parties"
        )
    return tree


def _read_run(folder: Path) -> str:
    try:
        run = (folder / RUN).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / RUN} cannot be read ({error}): copy the file that the run saved") from None
    if len(run) != _DIGITS or not set(run) <= set("0123456789abcdef"):
        raise InputError(f"{folder / RUN} does not name a run: copy the file that the run saved")
    return run
