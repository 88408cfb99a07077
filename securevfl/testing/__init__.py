"""Check an algorithm or a protection of your own, in the spirit of scikit-learn's `check_estimator`.

`check_algorithm` checks that an algorithm keeps the contract of all algorithms, and `checks` lists the single checks
for a test runner. `check_protection` does the same for a protection and both sides of its cut. No pytest is needed.
Tests may import this package; the rest of the toolkit never does.
"""

from securevfl.testing.algorithms import check_algorithm, checks
from securevfl.testing.failure import CheckFailed
from securevfl.testing.linked_parties import link_in_memory
from securevfl.testing.protections import check_protection

__all__ = ["CheckFailed", "check_algorithm", "check_protection", "checks", "link_in_memory"]
