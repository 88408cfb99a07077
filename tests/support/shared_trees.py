"""Small tables in cells, and a slow reference in floating point that follows the splits of trees on shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from securevfl_crypto.replicated import Clear, Share
from securevfl_crypto.ring import decode_words, encode_words

from securevfl.shares.engine import Engine
from securevfl.shares.trees import (
    CellLayout,
    Cells,
    SharedCells,
    SharedTree,
    TreeRule,
    compute_gradients,
    grow_trees,
    weigh_rows,
)
from securevfl.shares.trees.gradients import Loss

__all__ = ["BinnedTable", "Followed", "LowCells", "boost", "follow", "opened", "run_clear"]

T = TypeVar("T")


@dataclass(frozen=True)
class BinnedTable:
    """Rows in cells.

    Attributes:
        layout: columns and their bins.
        bins: of each row, int64 (columns, n); the last of a column with missing values is theirs.
    """

    layout: CellLayout
    bins: np.ndarray = field(repr=False)

    @classmethod
    def draw(cls, layout: CellLayout, rows: int, seed: int = 0) -> BinnedTable:
        """Draw bins at random."""
        generator = np.random.default_rng(seed)
        return cls(layout, np.stack([generator.integers(0, size, rows) for size in layout.sizes]))

    @property
    def cells(self) -> np.ndarray:
        """The matrix Z, uint64 (cells, n)."""
        found = np.zeros((self.layout.cells, self.bins.shape[1]), np.uint64)
        for start, bins in zip(self.layout.starts, self.bins, strict=True):
            found[start + bins, np.arange(len(bins))] = 1
        return found


class LowCells(SharedCells):
    """Cells of which only the low bits of sums count, as of a ring modulo 2^32 and one modulo 2^8."""

    histogram_shift = 32
    side_shift = 56

    def sum_by_cell(self, values: Share) -> np.ndarray:
        return super().sum_by_cell(values) & np.uint64(0xFFFFFFFF)

    def choose_sides(self, sides: Share) -> np.ndarray:
        return super().choose_sides(sides) & np.uint64(0xFF)


async def boost(
    engine: Engine,
    table: BinnedTable,
    loss: Loss,
    scores: np.ndarray,
    targets: np.ndarray,
    rule: TreeRule,
    *,
    steps: int = 1,
    allowed: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    low: bool = False,
) -> tuple[list[list[SharedTree]], list[Share], Share]:
    """Boost for some steps on public rows; returns each step's trees and gradients, and the scores."""
    made = LowCells if low else SharedCells
    cells: Cells = made(table.layout, engine.constant(table.cells), engine.index)
    f, y = engine.constant(encode_words(scores)), engine.constant(encode_words(targets))
    grown, gradients = [], []
    for _ in range(steps):
        found = await compute_gradients(engine, loss, f, y, rule)
        if weights is not None:
            found = weigh_rows(found, weights)
        trees, added = await grow_trees(engine, cells, found, rule, allowed=allowed)
        f = f + added
        grown.append(trees)
        gradients.append(found)
    return grown, gradients, f


def run_clear(program: Callable[[Clear], Awaitable[T]], seed: bytes = bytes(32)) -> T:
    """Run a program in the clear."""
    awaited = program(Clear(seed)).__await__()
    try:
        next(awaited)
    except StopIteration as ended:
        found: T = ended.value
        return found
    raise AssertionError("a computation in the clear waits for nobody")


def opened(share: Share, bits: int = 0) -> np.ndarray:
    """The numbers of a share of `Clear`, float64 with `bits` fractional bits."""
    return decode_words(share.mine, bits) if bits else share.mine.view(np.int64).astype(np.float64)


@dataclass
class Followed:
    """What the reference says of the splits that it followed.

    Attributes:
        added: what the reference's leaves add to the scores, (n,).
        best: the largest gain of each node that split.
        lost: how much smaller the gain of its split is.
        stops: of each node, whether it stopped, and whether the reference finds no gain; nodes near the border are
            left out.
        nodes: rows of each node of the last level, bool (2^depth, n).
    """

    added: np.ndarray
    best: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    stops: list[tuple[bool, bool]] = field(default_factory=list)
    nodes: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def share_lost(self) -> float:
        """The share of all gain that was lost."""
        return sum(self.lost) / max(sum(self.best), 1e-9)


def follow(
    table: BinnedTable,
    tree: SharedTree,
    gradients: np.ndarray,
    rule: TreeRule,
    allowed: np.ndarray | None = None,
    border: float = 1e-3,
) -> Followed:
    """Follow a tree's splits, with sums in floating point.

    Args:
        table: rows.
        tree: of `Clear`.
        gradients: g and h of each row, (n, 2).
        rule: of the tree.
        allowed: as for `grow_trees`.
        border: a gain this near to γ, as a share of the node's own G² / (H + λ) and γ, may stop or not.
    """
    g, h = gradients.T
    rows = np.ones((1, len(g)), bool)
    found = Followed(np.zeros(len(g)))
    within = [(-np.inf, np.inf)]
    ways = np.repeat(table.layout.directions, table.layout.candidates)

    def leaf(here: np.ndarray) -> float:
        return float(-rule.rate * g[here].sum() / (h[here].sum() + rule.l2))

    for chosen, sides in zip(tree.chosen, tree.sides, strict=True):
        words, marks = opened(chosen), opened(sides)
        assert set(np.unique(words)) <= {0.0, 1.0}
        assert (words.sum(1) <= 1).all()
        children, bounds = [], []
        for node, here in enumerate(rows):
            gains, lefts = _gains(table, here, g, h, rule, allowed)
            best = float(gains.max(initial=-np.inf))
            scale = g[here].sum() ** 2 / (h[here].sum() + rule.l2) + rule.min_gain
            stopped = not words[node].any()
            if abs(best - rule.min_gain) > border * scale + 1e-9:
                found.stops.append((stopped, not best > rule.min_gain))
            goes = np.zeros(len(g), bool)
            if not stopped:
                place = int(words[node].argmax())
                goes = lefts[place]
                assert np.isfinite(gains[place]), "a split that a constraint forbids"
                found.best.append(best)
                found.lost.append(best - float(gains[place]))
            by_cell = sum(marks[node][start + b] for start, b in zip(table.layout.starts, table.bins, strict=True))
            np.testing.assert_array_equal(by_cell, goes, "cells that go left are not those of the chosen split")
            children += [here & goes, here & ~goes]
            low, high = within[node]
            middle = float(np.clip((leaf(here & goes) + leaf(here & ~goes)) / 2, low, high))
            way = 0 if stopped else ways[place]
            bounds += [(middle if way < 0 else low, middle if way > 0 else high)]
            bounds += [(middle if way > 0 else low, middle if way < 0 else high)]
        rows, within = np.stack(children), bounds
    for here, (low, high) in zip(rows, within, strict=True):
        found.added[here] = np.clip(leaf(here), low, high)
    found.nodes = rows
    return found


def _gains(
    table: BinnedTable, here: np.ndarray, g: np.ndarray, h: np.ndarray, rule: TreeRule, allowed: np.ndarray | None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The gain of each candidate in a node, −∞ if a constraint forbids it, and which rows it sends left."""
    gains, lefts = [], []
    layout = table.layout

    def score(rows: np.ndarray) -> float:
        return float(g[rows].sum() ** 2 / (h[rows].sum() + rule.l2))

    for column, bins in enumerate(table.bins):
        count, lacks = layout.bins[column], layout.missing[column]
        is_missing = bins == count
        if layout.parted[column]:
            sides = [sets >> bins & 1 == 1 for sets in range(1, 1 << (count + lacks - 1))]
        else:
            sides = [(bins <= b) & ~is_missing for b in range(count if lacks else count - 1)]
            sides += [(bins <= b) | is_missing for b in range(count - 1) if lacks]
        for left in sides:
            low, high = here & left, here & ~left
            gain = (score(low) + score(high) - score(here)) / 2
            value = [-g[side].sum() / (h[side].sum() + rule.l2) for side in (low, high)]
            forbidden = min(h[low].sum(), h[high].sum()) < rule.min_hessian
            forbidden |= layout.directions[column] * (value[1] - value[0]) < -1e-3
            forbidden |= allowed is not None and not allowed[column]
            gains.append(-np.inf if forbidden else gain)
            lefts.append(left)
    return np.array(gains), lefts
