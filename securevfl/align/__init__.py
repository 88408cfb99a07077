"""Alignment: the parties find their common rows, agree on an order, and verify that they agree.

`run` chooses the protocol, `pairwise` and `everyone` are the two, `agreement` is what they share, `joined` joins in the
clear for experiments. Every party sends every other a keyed digest of its own identifiers in the agreed order; only an
alignment that all found equal can be trained on.
"""

from securevfl.align.agreement import Alignment
from securevfl.align.joined import join
from securevfl.align.run import align, protocol_of

__all__ = ["Alignment", "align", "join", "protocol_of"]
