"""Build the record of a run from what each party has after it: figures, findings, epochs, alignment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from securevfl.errors import ProtectionInactive
from securevfl.ledger import Closing
from securevfl.party import Job, job_exchanges
from securevfl.privacy import Ledger, PublicSigningKey, Reading
from securevfl.report.record import (
    AlignmentRecord,
    EpochRecord,
    LedgerRecord,
    Phases,
    PointsBin,
    PointsRecord,
    PreparedRecord,
    RunRecord,
    ShapeBin,
    ShapeRecord,
)
from securevfl.run.card_inputs import count_numbers, list_members
from securevfl.run.evaluation import evaluate
from securevfl.run.grouping import Grouping
from securevfl.run.job_card import add_budgets, merge_findings, run_title
from securevfl.run.receipt import epsilon_records, epsilon_totals, link_records, message_summary
from securevfl.run.simulation import Aligned, RunOutcome
from securevfl.run.statistics_record import statistics_record
from securevfl.training import Split, Trained
from securevfl.training.state import State, as_dict, as_list

__all__ = ["alignment_record", "ledger_records", "over_draws", "run_record"]


def run_record(
    key: str,
    job: Job,
    ran: RunOutcome,
    owners: Sequence[str],
    passive: Sequence[str],
    seconds: float,
    *,
    title: str = "",
    notes: Sequence[str] = (),
    grouping: Grouping | None = None,
) -> RunRecord:
    """Record one run's measurements, its receipt and what each party can learn.

    Args:
        key: of the run, unique in the record.
        job: that ran.
        ran: results of the run, from all parties or from those that are reported.
        owners: names of the parties with labels.
        passive: names of the others.
        seconds: it took.
        title: as shown; from the job unless given.
        notes: to go before the run's own.
        grouping: the group of each test row, by which the report compares them.

    Raises:
        ProtectionInactive: differential privacy was asked for, and no party counted a release.
    """
    chief = ran.trained.get(owners[0]) or next(iter(ran.trained.values()))
    epochs = max((len(trained.readings) for trained in ran.trained.values()), default=0)
    found = [f for owner in owners for f in job.findings(passive, owner) if passive]
    findings = count_numbers(add_budgets(found, job), job, _count_outputs(job, chief))
    spent = {name: trained.spent for name, trained in ran.trained.items()}
    dp = job.protection.dp
    every = set(ran.trained) >= {*owners, *passive}
    if every and dp is not None and not any(spent.values()):
        raise ProtectionInactive("differential privacy was asked for and no party's accountant counted a release")
    return RunRecord(
        key=key,
        title=title or run_title(job),
        baseline=not passive,
        protection=job.protection.title if passive else "none",
        epochs=[_epoch_record(i, ran) for i in range(len(chief.epochs) or epochs)],
        best_epoch=chief.best_epoch,
        stopped=chief.stopped,
        test=chief.test,
        seconds=seconds,
        links=link_records(ran.ledgers),
        epsilon=epsilon_records(spent),
        epsilon_totals=epsilon_totals(spent),
        receipt=message_summary(ran.ledgers, job_exchanges(job, len(passive)).descriptions),
        learned=merge_findings(findings),
        assumes=job.protection.assumptions(owners, passive) if passive else "",
        members=list_members(job, owners, passive, job.protection.coordinator_among([*owners, *passive])),
        rows_trained=sum(ran.trained[owner].rows for owner in owners if owner in ran.trained),
        notes=[
            *notes,
            *job.algorithm.notes(job.protection),
            *_scoring_notes(job, chief),
            *(n for t in ran.trained.values() for n in t.notes),
        ],
        warnings=list(dict.fromkeys(w for trained in ran.trained.values() for w in trained.warnings)),
        constant=chief.constant,
        alone=chief.alone if job.algorithm.subsets != "all" else {},
        calibration={whose: one.describe() for whose, one in chief.calibration.items()},
        self_training=chief.self_training,
        prepared={
            name: [PreparedRecord(**asdict(line)) for line in trained.prepared]
            for name, trained in ran.trained.items()
            if trained.prepared
        },
        evaluation=evaluate(chief, job.report, grouping),
        points={name: card for name, trained in ran.trained.items() if (card := points_records(trained.model))},
        base_points=_base_points(chief.model),
        statistics=statistics_record(ran.trained, chief),
        shapes={name: shapes for name, trained in ran.trained.items() if (shapes := shape_records(trained.model))},
    )


def _count_outputs(job: Job, chief: Trained) -> int:
    """Numbers that the model has for each row; 1 where this party was not told the classes."""
    outputs = len(chief.classes)
    return outputs if outputs > (0 if job.has_several_labels else 2) else 1  # two classes are one number


def _base_points(model: State) -> float | None:
    found = as_dict(model.get("scorecard", {})).get("points to begin with")
    return float(found) if isinstance(found, int | float) else None


def points_records(model: State) -> list[PointsRecord]:
    """A scorecard's columns and their points, the most informative column first, or the one whose points differ most
    where nobody knows; empty for other models."""
    card: Mapping[str, Any] = as_dict(model.get("scorecard", {}))
    found = [
        PointsRecord(
            column=str(one["column"]),
            units=str(one["units"]),
            information_value=one.get("information value"),
            bins=[
                PointsBin(up_to=part["up to"], rows=part["rows"], woe=part.get("woe"), points=part["points"])
                for part in one["bins"]
            ],
        )
        for one in card.get("columns", ())
        if len(one["bins"]) > 1
    ]
    return sorted(found, key=_order_of_points)


def _order_of_points(one: PointsRecord) -> float:
    points = [part.points for part in one.bins]
    return min(points) - max(points) if one.information_value is None else -one.information_value


def shape_records(model: State) -> list[ShapeRecord]:
    """An additive model's shapes at their owner, the most important first; empty for other models."""
    return [
        ShapeRecord(
            column=str(one["column"]),
            importance=float(one["importance"]),
            noise=float(one["noise"]),
            bins=[
                ShapeBin(
                    bin=part["bin"],
                    share=part["share"],
                    values=part["values"],
                    deviation=part["deviation"],
                    points=part["points"],
                )
                for part in one["bins"]
            ],
        )
        for one in as_list(model.get("shape tables", []))
    ]


def _scoring_notes(job: Job, chief: Trained) -> list[str]:
    """Describe how the active party's other rows are scored, and how certain scores are."""
    found = []
    if chief.alone and job.algorithm.subsets != "all":
        figures = ", ".join(f"{name} {value:.4f}" for name, value in chief.alone.items())
        found.append(f"test rows by the active party's own columns, without a message: {figures}")
    who = {"whole": "scores from all columns", "alone": "scores from the active party's own"}
    for whose, one in chief.calibration.items():
        way = f"temperature {one.correction.temperature:.3g}" + " and an intercept" * bool(one.correction.intercept)
        found.append(
            f"{who[whose]} are calibrated by {way}, from {one.rows:,} validation rows, as cross-validation over these "
            f"lowers the log-loss by {one.gain:.3g}; the figures here and every prediction are calibrated; "
            f"expected calibration error on the test rows {one.before:.3f} before, {one.after:.3f} after"
        )
    return found


def _epoch_record(index: int, ran: RunOutcome) -> EpochRecord:
    """Combine every party's clock into the record of one epoch."""
    readings: dict[str, Reading] = {name: trained.readings[index] for name, trained in ran.trained.items()}
    told = next((trained.epochs[index] for trained in ran.trained.values() if trained.epochs), None)
    longest = max(reading.compute + reading.he + reading.wait for reading in readings.values())
    return EpochRecord(
        epoch=index + 1,
        train_loss=None if told is None or math.isnan(told.loss) else told.loss,
        valid={} if told is None else told.valid,
        seconds=longest,
        phases={name: Phases(compute=r.compute, he=r.he, wait=r.wait) for name, r in readings.items()},
        bytes={f"{name} -> {peer}": size for name, r in readings.items() for peer, size in r.sent.items()},
    )


def alignment_record(aligned: Aligned, split: Split, chief: str, seconds: float) -> AlignmentRecord:
    """Record how the parties were aligned and how many rows they share.

    Args:
        aligned: all parties' alignments.
        split: of the common rows.
        chief: the first label owner.
        seconds: it took.
    """
    active = aligned.parties[chief]
    return AlignmentRecord(
        protocol=active.protocol or aligned.protocol,
        common=aligned.common_rows,
        train=len(split.train),
        valid=len(split.valid),
        test=len(split.test),
        pairwise=active.pairwise,
        seconds=seconds,
        links=link_records(aligned.ledgers),
        verified_by=sorted(aligned.alignments) if active.digest else [],
        digest=active.digest[:16],
    )


def ledger_records(ledgers: Mapping[str, Mapping[str, Ledger]]) -> list[LedgerRecord]:
    """Each party's key, its signature, and the peers that have its signed ledger head in every run they share.

    Args:
        ledgers: run → party → ledger, closed.
    """
    closings = {
        run: {name: line for name, ledger in parties.items() if isinstance(line := ledger.last_line, Closing)}
        for run, parties in ledgers.items()
    }
    found = []
    for party in sorted({name for parties in ledgers.values() for name in parties}):
        own = [parties[party] for parties in ledgers.values() if party in parties]
        held: dict[str, bool] = {}
        for run, parties in ledgers.items():
            for peer in parties.keys() - {party} if party in parties else ():
                closing = closings[run].get(peer)
                held[peer] = held.get(peer, True) and closing is not None and party in closing.words
        found.append(
            LedgerRecord(
                party=party,
                fingerprint=PublicSigningKey.from_hex(own[0].opening.key).fingerprint,
                messages=sum(ledger.message_count for ledger in own),
                cross_signed_by=sorted(peer for peer, holds in held.items() if holds),
            )
        )
    return found


def over_draws(run: RunRecord, more: Sequence[Mapping[str, float]]) -> RunRecord:
    """The run's figures as mean and standard deviation over it and further runs, given by their test metrics."""
    if not more:
        return run
    every = [run.test, *more]
    common = [name for name in run.test if all(name in test for test in every)]
    note = (
        f"mean ± standard deviation of {len(every)} runs, each with fresh noise; ε is that of one run: parties that "
        f"ran it {len(every)} times would pay it {len(every)} times"
    )
    return msgspec.structs.replace(
        run,
        test={name: float(np.mean([test[name] for test in every])) for name in common},
        deviation={name: float(np.std([test[name] for test in every], ddof=1)) for name in common},
        draws=len(every),
        notes=[*run.notes, note],
    )
