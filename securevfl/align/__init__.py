"""Alignment: the parties find their common rows, agree on an order, and verify that they agree.

`options` is a job's section ``[align]``, `linkage` its ``[link]``: records without a common identifier, which `linking`
and, at who compares them, `comparing` give one. `run` is what a party runs, `driver` moves the frames of
`securevfl_psi.joint` over its links, `exchanges` declares them and `clear_join` joins in the clear for experiments.
This package alone uses the conversations of `securevfl_psi`; jobs and party programs import it. Only an alignment that
all parties verified can be trained on.
"""

from securevfl.align.clear_join import join_in_clear
from securevfl.align.exchanges import EXCHANGES, alignment_exchanges, declarable_exchanges
from securevfl.align.linkage import CodeField, DateField, Linkage, NumberField, TextField
from securevfl.align.linking import LinkedRows, check_fields, link_exchanges, link_rows
from securevfl.align.options import Align
from securevfl.align.result import Alignment
from securevfl.align.run import align, protocol_of

__all__ = [
    "EXCHANGES",
    "Align",
    "Alignment",
    "CodeField",
    "DateField",
    "Linkage",
    "LinkedRows",
    "NumberField",
    "TextField",
    "align",
    "alignment_exchanges",
    "check_fields",
    "declarable_exchanges",
    "join_in_clear",
    "link_exchanges",
    "link_rows",
    "protocol_of",
]
