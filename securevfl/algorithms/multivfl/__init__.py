"""Multi-VFL: many data owners and many label owners (Mugunthan et al. 2021, arXiv 2106.05468, algorithm 1).

In a round each label owner trains with all data owners on its own rows; a data owner keeps a copy of its bottom for
each label owner. Then data owners average their copies, label owners send the change of their weights to a
coordinator, and a server optimiser makes the next round's weights.

- `config`: the configuration, and the choice of each party's program.
- `label_owner`, `data_owner`, `coordinators`: these programs.
- `convolution`: a label owner's network above the cut.
- `averaging`: a label owner's side of the aggregation. `servers`: the server optimisers. `declared`: every message.

Nobody else sees a label owner's change. With ``aggregation="masked"`` label owners share pairwise secrets, and the
coordinator learns only the sum of the changes (secure aggregation, Bonawitz et al. 2017, doi 10.1145/3133956.3133982,
for parties that all stay to the end). With ``"paillier"`` or ``"ckks"`` it adds ciphertexts and learns nothing. All
three give the same weights, see `averaging`. From the next weights, all label owners learn the mean of the changes.

Under a sealed cut no party has the weights W = U + V between data owner and label owner. But the mean over label owners
is linear, so a data owner averages its shares U, and the label owners average their shares V by the same aggregation.
The shares are then integers and each side rounds its mean, so the weights differ from the plain run's by at most two
units in the last place.

In the paper data owners send the output of a convolution, combined to 32 channels, and label owners have a convolution
and two linear layers. Here the cut layer joins the parties' parts. It is linear, so that it can be sealed, and has to
learn the positions of pixels. Linear layers follow; with ``convolution=…``, a convolution comes before them.

Only `securevfl.algorithms` imports from here.
"""

from securevfl.algorithms.multivfl.config import MultiVFL

__all__ = ["MultiVFL"]
