"""Find what would fail before a job runs: in the job file, in a party's own file, and by a party's policy."""

from securevfl.checks.job_check import JobCheck, check_file
from securevfl.checks.policy_check import PolicyCheck, check_policy

__all__ = [
    "JobCheck",
    "PolicyCheck",
    "check_file",
    "check_policy",
]
