"""Vertical gradient boosting: trees over the columns of several parties (Cheng et al., SecureBoost, IEEE Intelligent
Systems 2021; Chen et al., SecureBoost+, 2021).

`configuration` is the algorithm, `settings` its options and message declarations. `bins`, `categories`, `directions`,
`splits` and `trees` are the arithmetic, `histograms` the sums. `growing` grows one tree at the active party: `asking`
sends its questions to the passive parties, in the clear or sealed, and `answering` answers them. `active` and `passive`
are the roles, `on_shares` those where trees grow on shares. `own_model` are trees of the active party's own columns, at
whose scores `on_own` begins.
"""

from securevfl.algorithms.boosting.configuration import Boosting
from securevfl.algorithms.boosting.on_own import BoostedResidual

__all__ = ["BoostedResidual", "Boosting"]
