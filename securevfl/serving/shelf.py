"""A party's parts of the models that it can serve, and which one it serves: changed in two phases, by digest.

The active party's record decides. It records a model as committed after every party has confirmed its own intact part;
then it sends them the command to use it. A party that crashed in between follows that record when it returns, since it
uses no part but the one with the recorded digest. So no two parties ever serve parts of different models.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from securevfl_net.durable import make_folder, write_atomic

from securevfl.errors import InputError
from securevfl.party import Job
from securevfl.run.model_parts import PART, ModelPart, model_part, write_run
from securevfl.run.store import write_tree

__all__ = ["ModelRecord", "ModelShelf", "digest_of"]

_RUN = re.compile("[0-9a-f]{16,128}")


def digest_of(run: str, parts: Mapping[str, str]) -> str:
    """The digest of a whole model, the same at all parties: SHA-256 of its run and of each party's part's digest."""
    text = "".join(f"{party}\n{digest}\n" for party, digest in sorted(parts.items()))
    return hashlib.sha256(f"securevfl model v1\n{run}\n{text}".encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """A model of all parties.

    Attributes:
        run: that all parts are of.
        digest: see `digest_of`.
        parts: party → digest of its part.
    """

    run: str
    digest: str
    parts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_parts(cls, run: str, parts: Mapping[str, str]) -> ModelRecord:
        """The model that these parts make."""
        return cls(run=run, digest=digest_of(run, parts), parts=dict(parts))


class ModelShelf:
    """One party's parts on the disk, and the record of the served model.

    Args:
        folder: the party's own, for its files alone; made if it is not there.
        party: whose.
        job: that trained the models; parts of another job are refused.

    Attributes:
        committed: the served model; None before the first.
        previous: the one before it, to roll back to.

    Raises:
        InputError: a damaged record.
    """

    def __init__(self, folder: Path, party: str, job: Job) -> None:
        make_folder(folder, private=True)
        self.party = party
        self.job = job
        self.committed: ModelRecord | None = None
        self.previous: ModelRecord | None = None
        self._folder = folder
        self._record = folder / "served.json"
        if self._record.exists():
            self._read_state()

    def put_part(self, part: ModelPart) -> None:
        """Keep a part, so that its model can be prepared: how a party's operator agrees to a new model.

        Raises:
            InputError: it is another party's or job's, its run has no name, or another part of that run is there.
        """
        if part.party != self.party or part.job.digest != self.job.digest:
            raise InputError(
                f"the part is {part.party!r}'s of job {part.job.digest[:16]}…; this is {self.party!r} with job "
                f"{self.job.digest[:16]}…"
            )
        place = self._part_folder(part.run)
        if (place / f"{self.party}{PART}").exists():
            # A run name identifies one model: replacing this part would mix parts of different models.
            if self.read_part(part.run).digest != part.digest:
                raise InputError(f"another part of run {part.run[:16]}… is there already; a run has one model")
            return
        tree = {name: value for name, value in part.tree.items() if name not in ("job", "party", "origin")}
        make_folder(place, private=True)
        write_run(place, part.run)
        write_tree(place / f"{self.party}{PART}", model_part(self.job, self.party, tree))

    def read_part(self, run: str) -> ModelPart:
        """This party's part of a run.

        Raises:
            InputError: the party has no part of this run, or a damaged one.
        """
        place = self._part_folder(run)
        if not (place / f"{self.party}{PART}").exists():
            raise InputError(f"{self.party!r} has no part of run {run[:16]}…")
        return ModelPart.load(place, self.party, self.job, run=run)

    @property
    def run_names(self) -> tuple[str, ...]:
        """Runs that it has a part of, sorted."""
        return tuple(sorted(path.parent.name for path in self._folder.glob(f"*/{self.party}{PART}")))

    def commit(self, model: ModelRecord) -> ModelPart:
        """Serve this model from now on; recorded on the disk when this returns. The part on this disk must be the one
        that the model names.

        Raises:
            InputError: it is not, and nothing changed.
        """
        part = self.read_part(model.run)
        if model.parts.get(self.party) != part.digest or model.digest != digest_of(model.run, model.parts):
            raise InputError(
                f"{self.party!r} has part {part.digest[:16]}… of run {model.run[:16]}…, but the committed "
                f"model names {str(model.parts.get(self.party))[:16]}…"
            )
        if self.committed is None or model.digest != self.committed.digest:
            self._write_state(model, self.committed)
        return part

    def _part_folder(self, run: str) -> Path:
        if not _RUN.fullmatch(run):
            raise InputError(
                "the run of the part has no name: bring the file model.run, which the run saved, along with it"
                if not run
                else f"{run!r:.40} names no run; it is 64 hexadecimal digits"
            )
        return self._folder / run

    def _write_state(self, committed: ModelRecord, previous: ModelRecord | None) -> None:
        content = {"committed": asdict(committed), "previous": None if previous is None else asdict(previous)}
        write_atomic(self._record, json.dumps(content, indent=1).encode(), private=True)
        self.committed, self.previous = committed, previous

    def _read_state(self) -> None:
        try:
            content = json.loads(self._record.read_bytes())
            self.committed = _read_record(content["committed"])
            self.previous = None if content["previous"] is None else _read_record(content["previous"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self._record} is damaged ({error}): remove it, and activate a model again") from None


def _read_record(value: Mapping[str, object]) -> ModelRecord:
    run, digest, parts = value["run"], value["digest"], value["parts"]
    texts = isinstance(parts, dict) and all(isinstance(one, str) for pair in parts.items() for one in pair)
    if not isinstance(run, str) or not isinstance(parts, dict) or not texts or digest != digest_of(run, parts):
        raise ValueError("it names no model")
    return ModelRecord.from_parts(run, parts)
