"""A party's part of an additive model: its columns, its shapes and the start, kept and stored with the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from securevfl.algorithms.additive.columns import BinnedColumn, bin_offsets, code_rows, read_columns, write_columns
from securevfl.algorithms.additive.settings import AdditiveSettings
from securevfl.algorithms.additive.shapes import CLIP, OwnShapes, PublicPlan, to_logits
from securevfl.algorithms.additive.tables import shape_tables
from securevfl.errors import InputError
from securevfl.export import ExportedModel, PartSource
from securevfl.training.state import State, as_dict, as_list, as_tensor

__all__ = ["ShapesPart", "export_shapes"]


class _Owner(Protocol):
    """What a part asks of its role, see `AdditiveRole`."""

    @property
    def config(self) -> AdditiveSettings: ...
    @property
    def outputs(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def party(self) -> str: ...
    def training_rows(self, epoch: int) -> np.ndarray: ...
    def columns_of(self, rows: np.ndarray) -> np.ndarray: ...
    async def prepare(self) -> None: ...


class ShapesPart:
    """A party's part of the model: its columns, its shapes, and the start.

    Args:
        role: whose part it is.

    Attributes:
        columns: with their bins; the active party's begin with the intercept.
        values: of each bin, float64 (all bins, outputs).
        variance: of each bin's value from the noise alone, (all bins,).
        start: the prediction that training began with, (outputs,).
        training: the shapes with the training rows; None outside training.
    """

    def __init__(self, role: _Owner) -> None:
        self._role = role
        self.columns: list[BinnedColumn] = []
        self.start = np.zeros(role.outputs)
        self.training: OwnShapes | None = None
        self._values = np.zeros((0, role.outputs))
        self._variance = np.zeros(0)

    @property
    def values(self) -> np.ndarray:
        """Values of each bin, float64 (all bins, outputs)."""
        return self._values if self.training is None else self.training.values

    @property
    def variance(self) -> np.ndarray:
        """Variance of each bin's value, from the noise alone, (all bins,)."""
        return self._variance if self.training is None else self.training.variance

    async def setup(self) -> None:
        """Bin the columns and exchange what is public, before training; nothing in a prediction."""
        if len(self._role.training_rows(0)):
            await self._role.prepare()

    def begin(self, plan: PublicPlan, columns: Sequence[BinnedColumn], x: np.ndarray) -> None:
        """Begin training with flat shapes."""
        self.columns, self.start = list(columns), plan.start
        self.training = OwnShapes(self._role.party, plan, self._role.config.step_rule, columns, x)

    def sum_terms(self, x: np.ndarray) -> np.ndarray:
        """Sum of this party's shapes for each row, float64 (n, outputs); with the start at nobody.

        Args:
            x: its columns of the rows, float64 (n, columns without the intercept).
        """
        found = np.zeros((len(x), self._role.outputs))
        for codes in code_rows(self.columns, x).T:
            found += self.values[codes]
        return found

    def tables(self) -> list[State]:
        """The party's shapes as it reads them; see `shape_tables`."""
        return shape_tables(self.columns, self.values, self.variance)

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        return {
            "columns": write_columns(self.columns),
            "values": torch.from_numpy(self.values.copy()),
            "variance": torch.from_numpy(self.variance.copy()),
            "start": torch.from_numpy(self.start.copy()),
        }

    def restore(self, state: object) -> None:
        """See `Part.restore`."""
        kept, role = as_dict(state), self._role
        columns = read_columns(as_list(kept["columns"]))
        values, variance = as_tensor(kept["values"]).numpy().copy(), as_tensor(kept["variance"]).numpy().copy()
        start = as_tensor(kept["start"]).numpy().copy()
        bins = sum(one.bins for one in columns)
        own = sum(not one.is_intercept for one in columns)
        if (
            values.shape != (bins, role.outputs)
            or variance.shape != (bins,)
            or start.shape != (role.outputs,)
            or own != role.width
        ):
            raise InputError(f"the stored shapes of {role.party!r} do not fit its columns: the model is damaged")
        self.columns, self.start, self._values, self._variance = columns, start, values, variance
        if self.training is not None:
            self.begin(replace(self.training.plan, start=start), columns, role.columns_of(role.training_rows(0)))
            self.training.values, self.training.variance = values, variance

    def get_state(self) -> State:
        """See `Part.get_state`."""
        return as_dict(self.snapshot())

    def load_state(self, state: State) -> None:
        """See `Part.load_state`."""
        self.restore(state)


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
