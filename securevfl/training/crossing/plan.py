"""Products of columns of different parties, summed over the common rows: the sums that statistics are computed from.

Each party encodes its rows as whole numbers. A passive party has the columns ``[1 | z | squares | present | bins]``: a
column of ones, standardised numbers, their squares, whether a value is present, and one column for each bin. The
active party has ``[z | classes]``. Wanted are the sums over rows of each active column times each passive column, and
of z of one passive party times z of another.

Some of these sums are counts of few people. So they form *families*, such as all counts of one column's bins. A family
has levels, the finest first; of each family one level is released, the first in which every guarded count is large
enough, and nothing of the others. If no level passes, nothing of the family is released.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from securevfl.errors import ProtocolError

__all__ = [
    "COLUMNS",
    "LAYOUT",
    "LIMB_BITS",
    "CrossPlan",
    "PartyLayout",
    "Release",
    "join_bins",
    "read_layouts",
]

COLUMNS, LAYOUT = "statistics/columns", "statistics/layout"
"""Steps that send layouts of columns, without names: each passive party sends its own, the active party everyone's."""

LIMB_BITS = 13
"""Two parties multiply rows of at most 2^13 in size: larger numbers are split into a high and a low part."""

_MOST_COLUMNS, _MOST_BINS, _MOST_LEVELS = 1 << 12, 256, 32


class PartyLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of one party, without names.

    Attributes:
        scores: columns of standardised numbers.
        means: for each of these whose squares are there, too, whether it has a column of present values; empty at the
            active party.
        bins: for each binned column its levels; a level gives, for each of the finest bins, the merged bin that it is
            in, from 0. The first level of a column numbers its finest bins.
        twofold: for each column of squares, which column of `bins` has its two values; −1 where it has not two values.
            Sums over a class of such a column are counts in other words.
        missing: for each binned column, whether its last finest bin is that of missing values; empty for none. How many
            these are is told with means, so that a bin of them and of values is guarded by the values alone.
    """

    scores: int
    means: tuple[bool, ...] = ()
    bins: tuple[tuple[tuple[int, ...], ...], ...] = ()
    twofold: tuple[int, ...] = ()
    missing: tuple[bool, ...] = ()

    def find_problem(self) -> str:
        """The reason why the layout is impossible; empty if it is possible."""
        if not 0 <= self.scores <= _MOST_COLUMNS or len(self.means) not in {0, self.scores}:
            return f"{self.scores} columns of numbers with {len(self.means)} of squares"
        if len(self.bins) > _MOST_COLUMNS or len(self.missing) not in {0, len(self.bins)}:
            return f"{len(self.bins)} columns in bins, and {len(self.missing)} with or without a bin of missing values"
        for levels in self.bins:
            if not 1 <= len(levels) <= _MOST_LEVELS or not 1 <= len(levels[0]) <= _MOST_BINS:
                return f"a column with {len(levels)} levels of bins"
            if levels[0] != tuple(range(len(levels[0]))):
                return "a column whose finest bins are not numbered in order"
            for level in levels:
                if len(level) != len(levels[0]) or sorted(set(level)) != list(range(len(set(level)))):
                    return "a level of bins that is not one of merged bins"
        return self._find_twofold_problem()

    def _find_twofold_problem(self) -> str:
        if len(self.twofold) not in {0, len(self.means)}:
            return f"{len(self.means)} columns of squares with {len(self.twofold)} of two values"
        for place in self.twofold:
            if not -1 <= place < len(self.bins) or (place >= 0 and len(self.bins[place][0]) not in {2, 3}):
                return "a column of two values that has other bins"
        return ""

    @property
    def width(self) -> int:
        """Columns of a passive party's matrix."""
        return 1 + self.scores + len(self.means) + sum(self.means) + sum(len(levels[0]) for levels in self.bins)

    def wide_columns(self) -> np.ndarray:
        """Which columns of a passive party's matrix may be larger than 2^13: numbers and squares, bool (width,)."""
        found = np.zeros(self.width, dtype=bool)
        found[1 : 1 + self.scores + len(self.means)] = True
        return found


def read_layouts(text: object, peer: str, parties: int) -> tuple[PartyLayout, ...]:
    """Read the layouts that a peer sent.

    Args:
        text: JSON.
        peer: who sent it.
        parties: how many are expected.

    Raises:
        ProtocolError: the layouts are malformed or impossible.
    """
    if not isinstance(text, str) or len(text) > 1 << 24:
        raise ProtocolError(f"{peer!r} sent no layout of columns")
    try:
        found = msgspec.json.decode(text.encode(), type=tuple[PartyLayout, ...])
    except msgspec.DecodeError as error:
        raise ProtocolError(f"{peer!r} sent an impossible layout of columns: {error}") from error
    if len(found) != parties:
        raise ProtocolError(f"{peer!r} sent layouts of {len(found)} parties; {parties} were expected")
    for one in found:
        if problem := one.find_problem():
            raise ProtocolError(f"{peer!r} sent an impossible layout of columns: {problem}")
    return found


def join_bins(words: Sequence[str], *, number: bool) -> str:
    """The words of a bin that is several bins: for numbers from the lowest to the highest value.

    Args:
        words: of its bins, ``"missing"`` for that of missing values.
        number: whether they are of numbers, each ``"low to high"`` or one value.
    """
    there = [one for one in words if one != "missing"]
    if number and len(there) > 1:
        there = [f"{there[0].split(' to ')[0]} to {there[-1].split(' to ')[-1]}"]
    shown = there[:4] + ([f"{len(there) - 4} more"] if len(there) > 4 else [])
    return ", ".join(shown + ["missing"] * (len(there) < len(words) and "missing" in words))


@dataclass(frozen=True, kw_only=True)
class CrossPlan:
    """The plan of the products, as all parties know it.

    Attributes:
        rows: n, the common ones.
        classes: K, columns of classes of the active party; 0 where the target is a number.
        layouts: of the data parties, the active one first.
        least: the fewest rows of each class in a guarded count; 0 where nothing is withheld, since noise is added.
        noise: σ of the noise on released sums, which the computing parties that do not get them reach together, in
            units: for products of z, and for counts; zeros for none.
        shift: bits that are dropped of a product of two z before it is opened.
    """

    rows: int
    classes: int
    layouts: tuple[PartyLayout, ...]
    least: int
    noise: tuple[float, float] = (0.0, 0.0)
    shift: int = 0

    @property
    def active_width(self) -> int:
        """Columns of the active party's matrix."""
        return self.layouts[0].scores + self.classes

    def count_numbers(self, party: int, *, own: bool) -> int:
        """How many numbers of one row the release counts as, in a passive party's result book: all sums that its rows
        are in, divided by the rows, rounded up. So n rows are never worth fewer numbers than were opened.

        Args:
            party: from 1.
            own: whether it sends the correlations among its own columns.
        """
        layout = self.layouts[party]
        others = sum(one.scores for place, one in enumerate(self.layouts) if place != party)
        of_classes = 3 * len(layout.means) + sum(len(levels[0]) for levels in layout.bins)
        sums = layout.scores * others + self.classes * of_classes
        sums += layout.scores * (layout.scores - 1) // 2 if own else 0
        return max(-(-sums // max(self.rows, 1)), 1)

    def count_work(self) -> tuple[int, int]:
        """How many products all parties compute, and about how many terms their release adds up: known before any of
        them is allocated."""
        passive = self.layouts[1:]
        between = sum(passive[j - 1].scores * passive[k - 1].scores for j, k in self.pairs())
        scores = between + self.layouts[0].scores * sum(one.scores for one in passive)
        tried = None if self.least else 1
        levels = sum(len(level) for one in passive for column in one.bins for level in column[:tried])
        means = sum(len(one.means) for one in passive)
        products = between + self.active_width * sum(one.width for one in passive)
        return products, scores + 2 * self.classes * (levels + 5 * means)

    def pairs(self) -> list[tuple[int, int]]:
        """Passive parties whose z are multiplied, numbered from 1."""
        count = len(self.layouts)
        return [(j, k) for j in range(1, count) for k in range(j + 1, count)]

    @cached_property
    def release(self) -> Release:
        """The rule of which sums are released."""
        return Release.of(self)

    def clear_products(self, active: np.ndarray, passive: Sequence[np.ndarray]) -> np.ndarray:
        """All products from the parties' matrices, in the order of `Release`: int64 (raw,).

        Args:
            active: int64 (n, active width).
            passive: of each passive party, int64 (n, width).
        """
        parts = [(active.T @ one).reshape(-1) for one in passive]
        parts += [(self.scores_of(j, passive).T @ self.scores_of(k, passive)).reshape(-1) for j, k in self.pairs()]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def scores_of(self, party: int, passive: Sequence[np.ndarray]) -> np.ndarray:
        """Columns z of a passive party's matrix."""
        return passive[party - 1][:, 1 : 1 + self.layouts[party].scores]

    def release_in_clear(self, products: np.ndarray) -> np.ndarray:
        """Compute in the clear what computing parties release on shares, int64 (released,)."""
        release = self.release
        cells = release.sum_cells(products.view(np.uint64)).view(np.int64)
        chosen = release.choose_levels(cells[release.guards] >= self.least)
        found = np.where(release.cell_level < 0, 1, chosen[release.cell_level]) * cells[release.released]
        return np.asarray(found)


@dataclass(frozen=True)
class Release:
    """Which sums of products are released, guarded by which counts.

    Attributes:
        sources: for each cell, which products it is the sum of: numbers of products, one after another, (sources,).
        signs: +1 or −1 for each of these.
        starts: where the products of each cell begin in `sources`, (cells,).
        guards: numbers of the cells that are guarded counts, (guards,).
        guard_level: the level that each of them guards.
        level_family: the family of each level, whose levels stand together, the finest first.
        released: numbers of the cells that may be released, (released,).
        cell_level: the level that each of these is in; −1 for one that is always released.
        cell_kind: 0 where a released cell is a product of two z, 1 where it is a sum over one class.
        blocks: names of runs of released cells, with where they begin and their shape.
    """

    sources: np.ndarray = field(repr=False)
    signs: np.ndarray = field(repr=False)
    starts: np.ndarray = field(repr=False)
    guards: np.ndarray = field(repr=False)
    guard_level: np.ndarray = field(repr=False)
    level_family: np.ndarray = field(repr=False)
    released: np.ndarray = field(repr=False)
    cell_level: np.ndarray = field(repr=False)
    cell_kind: np.ndarray = field(repr=False)
    blocks: tuple[tuple[tuple[object, ...], int, tuple[int, ...]], ...]

    @classmethod
    def of(cls, plan: CrossPlan) -> Release:
        """The release of a plan."""
        return _Builder(plan).build()

    def sum_cells(self, products: np.ndarray) -> np.ndarray:
        """Cells from products, or from a party's summands of them, uint64 (cells,)."""
        taken = products[self.sources] * self.signs.view(np.uint64)
        return np.add.reduceat(taken, self.starts) if len(self.starts) else taken[:0]

    def count_short(self, short: np.ndarray) -> np.ndarray:
        """How many guarded counts of each level are too small, or summands of that, uint64 (levels,)."""
        found = np.zeros(len(self.level_family), dtype=np.uint64)
        np.add.at(found, self.guard_level, short)
        return found

    def earlier_passes(self, passes: np.ndarray) -> np.ndarray:
        """For each level how many finer levels of its family pass, or summands of that, uint64 (levels,)."""
        if not len(passes):
            return passes.copy()
        before = np.cumsum(passes, dtype=np.uint64) - passes
        first = np.searchsorted(self.level_family, self.level_family, side="left")
        return np.asarray(before - before[first])

    def choose_levels(self, enough: np.ndarray) -> np.ndarray:
        """The levels that are released, 1 or 0, (levels,).

        Args:
            enough: whether each guarded count is large enough, bool (guards,).
        """
        passes = (self.count_short((~enough).astype(np.uint64)) == 0).astype(np.uint64)
        return np.asarray(((passes == 1) & (self.earlier_passes(passes) == 0)).astype(np.int64))

    def read_blocks(self, opened: np.ndarray) -> dict[tuple[object, ...], np.ndarray]:
        """Released cells by the name of their block."""
        return {name: opened[start : start + int(np.prod(shape))].reshape(shape) for name, start, shape in self.blocks}


class _Builder:
    def __init__(self, plan: CrossPlan) -> None:
        self.plan = plan
        self.sources: list[int] = []
        self.signs: list[int] = []
        self.starts: list[int] = []
        self.guards: list[int] = []
        self.guard_level: list[int] = []
        self.level_family: list[int] = []
        self.released: list[int] = []
        self.cell_level: list[int] = []
        self.cell_kind: list[int] = []
        self.blocks: list[tuple[tuple[object, ...], int, tuple[int, ...]]] = []

    def build(self) -> Release:
        plan, start = self.plan, 0
        for party in range(1, len(plan.layouts)):
            self._add_party(party, start)
            start += plan.active_width * plan.layouts[party].width
        for j, k in plan.pairs():
            shape = plan.layouts[j].scores, plan.layouts[k].scores
            count = shape[0] * shape[1]
            self._add_block(("scores", j, k), shape, [[start + i] for i in range(count)], level=-1, kind=0)
            start += count
        return Release(
            sources=np.array(self.sources, dtype=np.int64),
            signs=np.array(self.signs, dtype=np.int64),
            starts=np.array(self.starts, dtype=np.int64),
            guards=np.array(self.guards, dtype=np.int64),
            guard_level=np.array(self.guard_level, dtype=np.int64),
            level_family=np.array(self.level_family, dtype=np.int64),
            released=np.array(self.released, dtype=np.int64),
            cell_level=np.array(self.cell_level, dtype=np.int64),
            cell_kind=np.array(self.cell_kind, dtype=np.int64),
            blocks=tuple(self.blocks),
        )

    def _add_party(self, party: int, start: int) -> None:
        plan, own = self.plan, self.plan.layouts[party]
        width, scores = own.width, plan.layouts[0].scores

        def at(row: int, column: int) -> int:
            return start + row * width + column

        block = [[at(a, 1 + b)] for a in range(scores) for b in range(own.scores)]
        classes = [scores + k for k in range(plan.classes)]
        where = len(self.cell_level)
        self._add_block(("scores", 0, party), (scores, own.scores), block, level=-1, kind=0)
        of_label = where + (scores - 1) * own.scores  # the active party's last column, where there are two classes
        bins_at = 1 + own.scores + len(own.means) + sum(own.means)
        starts = np.cumsum([bins_at, *(len(levels[0]) for levels in own.bins)]).tolist()
        present = 1 + own.scores + len(own.means)
        for column, missing in enumerate(own.means if classes else ()):
            level = self._begin_level(new=True)
            count_at = present if missing else 0
            self._add_guards([[at(row, 0)] for row in classes], level)
            if missing:
                there = [[at(row, present)] for row in classes]
                self._add_guards(there, level)
                self._add_guards([[at(row, 0), ~at(row, present)] for row in classes], level)
                present += 1
            if own.twofold and own.twofold[column] >= 0:
                values = starts[own.twofold[column]]
                self._add_guards([[at(row, values + one)] for row in classes for one in (0, 1)], level)
                if len(classes) == 2 and scores:
                    self.cell_level[of_label + column] = level
            parts = [[at(row, where)] for where in (1 + column, 1 + own.scores + column, count_at) for row in classes]
            self._add_block(("means", party, column), (3, plan.classes), parts, level=level, kind=1)
        for column, levels in enumerate(own.bins):
            first = starts[column]
            for number, level_map in enumerate(levels[: None if plan.least else 1] if classes else ()):
                level = self._begin_level(new=number == 0)
                count, gone = max(level_map) + 1, len(level_map) - 1 if own.missing and own.missing[column] else -1
                merges = [[fine for fine, merged in enumerate(level_map) if merged == bin_] for bin_ in range(count)]
                values = [[fine for fine in merge if fine != gone] or merge for merge in merges]
                cells, guarded = (
                    [[at(row, first + fine) for fine in merge] for row in classes for merge in each]
                    for each in (merges, values)
                )
                self._add_guards(guarded, level)
                self._add_block(("bins", party, column, number), (plan.classes, count), cells, level=level, kind=1)

    def _begin_level(self, *, new: bool) -> int:
        family = (self.level_family[-1] + 1 if new else self.level_family[-1]) if self.level_family else 0
        self.level_family.append(family)
        return len(self.level_family) - 1

    def _add_cells(self, parts: Sequence[Sequence[int]]) -> Iterator[int]:
        for part in parts:
            self.starts.append(len(self.sources))
            for source in part:  # an inverted number stands for a product that is subtracted
                self.sources.append(source if source >= 0 else ~source)
                self.signs.append(1 if source >= 0 else -1)
            yield len(self.starts) - 1

    def _add_guards(self, parts: Sequence[Sequence[int]], level: int) -> None:
        for cell in self._add_cells(parts):
            self.guards.append(cell)
            self.guard_level.append(level)

    def _add_block(
        self,
        name: tuple[object, ...],
        shape: tuple[int, ...],
        parts: Sequence[Sequence[int]],
        *,
        level: int,
        kind: int,
    ) -> None:
        self.blocks.append((name, len(self.released), shape))
        for cell in self._add_cells(parts):
            self.released.append(cell)
            self.cell_level.append(level)
            self.cell_kind.append(kind)
