"""Vertical gradient boosting: trees over the columns of several parties (Cheng et al., SecureBoost, IEEE Intelligent
Systems 2021; Chen et al., SecureBoost+, 2021).

`configuration` is the algorithm, `settings` its options and message declarations. `bins`, `categories`, `directions`,
`splits` and `trees` are the arithmetic, `histograms` the sums. `growing` grows one tree at the active party: `asking`
sends its questions to the passive parties, in the clear or sealed, and `answering` answers them. `active` and `passive`
are the roles.
"""

from securevfl.algorithms.boosting.configuration import Boosting

__all__ = ["Boosting"]
