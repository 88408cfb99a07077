"""Jobs: what to run, running it, and what came of it."""

from securevfl.jobs.auditing import AuditLine, audit
from securevfl.jobs.comparison import BASELINES, compare, simulate
from securevfl.jobs.demonstration import demo
from securevfl.jobs.job import Job
from securevfl.jobs.result import Result, write_ledgers
from securevfl.jobs.simulation import Aligned, align_parties
from securevfl.jobs.toml import JobFile, read_job

__all__ = [
    "BASELINES",
    "Aligned",
    "AuditLine",
    "Job",
    "JobFile",
    "Result",
    "align_parties",
    "audit",
    "compare",
    "demo",
    "read_job",
    "simulate",
    "write_ledgers",
]
