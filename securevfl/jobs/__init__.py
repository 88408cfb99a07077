"""Jobs: running them in one process, comparing them, and what came of it.

`simulation` runs every party's program over memory, `comparison` several jobs with baselines, `sweep` many; `files`
reads job files; `model`, `checkpoint` and `store` keep what was learned; `auditing` reads ledgers. Only the command line and
`testing` import this folder. It names no algorithm.
"""

from securevfl.jobs.auditing import Audit, AuditLine, Epsilon, audit
from securevfl.jobs.comparison import BASELINES, compare, simulate
from securevfl.jobs.demonstration import demo
from securevfl.jobs.model import Model, Prediction, predict
from securevfl.jobs.result import Result, write_ledgers
from securevfl.jobs.simulation import Aligned, align_parties, join_parties
from securevfl.jobs.sweep import Sweep, read_sweep, run_sweep
from securevfl.jobs.toml import JobFile, read_job
from securevfl.party import Job

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
