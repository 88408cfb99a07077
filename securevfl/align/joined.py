"""The alignment of all parties by a join in the clear: for experiments in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import securevfl_psi as psi

from securevfl.align.result import RULES, Alignment, order
from securevfl.errors import AlignmentError, InputError

__all__ = ["join"]


def join(
    active: str,
    ids: Mapping[str, Sequence[str]],
    seed: int,
    book: Sequence[str] = (),
    held_out: Sequence[int] | np.ndarray = (),
) -> dict[str, Alignment]:
    """The alignment of all parties, by a join in the clear: for experiments in one process, where a run of the
    protocol would show nothing. Rows and order are those of `align`.

    Args:
        active: name of the active party.
        ids: party → its identifiers.
        seed: the job's.
        book: identifiers of which the active party knows the label only.
        held_out: rows of the active party's that validate and test.

    Raises:
        AlignmentError: no common rows.
        InputError: identifiers that are empty, null or doubled.
    """
    try:
        normal = {name: psi.normalise(own, RULES) for name, own in ids.items()}
        known = psi.normalise([*ids[active], *book], RULES)
    except psi.IdentifierError as error:
        raise InputError(str(error)) from error
    places = {name: {text: row for row, text in enumerate(own)} for name, own in normal.items()}
    passive = sorted(set(ids) - {active})
    common = {row for row, text in enumerate(normal[active]) if all(text in places[name] for name in passive)}
    if not common:
        raise AlignmentError(f"no row is held by all of {', '.join(sorted(ids))}")
    rows = order(known, sorted(common), seed)
    labelled = {}
    out = common | {int(row) for row in held_out}
    for name in passive if book else ():
        both = [row for row, text in enumerate(known) if row not in out and text in places[name]]
        labelled[name] = order(known, both, seed)
    found = {}
    for name in ids:
        mine = labelled if name == active else {}
        if name in labelled:
            mine = {name: np.array([places[name][known[row]] for row in labelled[name].tolist()], dtype=np.int64)}
        found[name] = Alignment(
            rows=np.array([places[name][known[row]] for row in rows.tolist()], dtype=np.int64),
            digest="",
            verified_by=tuple(sorted(set(ids) - {name})),
            pairwise={},
            labelled=mine,
        )
    return found
