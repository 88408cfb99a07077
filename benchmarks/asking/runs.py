"""Jobs on real shares as an asker runs them: what was answered about the test rows, or who refused and why.

The parties run in one process, and behave as between organisations: a simulation's leniency is taken from them.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from securevfl_crypto.ring import decode_words

import securevfl as sv
from securevfl.errors import SecureVFLError
from securevfl.privacy import Policy
from securevfl.run import join_parties, simulated_parties
from securevfl.run.simulation import predict_parties, run_parties
from securevfl.shares import NetworkShape, SharedTraining
from securevfl.training import Trained

__all__ = ["RULES", "Asked", "Asker", "Heard", "has_rules", "job_on_shares", "listening", "policies"]

RULES = ("before", "off", "on")
"""The code before it had rules; with each rule switched off that has a switch; as it comes."""


def has_rules() -> bool:
    """Whether this code bounds what may be asked."""
    return "max_results" in Policy.__struct_fields__


def policies(rules: str, parties: sv.Parties) -> dict[str, Policy]:
    """Party → its policy: none, so the default, with the rules on; otherwise one that allows everything."""
    if rules != "off":
        return {}
    return {name: _policy(max_results="unlimited", useful="off", few_rows=True, soft=True) for name in parties}


def _policy(**settings: object) -> Policy:
    known = {name: value for name, value in settings.items() if name in Policy.__struct_fields__}
    return msgspec.convert(known, Policy)


def job_on_shares(rules: str, parties: sv.Parties, algorithm: sv.Algorithm, **terms: Any) -> sv.Job:
    """A job on shares under the rules that are asked for.

    Args:
        rules: of `RULES`.
        parties: who take part.
        algorithm: what is trained.
        terms: of the job; `lr`, `answers`, `useful` and others are the protection's.
    """
    names = ("lr", "momentum", "answers", "soft", "model", "useful", "few_rows", "computing", "metrics")
    own = {name: terms.pop(name) for name in names if name in terms}
    if rules == "off":
        own = {"answers": "probabilities", "useful": "off", "few_rows": True} | own
    known = {name: value for name, value in own.items() if name in sv.Shares.__struct_fields__}
    return sv.Job(algorithm=algorithm, protection=sv.Shares(**known), policies=policies(rules, parties), **terms)


@dataclass
class Asked:
    """What came of a question.

    Attributes:
        rows: numbers of the table's rows that were answered about; none where it was refused.
        valid: numbers of the rows that validated.
        probabilities: of these rows.
        refused: the error's class, where it was.
        words: of the refusal.
        test: metrics of the test rows.
        seconds: of this process's CPU.
        sent: bytes, of all parties together.
    """

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    valid: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    probabilities: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    refused: str = ""
    words: str = ""
    test: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    sent: int = 0

    def figures(self) -> dict[str, Any]:
        """For results: the refusal, or the AUC."""
        told: dict[str, Any] = {"cpu_seconds": round(self.seconds, 2)}
        if self.refused:
            return told | {"refused": self.refused, "words": self.words[:400]}
        told |= {"mb": round(self.sent / 1e6, 2), "answered": len(self.rows)}
        return told | ({"auc": round(self.test["auc"], 4)} if "auc" in self.test else {})


@dataclass
class Heard:
    """What parties dealt, and the network.

    Attributes:
        tested: party → its inputs of the test rows, batch by batch.
        shape: of the network.
    """

    tested: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    shape: NetworkShape | None = None


@contextmanager
def listening() -> Iterator[Heard]:
    """Note what every party of this process deals for the predictions: the truth that an attack is held against."""
    heard, predict = Heard(), SharedTraining.predict

    async def predicting(self: SharedTraining, sizes: Sequence[int], words: Any) -> Any:
        if self.network is not None:
            heard.shape = self.network.shape

        def noted(number: int) -> list[np.ndarray]:
            found: list[np.ndarray] = words(number)
            heard.tested[self.member.site.name].append(decode_words(found[0]))
            return found

        return await predict(self, sizes, None if words is None else noted)

    with patch.object(SharedTraining, "predict", predicting):
        yield heard


@contextmanager
def _between_organisations() -> Iterator[None]:
    """Inside, no party knows that it is simulated."""
    build = simulated_parties.build_context
    if "simulated" not in signature(build).parameters:
        yield
        return

    def built(*values: Any, **more: Any) -> Any:
        return build(*values, **(more | {"simulated": False}))

    with patch.object(simulated_parties, "build_context", built):
        yield


class Asker:
    """An active party that runs jobs and asks their models again; the passive parties' books go on from job to job.

    Args:
        rules: of `RULES`; books are kept where there are rules.
    """

    def __init__(self, rules: str) -> None:
        self._folder: Path | None = None
        if rules != "before" and has_rules():
            self._folder = Path(tempfile.mkdtemp(prefix="asked-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.models: list[tuple[sv.Job, Mapping[str, Any]]] = []

    def train(self, job: sv.Job, parties: sv.Parties, numbers: Mapping[str, int]) -> Asked:
        """Run a job, which answers about its test rows.

        Args:
            job: what runs.
            parties: with their tables.
            numbers: identifier → number of the table's row.
        """
        start = time.process_time()
        try:
            aligned = join_parties(parties, job)
            with _between_organisations():
                ran = run_parties(job, parties, aligned, run="asked", **self._kept(parties))
        except SecureVFLError as error:
            return _refusal(error, start)
        bank = parties.active
        found = ran.trained[bank.name]
        numbered = np.array([numbers[bank.ids[i]] for i in aligned.parties[bank.name].rows.tolist()])
        self.models.append((job, {name: one.model for name, one in ran.trained.items() if one.model}))
        return Asked(
            rows=numbered[ran.split.test],
            valid=numbered[ran.split.valid],
            probabilities=found.scores,
            test=dict(found.test),
            seconds=time.process_time() - start,
            sent=sum(_sent_by(one) for one in ran.trained.values()),
        )

    def predict(self, which: int, parties: sv.Parties, numbers: Mapping[str, int]) -> Asked:
        """Ask a model of before about all rows of new tables.

        Args:
            which: of `models`.
            parties: new tables of the same parties.
            numbers: identifier → number of the table's row.
        """
        job, model = self.models[which]
        start = time.process_time()
        try:
            aligned = join_parties(parties, job)
            with _between_organisations():
                found, _ = predict_parties(job, parties, aligned, model, run="asked again", **self._kept(parties))
        except SecureVFLError as error:
            return _refusal(error, start)
        bank = parties.active
        at = aligned.parties[bank.name].rows
        return Asked(
            rows=np.array([numbers[bank.ids[i]] for i in at.tolist()]),
            probabilities=found,
            seconds=time.process_time() - start,
        )

    def counted(self, parties: sv.Parties, party: str, names: Sequence[str]) -> np.ndarray:
        """Numbers that a party's book holds of each of these identifiers for the active party, (n,)."""
        found: np.ndarray = self._kept(parties)["results"][party].count_opened(names, parties.active.name)
        return found

    def _kept(self, parties: sv.Parties) -> dict[str, Any]:
        if self._folder is None:
            return {}
        from securevfl.privacy.result_book import ResultBook

        return {
            "results": {t.name: ResultBook(self._folder / f"{t.name}.results", party=t.name) for t in parties.passive}
        }


def _sent_by(trained: Trained) -> int:
    readings = [trained.setup, *trained.readings, trained.finish]
    return sum(sum(one.sent.values()) for one in readings if one is not None)


def _refusal(error: SecureVFLError, start: float) -> Asked:
    return Asked(refused=type(error).__name__, words=" ".join(str(error).split()), seconds=time.process_time() - start)
