"""Boosted trees on shares: gradients, histograms, splits, sides and leaves that no party can read."""

from __future__ import annotations

from securevfl.shares.trees.cells import Cells, SharedCells
from securevfl.shares.trees.gradients import compute_gradients, weigh_rows
from securevfl.shares.trees.growing import SharedTree, grow_trees
from securevfl.shares.trees.layout import CellLayout
from securevfl.shares.trees.owned_cells import NarrowCells, deal_cells, score_sides
from securevfl.shares.trees.rule import TreeRule, choose_gradient_bits

__all__ = [
    "CellLayout",
    "Cells",
    "NarrowCells",
    "SharedCells",
    "SharedTree",
    "TreeRule",
    "choose_gradient_bits",
    "compute_gradients",
    "deal_cells",
    "grow_trees",
    "score_sides",
    "weigh_rows",
]
