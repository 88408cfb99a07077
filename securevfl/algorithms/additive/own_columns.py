"""One party's columns, binned as the job says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from securevfl.algorithms.additive.columns import BinnedColumn
from securevfl.algorithms.additive.edges import (
    category_column,
    common_column,
    count_bins,
    declared_column,
    noisy_category,
    noisy_column,
)
from securevfl.algorithms.additive.named import own_entries, split_name
from securevfl.algorithms.additive.settings import AdditiveSettings, EdgesFrom
from securevfl.errors import InputError

__all__ = ["ColumnSource", "bin_columns"]


@dataclass(frozen=True)
class ColumnSource:
    """What a party's bins are made from.

    Attributes:
        party: its name.
        names: of its columns.
        codes: number of codes of each, 0 for numbers.
        levels: names of the codes of each, empty for numbers and where they are unknown.
        edges: where edges and masses come from.
        bins: most bins of values of a column.
        mu: what noisy counts of one column may spend; 0 where none are drawn.
    """

    party: str
    names: Sequence[str]
    codes: Sequence[int]
    levels: Sequence[Sequence[str]]
    edges: EdgesFrom
    bins: int
    mu: float = 0.0


def bin_columns(source: ColumnSource, settings: AdditiveSettings, x: np.ndarray) -> list[BinnedColumn]:
    """Bin a party's columns.

    Args:
        source: of the party.
        settings: of the job.
        x: its training rows, float64 (n, columns), NaN where missing.

    Raises:
        InputError: edges, a range or levels that the job had to declare are missing, or a constraint names categories.
    """
    _check_declared(source, settings)
    cuts, ranges = own_entries(source.party, settings.cuts), own_entries(source.party, settings.ranges)
    directions = _directions(source, settings)
    found = []
    for j, name in enumerate(source.names):
        values = x[:, j]
        if source.codes[j]:
            column = category_column(name, source.codes[j], source.levels[j])
            if source.edges == "private":
                column = noisy_category(column, values, source.mu)
            elif source.edges == "common":
                column = column.with_masses(count_bins(column, values))
        elif name in cuts:
            column = declared_column(name, cuts[name])
            if source.edges == "common":
                column = column.with_masses(count_bins(column, values))
        elif source.edges == "private":
            column = noisy_column(name, values, source.bins, *ranges[name], source.mu)
        else:
            column = common_column(name, values, source.bins)
        found.append(replace(column, direction=directions[j]))
    return found


def _check_declared(source: ColumnSource, settings: AdditiveSettings) -> None:
    """Check that all is declared that rows must not tell.

    Raises:
        InputError: something is missing; the message lists all of it.
    """
    cuts, ranges = own_entries(source.party, settings.cuts), own_entries(source.party, settings.ranges)
    if source.edges == "common":
        return
    numbers = [name for name, codes in zip(source.names, source.codes, strict=True) if not codes]
    if source.edges == "declared":
        missing = [name for name in numbers if name not in cuts]
        what = "cuts, the edges of its bins"
    else:
        missing = [name for name in numbers if name not in cuts and name not in ranges]
        what = "ranges (its lowest and its highest value) or cuts, the edges of its bins"
    if missing:
        names = ", ".join(repr(f"{source.party}.{name}") for name in missing)
        raise InputError(f"with edges {source.edges!r} the job declares of each column of numbers {what}; add {names}")


def _directions(source: ColumnSource, settings: AdditiveSettings) -> list[int]:
    found = [0] * len(source.names)
    for key, names, direction in (("rising", settings.rising, 1), ("falling", settings.falling, -1)):
        for name in names:
            owner, column = split_name(name)
            if owner != source.party:
                continue
            if column not in source.names:
                raise InputError(f"additive.{key} names {name!r}: {owner!r} has no column {column!r} to train on")
            place = list(source.names).index(column)
            if source.codes[place]:
                raise InputError(f"additive.{key} names {name!r}, whose values are categories: only numbers can rise")
            found[place] = direction
    return found
