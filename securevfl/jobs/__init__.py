"""Jobs: running them in one process, comparing them, and what came of it.

- `files`, `sweep_file`: job files and sweep files. `check`, `policy_check`: what would fail, and what
  a party's own policy refuses, before anything runs.
- `simulation` runs every party's program over memory, `comparison` several jobs with baselines, `sweep` many.
- `own_sweep` tries settings of a job over own tables (`grid`), `search` looks for them; `selection_cost` says what
  that costs in privacy.
- `model`, `checkpoint` and `store` keep what was learned. `auditing` reads ledgers; `recorder`
  notes what each party sees of a job, for `attacking`.

Only the command line and `testing` import this folder. It names no algorithm.
"""

from securevfl.jobs.attacking import AttackResult, attack, record_job
from securevfl.jobs.auditing import Audit, AuditLine, Epsilon, audit
from securevfl.jobs.baselines import BASELINES
from securevfl.jobs.check import Checked, check_file
from securevfl.jobs.comparison import compare, simulate
from securevfl.jobs.cross_validation import CrossValidation, cross_validate
from securevfl.jobs.demonstration import demo
from securevfl.jobs.files import JobFile, read_job
from securevfl.jobs.model import Model, Prediction, predict
from securevfl.jobs.policy_check import PolicyChecked, check_policy
from securevfl.jobs.policy_file import read_policy
from securevfl.jobs.result import Result
from securevfl.jobs.simulation import Aligned, align_parties, join_parties
from securevfl.jobs.sweep import run_sweep
from securevfl.jobs.sweep_file import Sweep, read_sweep
from securevfl.jobs.written import write_ledgers
from securevfl.party import Job

__all__ = [
    "BASELINES",
    "Aligned",
    "AttackResult",
    "Audit",
    "AuditLine",
    "Checked",
    "CrossValidation",
    "Epsilon",
    "Job",
    "JobFile",
    "Model",
    "PolicyChecked",
    "Prediction",
    "Result",
    "Sweep",
    "align_parties",
    "attack",
    "audit",
    "check_file",
    "check_policy",
    "compare",
    "cross_validate",
    "demo",
    "join_parties",
    "predict",
    "read_job",
    "read_policy",
    "read_sweep",
    "record_job",
    "run_sweep",
    "simulate",
    "write_ledgers",
]
