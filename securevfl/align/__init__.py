"""Alignment: the parties find their common rows, agree on an order, and verify that they agree.

`options` is a job's section ``[align]``, `linkage` its ``[link]``: records without a common identifier, which `linking`
and, at who compares them, `comparing` give one. `run` is what a party runs, `driver` moves the frames of
`securevfl_psi.joint` over its links, `exchanges` declares them and `clear_join` joins in the clear for experiments.
This package alone uses the conversations of `securevfl_psi`; jobs and party programs import it. Only an alignment that
all parties verified can be trained on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.align.clear_join import join_in_clear
    from securevfl.align.exchanges import EXCHANGES, alignment_exchanges, declarable_exchanges
    from securevfl.align.linkage import CodeField, DateField, Linkage, NumberField, TextField
    from securevfl.align.linking import LinkedRows, check_fields, link_exchanges, link_rows
    from securevfl.align.options import Align
    from securevfl.align.result import Alignment
    from securevfl.align.run import align, protocol_of

_NAMES = {
    "securevfl.align.clear_join": "join_in_clear",
    "securevfl.align.exchanges": "EXCHANGES alignment_exchanges declarable_exchanges",
    "securevfl.align.linkage": "CodeField DateField Linkage NumberField TextField",
    "securevfl.align.linking": "LinkedRows check_fields link_exchanges link_rows",
    "securevfl.align.options": "Align",
    "securevfl.align.result": "Alignment",
    "securevfl.align.run": "align protocol_of",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

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

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
