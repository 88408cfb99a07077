"""A party's shapes for another scoring engine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.algorithms.additive.columns import bin_offsets, code_rows, read_columns
from securevfl.algorithms.additive.shapes import CLIP, to_logits
from securevfl.export import ExportedModel, PartSource
from securevfl.training.state import as_dict, as_tensor

__all__ = ["export_shapes"]


def export_shapes(source: PartSource) -> ExportedModel:
    """The party's shapes: a value for each bin of each of its columns. They are in its hands under any protection."""
    kept = as_dict(as_dict(source.model["parts"])["shapes"])
    columns, values = read_columns(kept["columns"]), as_tensor(kept["values"]).numpy()
    start = as_tensor(kept["start"]).numpy()
    offsets, bins = bin_offsets(columns), []
    base = start.copy() if source.is_active else np.zeros(source.outputs)
    for j, column in enumerate(columns):
        part = values[offsets[j] : offsets[j + 1]]
        if column.is_intercept:
            base = base + part[0]
            continue
        bins.append({"edges": column.edges.tolist(), "values": part.tolist(), "missing": True})
    numeric = source.link.get("then") == "number"

    def compute(x: np.ndarray, others: Mapping[str, np.ndarray]) -> np.ndarray:
        found = np.zeros((len(x), source.outputs))
        for codes in code_rows(columns, x).T:
            found += values[codes]
        if not source.is_active:
            return found
        found = found + start
        for name in source.head.others or ():
            found = found + others[name]
        return to_logits(found, numeric=numeric)

    return ExportedModel(
        kind="bins",
        model={"outputs": source.outputs, "bins": bins, "base": base.tolist()},
        compute=compute,
        others=dict.fromkeys(source.head.others or (), source.outputs),
        sums={"sums are": "between 0 and 1"} if numeric else {"sums are": "probabilities", "clip": CLIP},
    )
