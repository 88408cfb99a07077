"""Multi-VFL: many data owners and many label owners (Mugunthan et al. 2021, arXiv 2106.05468, algorithm 1).

In a round each label owner trains with all data owners on its own rows; a data owner keeps a copy of its bottom for
each label owner. Then data owners average their copies, label owners send the change of their weights to a
coordinator, and a server optimiser makes the next round's weights.

- `config`: what a job says, and which program each party runs.
- `label_owner`, `data_owner`, `coordinators`: these programs.
- `convolution`: what a label owner has above the cut.
- `averaging`: a label owner's side of the aggregation. `servers`: the server optimisers. `declared`: every message.

No label owner's change is seen by anyone else. With ``aggregation="masked"`` label owners share pairwise secrets, and
the coordinator learns the changes' sum only (secure aggregation, Bonawitz et al. 2017, doi 10.1145/3133956.3133982, for
parties that all stay to the end). With ``"paillier"`` or ``"ckks"`` it adds ciphertexts and learns nothing at all. All
three give the same weights, see `averaging`. All label owners learn the mean of the changes from the next weights.

Under a sealed cut nobody holds the weights W = U + V between data owner and label owner, but the mean over label owners
is linear: a data owner averages its shares U, the label owners theirs by the same aggregation. Shares are integers then
and each side rounds its own mean: the weights are within two units of their last place of the plain run's.

In the paper data owners send the output of a convolution, brought together to 32 channels, and label owners have a
convolution and two linear layers. Here the parties' parts meet in the cut layer, which is linear, so that it can be
sealed; it has to learn what lies where. Linear layers follow, below them with ``convolution=…`` a convolution.

Only `securevfl.algorithms` imports from here.
"""

from securevfl.algorithms.multivfl.config import MultiVFL

__all__ = ["MultiVFL"]
