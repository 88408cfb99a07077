"""Which test rows the seeds of an experiment share, cell by cell."""

from __future__ import annotations

from securevfl.data import Parties
from securevfl.data.resampling import compute_ratio, describe_split
from securevfl.experiments.cells import Cell
from securevfl.party import Job

__all__ = ["find_cell_ratio", "find_job_ratio"]


def find_job_ratio(job: Job, drawn: float = 1.0) -> float:
    """Test rows over other rows, where the job splits the common rows.

    Args:
        job: a fold of a cross-validation, or a job whose seed draws the split. By time, all seeds test the same rows.
        drawn: share of the rows that are common in one seed; below 1 where seeds also draw the common rows.
    """
    if job.fold is not None:
        return compute_ratio(1 / job.fold[1])
    return 0.0 if job.split_by == "time" else compute_ratio(job.test * drawn)


def find_cell_ratio(cell: Cell, job: Job, parties: Parties) -> float | None:
    """Test rows over the other rows that seeds of this cell draw them from; None where that is unknown.

    Args:
        cell: which ran.
        job: of the cell.
        parties: the tables that it ran on.
    """
    marked = any(table.fold is not None for table in parties.label_owners)
    same = cell.source.get("seed") != cell.seed  # own tables, or a partition that is the same for all seeds
    if same:
        return 0.0 if marked else find_job_ratio(job)
    options = dict(cell.source)
    split = describe_split(options.pop("name", None), options)
    if split is None:
        return None
    return find_job_ratio(job, split.drawn) if split.tested is None else compute_ratio(split.tested)
