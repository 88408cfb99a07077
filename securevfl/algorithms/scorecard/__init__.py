"""The logistic scorecard: bins, weight of evidence from sealed counts, a logistic regression, points.

`binning` cuts columns and computes weights of evidence; `counting` is the exchange of sealed counts; `binned_roles` are
the parties that cut columns, also those on shares, `roles` those at a cut; `points` makes the table; `config` is the
configuration with the message declarations.
"""

from securevfl.algorithms.scorecard.config import Scorecard

__all__ = ["Scorecard"]
