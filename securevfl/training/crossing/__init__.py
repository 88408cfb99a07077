"""Sums over common rows of products of different parties' columns, for statistics before a model."""

from securevfl.training.crossing.plan import (
    COLUMNS,
    LAYOUT,
    LIMB_BITS,
    CrossPlan,
    PartyLayout,
    Release,
    join_bins,
    read_layouts,
)
from securevfl.training.crossing.role import CrossedRole, begin_crossing

__all__ = [
    "COLUMNS",
    "LAYOUT",
    "LIMB_BITS",
    "CrossPlan",
    "CrossedRole",
    "PartyLayout",
    "Release",
    "begin_crossing",
    "join_bins",
    "read_layouts",
]
