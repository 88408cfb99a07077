"""Vertical gradient boosting: trees over the columns of several parties (Cheng et al., SecureBoost, IEEE Intelligent
Systems 2021; Chen et al., SecureBoost+, 2021).

`settings` says what a job can ask for and declares every message; `configuration` is the algorithm. `bins`,
`directions`, `splits` and `trees` are the arithmetic, `histograms` the sums, `growing` grows one tree at the active
party; `asking` asks the others for what it needs, in the clear or sealed; `active` and `passive` are the roles.
"""

from securevfl.algorithms.boosting.configuration import Boosting

__all__ = ["Boosting"]
