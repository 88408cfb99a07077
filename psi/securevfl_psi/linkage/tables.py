"""Links two tables of one organisation, and formats the links as CSV.

Between organisations, each encodes its own table and a linker compares the encodings: see `clk` and `link`.
"""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from securevfl_psi.linkage.blocking import BlockKey, blocking_tokens
from securevfl_psi.linkage.clk import encode_records
from securevfl_psi.linkage.duplicates import find_duplicates
from securevfl_psi.linkage.link import Linked, link_records
from securevfl_psi.linkage.schema import Schema
from securevfl_psi.linkage.witnesses import witness_tokens

__all__ = ["format_links", "link_tables"]

_HEADER = ("row_a", "row_b", "score", "probability")


def link_tables(
    a: Mapping[str, Sequence[object]],
    b: Mapping[str, Sequence[object]],
    schema: Schema,
    *,
    rules: Sequence[Mapping[str, BlockKey]] | None = None,
    witnesses: Sequence[Mapping[str, BlockKey]] | None = None,
    threshold: float | None = None,
    precision: float | None = None,
    limit: int | None = None,
    deduplicate: bool = True,
) -> Linked:
    """Link two tables that are both in this process.

    Args:
        a: the columns of one table, by name.
        b: the columns of the other.
        schema: the fields to compare.
        rules: blocking rules, see `blocking_tokens`. Default: compare all pairs.
        witnesses: two rules for an estimate of recall, see `witness_tokens`. Default: estimate from the scores alone.
        threshold: the least similarity. Default: the one with the best estimated F1.
        precision: instead, choose the lowest threshold with at least this estimated precision.
        limit: the largest number of pairs kept at a time: see `similar_pairs`.
        deduplicate: whether to link only one row of each person that `find_duplicates` finds several times in a table.

    Returns:
        Row numbers in both given tables, with scores and probabilities. `Linked.sizes` counts the compared rows.

    Raises:
        LinkageError: what `encode`, `blocking_tokens` or `link` refuse.
    """
    key = secrets.token_bytes(32)  # nothing leaves this process
    people = [find_duplicates(table, schema) for table in (a, b)] if deduplicate else []
    if people:
        a, b = (_select_rows(table, schema, who.rows) for table, who in zip((a, b), people, strict=True))
    encoded = encode_records(a, schema, key), encode_records(b, schema, key)
    blocks = None
    if rules is not None:
        blocks = blocking_tokens(a, schema, rules, key), blocking_tokens(b, schema, rules, key)
    seen = None
    if witnesses is not None:
        seen = witness_tokens(a, schema, witnesses, key), witness_tokens(b, schema, witnesses, key)
    linked = link_records(
        *encoded, blocks=blocks, witnesses=seen, threshold=threshold, precision=precision, limit=limit
    )
    if not people:
        return linked
    return replace(
        linked,
        rows_a=people[0].rows[linked.rows_a],
        rows_b=people[1].rows[linked.rows_b],
        duplicates=(people[0].duplicates, people[1].duplicates),
    )


def _select_rows(table: Mapping[str, Sequence[object]], schema: Schema, rows: np.ndarray) -> dict[str, list[object]]:
    return {field.name: [table[field.name][row] for row in rows.tolist()] for field in schema.fields}


def format_links(linked: Linked) -> str:
    """Format links as CSV: ``row_a, row_b, score, probability``, sorted by ``row_a``; rows count from 0."""
    order = np.argsort(linked.rows_a, kind="stable")
    columns = (linked.rows_a, linked.rows_b, linked.scores, linked.probabilities)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(_HEADER)
    for row_a, row_b, score, probability in zip(*(column[order].tolist() for column in columns), strict=True):
        writer.writerow((row_a, row_b, f"{score:.6f}", f"{probability:.6f}"))
    return text.getvalue()
