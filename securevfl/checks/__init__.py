"""Find what would fail before a job runs: in the job file, in a party's own file, and by a party's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.checks.job_check import JobCheck, check_file
    from securevfl.checks.policy_check import PolicyCheck, check_policy, read_own_share

_NAMES = {
    "securevfl.checks.job_check": "JobCheck check_file",
    "securevfl.checks.policy_check": "PolicyCheck check_policy read_own_share",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "JobCheck",
    "PolicyCheck",
    "check_file",
    "check_policy",
    "read_own_share",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
