"""``algorithm="auto"``: which algorithms a run tries, and which of them it keeps.

Every candidate trains on the same rows, and is compared with the others by a metric of the validation rows: the AUC of
two classes, the log-loss of more, R² of a number. The test rows choose nothing. What trying costs is counted as for any
run: with noise the candidates share the job's ε, and where a policy bounds the numbers that may be opened of a row,
candidates that do not fit beside those before them are not tried.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from securevfl.data import Parties
from securevfl.errors import InputError
from securevfl.party import (
    Job,
    planned_numbers,
    rule_against,
    too_many_classes,
    wrong_parties,
)
from securevfl.party.candidates import CandidateJobs, divide_budget, expand_candidates
from securevfl.party.choosing import find_common_metric, rank_candidates
from securevfl.party.numbering import own_labels
from securevfl.report.record import CandidateRecord, ChoiceRecord, Record, RunRecord
from securevfl.run.gains import measure_gain
from securevfl.run.simulation import Aligned
from securevfl.training import Trained

__all__ = ["find_candidates", "record_choice"]


def find_candidates(job: Job, parties: Parties) -> CandidateJobs:
    """The jobs that a run of a choice trains, each with its share of the job's ε.

    Args:
        job: whose algorithm is a choice, with its protection.
        parties: the parties' tables.

    Raises:
        InputError: nothing can be tried, or nothing could be compared; the message has the reason of each candidate.
    """
    if not job.protection.opens_metrics or job.protection.compares_epochs(simulated=True):
        raise InputError(
            "algorithm is 'auto', which compares candidates by metrics of the validation rows, and protection.metrics "
            f"is {getattr(job.protection, 'metrics', '')!r}, so that none is opened: set metrics = 'rounded', or name "
            "one algorithm"
        )
    found = expand_candidates(job)
    for name, one in list(found.jobs.items()):
        why = _why_unfit(one, parties)
        if why:
            found.left_out[name] = why
            del found.jobs[name]
    _leave_out_expensive(found, parties)
    if not found.jobs:
        reasons = "".join(f"\n  {name}: {why}" for name, why in found.left_out.items())
        raise InputError(f"algorithm is 'auto', and nothing can be tried:{reasons}")
    jobs = {name: divide_budget(one, len(found.jobs)) for name, one in found.jobs.items()}
    return CandidateJobs(jobs, found.left_out)


def _why_unfit(job: Job, parties: Parties) -> str:
    """Why a candidate cannot be trained by these parties; empty if it can."""
    owners = [table.name for table in parties.label_owners]
    passive = [table.name for table in parties.passive]
    found = wrong_parties(job.algorithm, owners, passive, job.protection)
    classes = len(parties.label_owners[0].classes)
    found += [too_many_classes(job, owners[0], classes)]
    if job.algorithm.encodes_blindly(job.protection):
        columns = {name: tuple(table.columns) for name, table in parties.items()}
        found += job.algorithm.undeclared_columns(job.protection, columns)
    for name, table in parties.items():
        rule = rule_against(
            job, name, active=owners[0], passive=passive, columns=table.values, classes=classes, simulated=True
        )
        found += [f"{name!r} refuses it: {rule}"] if rule else []
    return "; ".join(filter(None, found))


def _leave_out_expensive(found: CandidateJobs, parties: Parties) -> None:
    """Leave out candidates whose numbers of a row do not fit into a policy's bound beside those before them."""
    classes = len(parties.label_owners[0].classes)
    for table in parties.passive:
        spent = 0
        for name, job in list(found.jobs.items()):
            policy = job.policy(table.name)
            allowed = policy.allowed_numbers(table.values) if policy.writes_bound else None
            planned = planned_numbers(job, table.name, classes, columns=table.values)
            if allowed is None or planned is None:
                continue
            if spent + planned > allowed:
                found.left_out[name] = (
                    f"it opens {planned} numbers of a row of {table.name!r}, whose policy allows {allowed} in all, and "
                    f"{spent} go to the candidates before it"
                )
                del found.jobs[name]
            else:
                spent += planned


def record_choice(
    record: Record,
    found: CandidateJobs,
    failed: Mapping[str, str],
    trained: Mapping[str, Trained],
    parties: Parties,
    aligned: Aligned,
) -> Record:
    """The record with what was tried, what is kept and why; the kept run comes first of those of the federation.

    Args:
        record: of the runs, one for each candidate that was trained.
        found: what was tried.
        failed: candidate → how its training failed.
        trained: run → what the label owner's program returned.
        parties: the parties' tables.
        aligned: their alignment.

    Raises:
        InputError: the candidates have no metric of the validation rows in common.
    """
    runs = {run.key: run for run in record.runs if run.key in found.jobs}
    valid = {key: _kept_metrics(run) for key, run in runs.items()}
    job = next(iter(found.jobs.values()))
    metric = find_common_metric(valid, len(parties.label_owners[0].classes), number=job.number_loss is not None)
    ranked = rank_candidates(metric, valid)
    best = ranked[0]
    tried = [_candidate_record(runs[key], valid[key][metric], chosen=key == best) for key in ranked]
    others = {**found.left_out, **failed}
    tried += [CandidateRecord(key=key, title=key, why=" ".join(why.split())) for key, why in others.items()]
    behind = ranked[1] if len(ranked) > 1 else ""
    noisy = any(job.protection.dp is not None for job in found.jobs.values())
    shares = len(found.jobs) if noisy else 1
    choice = ChoiceRecord(metric=metric, chosen=best, rows=record.alignment.valid, candidates=tried, shares=shares)
    if behind:
        y = own_labels(parties.label_owners[0])[aligned.parties[parties.label_owners[0].name].rows]
        half = _half_interval(metric, trained.get(best), trained.get(behind), y)
        choice = msgspec.structs.replace(choice, margin=abs(valid[best][metric] - valid[behind][metric]), half=half)
    first = [run for run in record.runs if run.baseline]
    rest = [run for run in record.runs if not run.baseline and run.key != best]
    return msgspec.structs.replace(record, runs=[*first, runs[best], *rest], choice=choice)


def _candidate_record(run: RunRecord, valid: float, *, chosen: bool) -> CandidateRecord:
    return CandidateRecord(
        key=run.key,
        title=run.title,
        valid=valid,
        epochs=len(run.epochs),
        best_epoch=run.best_epoch,
        seconds=run.seconds,
        bytes=sum(link.bytes for link in run.links),
        chosen=chosen,
    )


def _kept_metrics(run: RunRecord) -> dict[str, float]:
    """The validation metrics of the epoch that a run keeps."""
    if not run.epochs:
        return {}
    return run.epochs[run.best_epoch - 1 if run.best_epoch else -1].valid


def _half_interval(metric: str, one: Trained | None, other: Trained | None, y: np.ndarray) -> float | None:
    """Half the width of the 95 % interval of the difference on the validation rows; None where their scores are not
    here, as on shares."""
    if one is None or other is None or not len(one.valid_scores) or one.valid_scores.shape != other.valid_scores.shape:
        return None
    both = [Trained(scores=each.valid_scores, labels=y[each.split.valid]) for each in (one, other)]
    if metric in ("auc", "accuracy", "r2"):
        return measure_gain(metric, *both)
    if metric != "log_loss" or y.ndim > 1:
        return None
    losses = [-np.log(np.maximum(each.scores[np.arange(len(each.labels)), each.labels], 1e-12)) for each in both]
    return float(1.96 * np.std(losses[0] - losses[1], ddof=1) / np.sqrt(len(losses[0])))
