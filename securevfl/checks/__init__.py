"""Find what would fail before a job runs: in the job file, in a party's own file, and by a party's policy."""

from securevfl.checks.job_check import Checked, check_file
from securevfl.checks.policy_check import PolicyChecked, check_policy

__all__ = [
    "Checked",
    "PolicyChecked",
    "check_file",
    "check_policy",
]
