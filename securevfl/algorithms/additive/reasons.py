"""Reason codes: which of a party's own columns lower the score of a person most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.algorithms.additive.columns import read_columns
from securevfl.algorithms.additive.tables import Reason, find_reasons
from securevfl.data import FeatureEncoder, PartyTable
from securevfl.errors import InputError
from securevfl.training.state import as_dict, as_tensor

__all__ = ["explain_rows"]


def explain_rows(
    part: Mapping[str, Any], table: PartyTable, ids: Sequence[str], *, most: int = 4, output: int = 0
) -> dict[str, list[Reason]]:
    """Reason codes of persons, from one party's part of a trained additive model. No message is sent, and no other
    party's columns are among the reasons.

    ```python
    reasons = explain_rows(result.model().parts["bank"], bank, ["c-1009"])
    ```

    Args:
        part: the party's, as `Model.parts` has it.
        table: the party's.
        ids: of the persons, each in the table.
        most: how many reasons of each.
        output: of which class, where there are several.

    Returns:
        Person → its most negative terms, the lowest first; fewer than `most` where fewer are below zero.

    Raises:
        InputError: the part is of another algorithm, or has no such output; or a person is not in the table.
    """
    shapes = as_dict(part.get("parts", {})).get("shapes")
    if shapes is None:
        raise InputError(f"this part of a model at {table.name!r} has no shapes: it is not of an additive model")
    kept = as_dict(shapes)
    columns, values = read_columns(kept["columns"]), as_tensor(kept["values"]).numpy()
    if not 0 <= output < values.shape[1]:
        raise InputError(f"output is {output}; the model has {values.shape[1]}, counted from 0")
    place = {name: at for at, name in enumerate(table.ids)}
    for one in ids:
        if one not in place:
            raise InputError(f"the table of {table.name!r} has no person {one!r}: give ids of that table")
    x = FeatureEncoder.from_state(part["encoder"]).transform(table, np.array([place[one] for one in ids], np.int64))
    return {one: find_reasons(columns, values, row, most=most, output=output) for one, row in zip(ids, x, strict=True)}
