"""Alignment: the parties find their common rows, agree on an order, and verify that they agree.

`options` is a job's section ``[align]``, `linkage` its ``[link]``: records without a common identifier, which `linking`
and, at who compares them, `comparing` give one. `run` is what a party runs, `driver` moves the frames of
`securevfl_psi.joint` over its links, `exchanges` declares them and `joined` joins in the clear for experiments. This
package alone uses the conversations of `securevfl_psi`; jobs and party programs import it. Only an alignment that all
parties verified can be trained on.
"""

from securevfl.align.clear_join import join
from securevfl.align.exchanges import EXCHANGES, declarable_exchanges, exchanges
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
    "check_fields",
    "declarable_exchanges",
    "exchanges",
    "join",
    "link_exchanges",
    "link_rows",
    "protocol_of",
]
