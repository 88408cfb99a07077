"""Baselines of a federation: the active party alone, and all columns pooled in the clear."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import msgspec
import numpy as np

from securevfl.align import Alignment
from securevfl.data import ColumnPreparation, Parties, PartyTable, Preparation
from securevfl.data.categories import Column
from securevfl.data.table import TRAIN
from securevfl.experiments.boosted_baseline import train_boosted
from securevfl.party import Job
from securevfl.party.numbering import excluded_rows
from securevfl.party_context import Observer
from securevfl.report.record import RunRecord
from securevfl.run.grouping import find_grouping
from securevfl.run.recording import run_record
from securevfl.run.simulation import Aligned, RunOutcome, run_parties
from securevfl.training import Algorithm, Split

__all__ = ["BASELINES", "run_baseline", "usual_baselines", "wrong_baselines"]

BASELINES = ("alone", "alone_boosted", "pooled", "pooled_boosted")
"""Keys of the baselines: the job's own method and scikit-learn's gradient boosted trees, each over the active party's
columns and over everybody's."""

_BOOSTED = "_boosted"
_MOST_CELLS = 20_000_000
"""Boosted trees over a table with more cells, or of pictures, are drawn only where somebody asks for them."""
_SETTINGS = "scikit-learn's histogram gradient boosting with its defaults; rounds chosen on validation rows"


def wrong_baselines(algorithm: Algorithm, baselines: Sequence[str]) -> list[str]:
    """Why the algorithm cannot be compared with these baselines; empty if it can."""
    if algorithm.describes and baselines:
        return [f"{algorithm.title} train no model to compare baselines with: leave baselines out"]
    if not (algorithm.many_owners and baselines):
        return []
    return [f"{algorithm.title} has several label owners; the baselines are for one: leave them out"]


def usual_baselines(job: Job, parties: Parties) -> tuple[str, ...]:
    """Baselines that say whether joining is worth it: what the active party has alone, by the job's own method and by
    boosted trees, and the job's method over all columns. None where several parties have labels, and beside statistics.

    Args:
        job: that they stand beside.
        parties: the parties' tables.
    """
    if job.algorithm.many_owners or job.algorithm.describes:
        return ()
    own = parties.active.columns
    if not own:
        return ("pooled",)
    flat = all(np.ndim(values) == 1 for values in own.values())
    small = flat and len(own) * parties.active.rows <= _MOST_CELLS
    return tuple(key for key in ("alone", "alone_boosted", "pooled") if small or not key.endswith(_BOOSTED))


def run_baseline(
    key: str, job: Job, parties: Parties, aligned: Aligned, split: Split, observer: Observer
) -> tuple[RunRecord, RunOutcome]:
    """The active party alone, on all rows of its own but the test's and validation's; or everybody's columns in one
    table."""
    active = parties.active
    rows = aligned.parties[active.name].rows
    boosting = key.endswith(_BOOSTED)
    if key.startswith("alone"):
        table = active
        free = np.arange(active.rows) if active.fold is None else np.flatnonzero(active.fold == TRAIN)
        others = np.setdiff1d(free, rows)
        others = others[~excluded_rows(active, rows, split, job)[others]]
        rows = np.concatenate([rows, others])
        extra = np.arange(aligned.common_rows, len(rows))
        split = Split(np.concatenate([split.train, extra]), split.valid, split.test)
        title = f"{active.name} alone, boosted trees" if boosting else f"{active.name} alone"
        note = "trains on all its rows, aligned or not, but those of validation and test"
    else:
        table, rows = _pool_tables(parties, aligned, job), np.arange(aligned.common_rows)
        title = "boosted trees, pooled in the clear" if boosting else "same model, pooled in the clear"
        note = "all columns in one table: nobody may do this" + ("" if boosting else "; the ceiling of this model")
    places = {name: one.rows[split.test] for name, one in aligned.parties.items()}
    grouping = find_grouping(job.report, parties, places, active.name)
    own = Aligned(alignments={active.name: {active.name: Alignment(rows=rows, digest="", verified_by=(), pairwise={})}})
    began = time.perf_counter()
    if boosting:
        ran = RunOutcome(trained={active.name: train_boosted(job, table, rows, split)}, ledgers={}, split=split)
        record = run_record(
            key, job, ran, [table.name], (), time.perf_counter() - began, title=title, grouping=grouping
        )
        return msgspec.structs.replace(record, notes=[note, _SETTINGS]), ran
    ran = run_parties(job, Parties.of(table), own, run=key, split=split, observer=observer)
    seconds = time.perf_counter() - began
    record = run_record(key, job, ran, [table.name], (), seconds, title=title, notes=[note], grouping=grouping)
    return record, ran


def _pool_tables(parties: Parties, aligned: Aligned, job: Job) -> PartyTable:
    """All columns of the common rows in one table, named as the active party's, prepared by their parties' settings."""
    columns: dict[str, Column] = {}
    categorical: set[str] = set()
    prepared: dict[str, ColumnPreparation] = {}
    for name, table in parties.items():
        part = table.take(aligned.parties[name].rows)
        for column, values in part.columns.items():
            label = column if column not in columns else f"{name}.{column}"
            columns[label] = values
            own = Preparation(scale=job.scale, missing="refuse") if part.preparation is None else part.preparation
            prepared[label] = ColumnPreparation(**own.column_rules(column).describe())
            if column in part.categorical:
                categorical.add(label)
    active = parties.active.take(aligned.parties[parties.active.name].rows)
    any_prepared = any(table.preparation is not None for table in parties.values())
    preparation = Preparation(columns=prepared) if any_prepared else None
    return dataclasses.replace(active, columns=columns, categorical=frozenset(categorical), preparation=preparation)
