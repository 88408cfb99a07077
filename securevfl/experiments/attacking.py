"""Attacks on a job: run it with a recorder, attack each party's view, and report which claims proved false."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.table import Table

from securevfl.attacks import AttackScore, Transcript, Truth, feature_inference, run_leaks
from securevfl.attacks.feature_inference import LEARNERS
from securevfl.attacks.learners import standardise
from securevfl.attacks.measure import Estimate, auc, auc_error, draw_known
from securevfl.attacks.suite import FULL, QUICK, Effort, run_suite, score_columns
from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.experiments.comparison import simulate
from securevfl.experiments.recorder import Recorder
from securevfl.party import Job, check_trains, with_default_protection
from securevfl.party_context import Observer
from securevfl.privacy import Finding
from securevfl.privacy.attack_verdict import CLAIMED, SEVERITIES, describe_contradiction, worst_claims
from securevfl.report import Card
from securevfl.report.attack_page import attack_table, write_attacks
from securevfl.report.attack_record import AttackRecord, Claimed
from securevfl.run.job_card import job_card, run_title
from securevfl.run.machine import describe_machine, package_versions
from securevfl.run.model import Model, predict
from securevfl.run.result import Result
from securevfl.run.simulation import COORDINATOR, Aligned, align_parties
from securevfl.run.store import read_tree

__all__ = ["AttackResult", "attack", "record_job"]

_REPEATS = 10
"""How often the same rows are predicted, where predictions carry noise."""


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """Results of attacks on a job.

    Attributes:
        record: all figures, as in `attacks.json`.
        transcripts: seed → what each party saw.
        card: what each party could read of each other's data, with the figures of these attacks; None where nobody
            could.
    """

    record: AttackRecord
    transcripts: Mapping[int, Transcript]
    card: Card | None = None

    @property
    def contradictions(self) -> Sequence[str]:
        """Claims of *ok* that an attack proved false."""
        return self.record.contradictions

    def table(self) -> Table:
        """The figures beside what the job states."""
        return attack_table(self.record)

    def write(self, folder: str | Path) -> Path:
        """Write `attacks.json` and `attacks.html` to `folder`; returns the page's path."""
        return write_attacks(self.record, Path(folder))


def attack(
    job: Job,
    parties: Parties,
    *,
    known: Sequence[int] = FULL.records,
    labels: Sequence[int] = FULL.labels,
    seeds: Sequence[int] = (),
    quick: bool = False,
    name: str = "attacks",
    command: str = "",
    observer: Observer | None = None,
) -> AttackResult:
    """Run a job with all parties in this process, record what each of them sees, and attack it.

    Args:
        job: what to run.
        parties: the parties' tables; attacks are scored by them.
        known: numbers of records of a victim that an attacker knows from elsewhere.
        labels: numbers of labels that a passive party knows; 0 for the attacks that need none.
        seeds: of the job, one run each; its own seed if not given.
        quick: fewer attacks and choices of what is known, in seconds.
        name: for the record.
        command: what makes it again, for the record.
        observer: hears how the runs go on.

    Raises:
        InputError: no known records, or negative ones; a job that learns several labels, or trains no model.
        SecureVFLError: whatever ended a run.
    """
    if not known or min(known) < 1 or min(labels, default=0) < 0:
        raise InputError(
            f"known is {tuple(known)} and labels {tuple(labels)}: give numbers of records from 1, and of labels from 0"
        )
    check_trains(job.algorithm, "to attack")
    if job.has_several_labels:
        raise InputError(
            "attacks are scored by one label, and the job learns several: attack the same job on each label by itself. "
            "A gradient of several labels tells each of them as that of one does"
        )
    names = [table.name for table in parties.label_owners], [table.name for table in parties.passive]
    job = with_default_protection(job, *names)
    effort = QUICK if quick else replace(FULL, records=tuple(sorted(known)), labels=tuple(sorted(labels)))
    began = time.perf_counter()
    seeds = tuple(seeds) or (job.seed,)
    measured: list[AttackScore] = []
    transcripts: dict[int, Transcript] = {}
    tests: list[dict[str, float]] = []
    for seed in seeds:
        run = job.replace(seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            result, transcript, aligned = record_job(run, parties, observer=observer, checkpoints=folder)
            kept = _find_checkpoints(Path(folder))
        transcripts[seed] = transcript
        tests.append(result.record.runs[-1].test)
        measured += run_suite(transcript, effort, seed=seed)
        measured += _attack_row_order(transcript, seed)
        measured += _attack_saved_files(transcript, result.model(), kept, seed)
        if not job.algorithm.many_owners and parties.passive:
            measured += _attack_predictions(result.model(), parties, aligned, transcript, effort, seed)
    findings = _collect_findings(job, parties)
    stated = worst_claims(findings)
    against = [(one, _mildest_claim(stated, one)) for one in measured]
    said = [
        (severity, describe_contradiction(one, severity)) for one, severity in against if one.attack.startswith(CLAIMED)
    ]
    record = AttackRecord(
        name=name,
        title=run_title(job),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        versions=package_versions(),
        machine=describe_machine(job.device),
        job=job.describe(),
        seeds=list(seeds),
        test={key: float(np.mean([test[key] for test in tests])) for key in tests[0] if all(key in t for t in tests)},
        seconds=time.perf_counter() - began,
        claims=[Claimed(party=f.party, about=f.about, severity=f.severity, learns=f.learns) for f in findings],
        measured=measured,
        contradictions=list(dict.fromkeys(text for severity, text in said if text and severity)),
        unstated=list(dict.fromkeys(text for severity, text in said if text and not severity)),
    )
    columns = {table.name: len(table.feature_names) for table in parties.values()}
    card = job_card(job, *names, record, columns=columns)
    return AttackResult(record=record, transcripts=transcripts, card=card)


def record_job(
    job: Job,
    parties: Parties,
    *,
    aligned: Aligned | None = None,
    observer: Observer | None = None,
    checkpoints: str | Path | None = None,
) -> tuple[Result, Transcript, Aligned]:
    """Run a job with a recorder at each party; the result is that of a run without one.

    Args:
        job: what to run.
        parties: their tables.
        aligned: an alignment of the same parties to use again.
        observer: hears how it goes on.
        checkpoints: see `simulate`.
    """
    aligned = aligned or align_parties(parties, job)
    recorder = Recorder(observer)
    everyone = dict.fromkeys([*parties, COORDINATOR], recorder)
    result = simulate(job, parties, aligned=aligned, observer=Observer(), observers=everyone, checkpoints=checkpoints)
    chief = parties.label_owners[0].name
    scores = next(iter(result.scores.values()))
    return result, recorder.transcript(scores={chief: scores}), aligned


def _collect_findings(job: Job, parties: Parties) -> list[Finding]:
    passive = [table.name for table in parties.passive]
    owners = [table.name for table in parties.label_owners]
    return [f for owner in owners for f in job.algorithm.findings(job.protection, passive, owner)] if passive else []


def _mildest_claim(stated: Mapping[tuple[str, str], str], one: AttackScore) -> str:
    """The mildest claim about the victims of an attack: the attack got the data of each of them."""
    return min((stated.get((one.attacker, victim), "") for victim in one.victim.split(", ")), key=SEVERITIES.index)


def _find_checkpoints(folder: Path) -> dict[str, object]:
    """Party → its last checkpoint."""
    found: dict[str, tuple[int, Path]] = {}
    for file in folder.rglob("*.epoch-*.safetensors"):
        party, _, epoch = file.name.removesuffix(".safetensors").rpartition(".epoch-")
        found[party] = max(found.get(party, (0, file)), (int(epoch), file))
    return {party: read_tree(file) for party, (_, file) in found.items()}


def _attack_row_order(transcript: Transcript, seed: int) -> Iterator[AttackScore]:
    """Correlate row numbers with columns, for aligned rows and for others."""
    for owner, truth in transcript.truths.items():
        for which, tables in (("aligned rows", truth.x), ("other rows", truth.others)):
            for victim, x in tables.items():
                if len(x) < 20:
                    continue
                column, value = run_leaks.find_ordered_column(x)
                yield AttackScore(
                    attack=f"row order: {which}",
                    attacker="all parties" if len(transcript.truths) == 1 else f"federation of {owner}",
                    victim=victim,
                    target=f"column {column}",
                    metric="|Spearman|",
                    value=value,
                    baseline=_by_chance(x, seed),
                    known=0,
                    rows=len(x),
                    seed=seed,
                    error=1 / float(np.sqrt(len(x) - 1)),
                    seen="row numbers",
                )


def _by_chance(x: np.ndarray, seed: int) -> float:
    """The same figure for rows in a random order."""
    return run_leaks.find_ordered_column(x[np.random.default_rng(seed).permutation(len(x))])[1]


def _attack_saved_files(
    transcript: Transcript, model: Model, kept: Mapping[str, object], seed: int
) -> Iterator[AttackScore]:
    """Search a party's files, its part of the model and its checkpoint, for labels or rows stored as they are:
    its own, and others'."""
    owner, truth = next(iter(transcript.truths.items()))
    view = transcript.view(owner, owner)
    rows = [np.arange(view.aligned), view.train, view.test]
    secrets: list[tuple[str, str, np.ndarray]] = [(owner, "labels", truth.y)]
    secrets += [(name, "rows", x) for name, x in truth.x.items()]
    for party in truth.x:
        files = [("model", model.parts.get(party)), ("checkpoint", kept.get(party))]
        found = [
            (*run_leaks.find_secret(state, secret, rows), victim, target, kind)
            for kind, state in files
            for victim, target, secret in secrets
        ]
        for whose in ("its own", "others'"):
            mine = [one for one in found if (one[2] == party) == (whose == "its own")]
            share, where, victim, target, kind = max(mine, key=lambda one: one[0])
            yield AttackScore(
                attack=f"saved parts: {whose}",
                attacker=f"reader of {party}'s files",
                victim=victim,
                target=target if share else "labels and rows",
                metric="share",
                value=share,
                baseline=0.0,
                known=0,
                rows=view.aligned,
                seed=seed,
                seen=f"{kind}{where}" if share else "",
            )


def _attack_predictions(
    model: Model, parties: Parties, aligned: Aligned, transcript: Transcript, effort: Effort, seed: int
) -> Iterator[AttackScore]:
    """Attack one prediction of all common rows, and ten predictions if they carry noise."""
    chief, truth = parties.active.name, transcript.truth()
    dp = model.job.protection.dp
    noisy = dp is not None and dp.features is not None
    recorder = Recorder()
    scores = np.empty((0, 0))
    for count in (1, _REPEATS) if noisy else (1,):
        for _ in range(count if count == 1 else count - 1):
            found = predict(model, parties, aligned=aligned, observers=dict.fromkeys(parties, recorder))
            scores = scores if scores.size else found.probabilities
        told = recorder.transcript()
        yield from _from_predictions(told, chief, count, effort, seed)
    if model.job.protection.on_shares:
        yield from _from_scores(told, chief, scores, effort, seed)
    yield from _attack_membership(transcript.view(chief).train, transcript.view(chief).test, scores, truth, chief, seed)


def _from_predictions(
    transcript: Transcript, chief: str, count: int, effort: Effort, seed: int
) -> Iterator[AttackScore]:
    view, truth = transcript.view(chief), transcript.truth()
    for victim in view.passive:
        if not view.of_features(victim):
            continue
        x = standardise(truth.x[victim])
        rows, seen = feature_inference.average_observations(view, victim)
        records = [k for k in effort.records if k <= len(rows) // 2]
        if not records or not seen.size:
            continue
        known = draw_known(rows, x, records[-1], seed)
        yield score_columns(
            "predictions: one look" if count == 1 else f"predictions: mean of {count}",
            feature_inference.infer_predicted_rows(view, victim, known),
            x,
            known,
            feature_inference.infer_predicted_rows_baseline(view, victim, known),
            attacker=chief,
            victim=victim,
            seed=seed,
            seen="z of predicted rows",
        )


def _from_scores(
    transcript: Transcript, chief: str, scores: np.ndarray, effort: Effort, seed: int
) -> Iterator[AttackScore]:
    """What final predictions reveal of features beyond the active party's columns, where nothing else is opened."""
    view, truth = transcript.view(chief), transcript.truth()
    rows = np.arange(len(scores))
    for victim in view.passive:
        x = standardise(truth.x[victim])
        records = [k for k in effort.records if k <= len(rows) // 2]
        if not records:
            continue
        known = draw_known(rows, x, records[-1], seed)
        yield score_columns(
            "predictions: final scores",
            feature_inference.infer_from_scores(view, scores, known),
            x,
            known,
            LEARNERS["ridge"](rows, view.x[rows], known),
            attacker=chief,
            victim=victim,
            seed=seed,
            seen="final predictions, beside its own columns",
        )


def _attack_membership(
    train: np.ndarray, test: np.ndarray, scores: np.ndarray, truth: Truth, chief: str, seed: int
) -> Iterator[AttackScore]:
    """Distinguish the training rows from test rows by the final model. For a number, by its error: an
    entropy is of classes."""
    rows = np.concatenate([train, test])
    member = np.arange(len(rows)) < len(train)
    tried: list[tuple[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Estimate], str]] = [
        ("loss threshold", run_leaks.score_by_loss, "Yeom et al., CSF 2018"),
        ("modified entropy", run_leaks.score_by_modified_entropy, "Song and Mittal, USENIX Security 2021"),
    ]
    if scores.shape[1] == 1:
        tried = [("error threshold", run_leaks.score_by_error, "Yeom et al., CSF 2018")]
    for name, function, source in tried:
        estimate: Estimate = function(rows, scores[rows], truth.y[rows])
        value = auc(member, estimate.values)
        yield AttackScore(
            attack=f"membership: {name}",
            attacker="who is told predictions",
            victim=chief,
            target="which rows trained",
            metric="AUC",
            value=value,
            baseline=0.5,
            known=0,
            rows=len(rows),
            seed=seed,
            error=auc_error(value, len(train), len(test)),
            seen="predictions",
            source=source,
        )
