"""Checks for whoever adds a part to the toolkit, in the spirit of scikit-learn's `check_estimator`. `check_algorithm`
runs an algorithm through the contract that all algorithms keep, and `checks` gives its single checks to a test runner;
`check_protection` runs a protection through the whole contract of a cut. No pytest is needed. Tests may import this
package; the rest of the toolkit never does.
"""

from securevfl.testing.algorithms import check_algorithm, checks
from securevfl.testing.failure import CheckFailed
from securevfl.testing.linked_parties import link_in_memory
from securevfl.testing.protections import check_protection

__all__ = ["CheckFailed", "check_algorithm", "check_protection", "checks", "link_in_memory"]
