"""Vertical gradient boosting: trees over the columns of several parties (Cheng et al., SecureBoost, IEEE Intelligent
Systems 2021; Chen et al., SecureBoost+, 2021).

`configuration` says what a job can ask for and declares every message; `bins`, `splits` and `trees` are the arithmetic;
`growing` grows one tree at the active party; `histograms` makes and reads sums, in the clear or sealed; `active` and
`passive` are the roles.
"""

from securevfl.algorithms.boosting.configuration import Boosting

__all__ = ["Boosting"]
