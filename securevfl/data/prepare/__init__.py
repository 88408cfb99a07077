"""Prepare a party's columns: detect their kind, fill missing values, scale numbers, encode categories and dates."""

from securevfl.data.prepare.columns import PreparedColumn
from securevfl.data.prepare.fitting import Declared, PreparedLine, fit_columns
from securevfl.data.prepare.rules import SCALES, ColumnPreparation, Preparation, Scale
from securevfl.data.prepare.scaling import Linear, Scores, fit_scaling, normal_scores
from securevfl.data.prepare.stored import KIND, column_from_state, column_state

__all__ = [
    "KIND",
    "SCALES",
    "ColumnPreparation",
    "Declared",
    "Linear",
    "Preparation",
    "PreparedColumn",
    "PreparedLine",
    "Scale",
    "Scores",
    "column_from_state",
    "column_state",
    "fit_columns",
    "fit_scaling",
    "normal_scores",
]
