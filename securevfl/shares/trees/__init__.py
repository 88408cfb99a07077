"""Boosted trees on shares: gradients, histograms, splits, sides and leaves that no party can read."""

from __future__ import annotations

from securevfl.shares.trees.cells import Cells, SharedCells
from securevfl.shares.trees.gradients import compute_gradients, weigh_rows
from securevfl.shares.trees.growing import SharedTree, grow_trees
from securevfl.shares.trees.layout import CellLayout
from securevfl.shares.trees.rule import TreeRule, choose_gradient_bits

__all__ = [
    "CellLayout",
    "Cells",
    "SharedCells",
    "SharedTree",
    "TreeRule",
    "choose_gradient_bits",
    "compute_gradients",
    "grow_trees",
    "weigh_rows",
]
