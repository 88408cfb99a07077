"""Align all parties by a join in the clear: for experiments in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import securevfl_psi as psi

from securevfl.align.result import Alignment, normalise_identifiers, shared_order
from securevfl.errors import AlignmentError, InputError

__all__ = ["join_in_clear"]

_PART = 1 << 16


def join_in_clear(
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
        book: identifiers of rows of which the active party has only the label.
        held_out: rows of the active party's that validate and test.

    Raises:
        AlignmentError: no common rows.
        InputError: identifiers that are empty, null or doubled.
    """
    try:
        normal = {name: normalise_identifiers(own) for name, own in ids.items()}
        known = normalise_identifiers(ids[active], book) if len(book) else normal[active]
    except psi.IdentifierError as error:
        raise InputError(str(error)) from error
    own = len(ids[active])
    passive = sorted(set(ids) - {active})
    wanted = _to_texts(known)
    # For each row known to the active party, its position at each passive party, -1 if that one lacks it.
    places = {active: np.arange(len(known))}
    places |= {name: _find_places(wanted, _to_texts(normal[name])) for name in passive}
    everywhere = np.ones(own, dtype=bool)
    for name in passive:
        everywhere &= places[name][:own] >= 0
    common = np.flatnonzero(everywhere)
    if not len(common):
        raise AlignmentError(f"no row is common to all of {', '.join(sorted(ids))}")
    rows = shared_order(known, common, seed)
    labelled = {}
    free = np.ones(len(known), dtype=bool)
    free[common] = False
    free[np.asarray(held_out, dtype=np.int64)] = False
    for name in passive if len(book) else ():
        labelled[name] = shared_order(known, np.flatnonzero(free & (places[name] >= 0)), seed)
    found = {}
    for name in ids:
        mine = labelled if name == active else {}
        if name in labelled:
            mine = {name: places[name][labelled[name]]}
        found[name] = Alignment(
            rows=places[name][rows],
            digest="",
            verified_by=tuple(sorted(set(ids) - {name})),
            pairwise={},
            labelled=mine,
        )
    return found


def _to_texts(ids: psi.Identifiers) -> Any:
    """Convert to a `pyarrow.LargeBinaryArray`."""
    import pyarrow as pa

    parts = []
    for start in range(0, len(ids), _PART):
        framed = b"".join(ids.iter_framed(np.arange(start, min(start + _PART, len(ids)))))
        lengths = ids.lengths[start : start + _PART].astype(np.int64)
        borders = np.concatenate([[0], np.cumsum(lengths)])
        keep = np.ones(len(framed), dtype=bool)
        keep[(borders[:-1] + 4 * np.arange(len(lengths)))[:, None] + np.arange(4)] = False
        data = np.frombuffer(framed, dtype=np.uint8)[keep]
        parts.append(
            pa.LargeBinaryArray.from_buffers(
                pa.large_binary(), len(lengths), [None, pa.py_buffer(borders), pa.py_buffer(data)]
            )
        )
    return pa.concat_arrays(parts)


def _find_places(wanted: Any, there: Any) -> np.ndarray:
    """Position of each text among another party's, -1 if it is missing, int64 (n,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(wanted, value_set=there).cast(pa.int64())
    places: np.ndarray = pc.fill_null(found, -1).to_numpy()
    return places
