"""Jobs: what to run, running it, and what came of it."""

from securevfl.jobs.auditing import Audit, AuditLine, Epsilon, audit
from securevfl.jobs.comparison import BASELINES, compare, simulate
from securevfl.jobs.demonstration import demo
from securevfl.jobs.job import Job
from securevfl.jobs.model import Model, Prediction, predict
from securevfl.jobs.owners import align_owners
from securevfl.jobs.result import Result, write_ledgers
from securevfl.jobs.simulation import Aligned, align_parties, join_parties
from securevfl.jobs.sweep import Sweep, read_sweep, run_sweep
from securevfl.jobs.toml import JobFile, read_job

__all__ = [
    "BASELINES",
    "Aligned",
    "Audit",
    "AuditLine",
    "Epsilon",
    "Job",
    "JobFile",
    "Model",
    "Prediction",
    "Result",
    "Sweep",
    "align_owners",
    "align_parties",
    "audit",
    "compare",
    "demo",
    "join_parties",
    "predict",
    "read_job",
    "read_sweep",
    "run_sweep",
    "simulate",
    "write_ledgers",
]
