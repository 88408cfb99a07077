"""Sums over common rows of products of different parties' columns, for statistics before a model."""

from securevfl.training.crossing.plan import (
    COLUMNS,
    LAYOUT,
    LIMB_BITS,
    CrossedRole,
    CrossPlan,
    PartyLayout,
    Release,
    join_bins,
    read_layouts,
)

__all__ = [
    "COLUMNS",
    "LAYOUT",
    "LIMB_BITS",
    "CrossPlan",
    "CrossedRole",
    "PartyLayout",
    "Release",
    "join_bins",
    "read_layouts",
]
