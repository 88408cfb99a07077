"""Digests that tie a party's checkpoints to its data: of its table and of its aligned rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from securevfl.data import Categories, Names, PartyTable
from securevfl.data.storage import release_memory
from securevfl.party import Alignments

__all__ = ["data_digests"]


def data_digests(table: PartyTable | None, alignments: Alignments) -> dict[str, str]:
    """SHA-256 of a party's table and of its aligned rows; its checkpoints are valid for these only.

    Args:
        table: the party's table; None at a coordinator.
        alignments: the party's own.
    """
    if table is None:
        return {}
    content = hashlib.sha256()
    _add_texts(content, "ids", table.ids)
    for column, values in sorted(table.columns.items()):
        if isinstance(values, Categories):
            _add_texts(content, f"{column} words", values.words)
            _hash_array(content, column, values.codes)
        else:
            _hash_array(content, column, values)
            release_memory(values)
    for name, part in (
        ("label", table.label),
        ("fold", table.fold),
        ("weight", table.weight),
        ("group", table.group),
        ("time", table.time),
    ):
        if part is not None:
            _hash_array(content, name, part)
    if len(table.persons):
        _add_texts(content, "persons", table.persons)
    if table.book is not None:
        _add_texts(content, "book ids", table.book.ids)
        _hash_array(content, "book", table.book.label)
    if table.preparation is not None:
        _add_texts(content, "preparation", [json.dumps(table.preparation.describe(), sort_keys=True)])
    for field, record in sorted(table.link.items()):
        _add_texts(content, f"link {field}", [repr(value) for value in record])
    _add_texts(content, "names", [str(table.classes), str(sorted(table.categorical))])
    rows = hashlib.sha256()
    for owner, alignment in sorted(alignments.items()):
        _hash_array(rows, owner, alignment.rows)
        for name, labelled in sorted(alignment.labelled.items()):
            _hash_array(rows, f"{owner} {name}", labelled)
    return {"table": content.hexdigest(), "alignment": rows.hexdigest()}


def _hash_array(digest: hashlib._Hash, name: str, values: np.ndarray) -> None:
    values = values.astype(np.str_) if values.dtype.kind == "O" else values
    digest.update(repr((name, values.dtype.str, values.shape, values.nbytes)).encode())
    digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def _add_texts(digest: hashlib._Hash, name: str, texts: Sequence[str]) -> None:
    data, starts, lengths = Names.from_texts(texts).buffers()
    data = data[starts[0] : starts[-1] + lengths[-1]] if len(starts) else data[:0]
    digest.update(repr((name, len(texts), len(data))).encode())
    digest.update(np.ascontiguousarray(lengths).data)
    digest.update(data.data)
