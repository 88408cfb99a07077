"""Training of boosted trees on shares, round by round: the part that is the same at all parties.

Cells of the rows that train are dealt once in each process, those of the validation rows likewise. A party that owns
columns and computes keeps its own cells as they are, and deals the two others one summand each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from securevfl_crypto.errors import CryptoError
from securevfl_crypto.replicated import DealtOwned, NarrowShare, Share, Task, deal_narrow

from securevfl.errors import ProtocolError
from securevfl.privacy import fan_out, gather
from securevfl.shares.course import SharedCourse, Words
from securevfl.shares.engine import Engine
from securevfl.shares.network_ranges import ERROR_BOUND
from securevfl.shares.trees.forest import LARGEST_LEAF, DealtSides, ForestShape, ScoredRows, SharedForest, group_trees
from securevfl.shares.trees.gradients import Loss, compute_gradients, weigh_rows
from securevfl.shares.trees.growing import grow_trees
from securevfl.shares.trees.handed_out import ForestModel, find_own_sides
from securevfl.shares.trees.layout import CellLayout
from securevfl.shares.trees.owned_cells import CellPart, NarrowCells, deal_cells
from securevfl.shares.trees.rule import TreeRule, choose_gradient_bits
from securevfl.shares.trees.start import compute_start
from securevfl.shares.wire import read_narrow, send_narrow
from securevfl.training.tree_terms import TreeTerms, draw_columns, draw_rows, fit_least_hessian

__all__ = ["TreeCourse", "lift_words", "make_rule"]

_NOTHING = Share(np.empty(0, np.uint64), np.empty(0, np.uint64))


def make_rule(terms: TreeTerms, rows: int, classes: int) -> TreeRule:
    """What decides how the trees of a job grow.

    Args:
        terms: the algorithm's settings.
        rows: number of rows that train.
        classes: number of classes; 1 for a number.

    Raises:
        InputError: settings out of the bounds of trees on shares, or too many rows.
    """
    largest = 1.0 if classes > 1 else ERROR_BOUND
    least = terms.min_hessian
    if least is None:
        least = fit_least_hessian(rows, counts_rows=classes == 1)
    return TreeRule(
        depth=terms.depth,
        l2=terms.l2,
        min_hessian=least,
        min_gain=terms.min_gain,
        rate=terms.rate,
        gradient_bits=choose_gradient_bits(rows, largest),
        rows=rows,
        largest=largest,
    )


async def lift_words(engine: Engine, words: NarrowShare) -> Share:
    """Lift signed words from modulo 2^32 to modulo 2^64: exactly up to 2^30 in size. Beyond, 2^32 may be missing or too
    much, and what is lifted still lies below 2^32 in size.

    Args:
        engine: of this computing party.
        words: of any shape.
    """
    ((found,),) = await engine.run_masked([Task(words.mine.astype(np.uint64) << np.uint64(32), 32)])
    return found


@dataclass
class TreeCourse(SharedCourse):
    """One party's training of trees on shares, from round to round.

    Attributes:
        network: the trees, at a computing party.
        layout: the cells of all columns; `owners` are places in `owning`.
        owning: names of the data parties that have columns, the active one first if it has any.
        terms: the algorithm's settings.
        shape: of the trees.
        handed: this party's part of trees whose splits were handed out; None where they stay in shares.
    """

    step_name: ClassVar[str] = "round of trees"
    chooses_by_loss: ClassVar[bool] = True
    range_cure: ClassVar[str] = (
        f"a leaf is beyond ±{LARGEST_LEAF:g}, the range of trees on shares: lower boosting.lr, or raise boosting.l2 or "
        "boosting.min_hessian"
    )
    network: SharedForest | None
    layout: CellLayout = field(kw_only=True)
    owning: tuple[str, ...] = field(kw_only=True)
    terms: TreeTerms = field(kw_only=True)
    shape: ForestShape = field(kw_only=True)
    handed: ForestModel | None = field(default=None, kw_only=True)
    _cells: NarrowCells | None = field(default=None, repr=False)

    async def deal_rows(self, rows: int, words: Words | None) -> None:
        """Deal the cells of the rows that train; in a new job, compute the initial outputs from their targets."""
        if not rows:
            return
        dealt = None if words is None else words(0)
        self._cells = await self._share_cells(rows, None if dealt is None else dealt[0], 32)
        forest = self.network
        if forest is None or forest.start is not None:
            return
        if self.terms.own_start:
            forest.begin_at(await self._share_scores(forest.engine, rows, dealt))
        else:
            forest.begin(await compute_start(forest.engine, self._targets, forest.shape.classes), rows)

    @property
    def _targets(self) -> Share:
        if self.kept is None:
            raise ValueError("trees without targets")
        return self.kept.train

    async def train(
        self,
        sizes: Sequence[int],
        words: Words | None,
        places: Sequence[np.ndarray] = (),
        *,
        told: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Grow the trees of a round on all rows that train, which were dealt before; see `SharedCourse`."""
        forest, cells = self.network, self._cells
        if forest is not None and cells is not None and forest.fitted is not None:
            engine, classes, rows = forest.engine, forest.shape.classes, cells.rows
            before = engine.rounds, engine.sent
            rule = make_rule(self.terms, rows, classes)
            loss: Loss = "squares" if classes == 1 else "logistic" if classes == 2 else "softmax"
            gradients = await compute_gradients(engine, loss, forest.fitted, self._targets, rule)
            seed, number = self.member.site.seed, len(forest.trees) // forest.shape.outputs
            if self.terms.rows < 1:
                used = np.zeros(rows, np.int64)
                used[draw_rows(seed, number, rows, self.terms.rows)] = 1
                gradients = weigh_rows(gradients, used)
            usable = [count > 0 for count in self.layout.candidates]
            allowed = draw_columns(seed, number, usable, self.terms.columns)
            forest.add_round(*await grow_trees(engine, cells, gradients, rule, allowed=allowed))
            self.rounds += engine.rounds - before[0]
            self.sent += engine.sent - before[1]
        self.steps += 1
        told(1)

    def keeps_valid(self, rows: int) -> bool:
        """See `SharedCourse`; cells are bytes, so all are kept."""
        return True

    async def share_rows(
        self,
        sizes: Sequence[int],
        words: Words | None,
        *,
        kept: Share | None = None,
        places: Sequence[np.ndarray] = (),
    ) -> AsyncIterator[tuple[Any, Share]]:
        """See `SharedCourse`: rows that are scored, as `ScoredRows`."""
        for number, size in enumerate(sizes):
            dealt = None if words is None else words(number)
            codes = None if dealt is None else dealt[0]
            cells: NarrowCells | DealtSides | None
            if self.handed is None:
                cells = await self._share_cells(size, codes, 8)
            else:
                cells = await self._share_sides(self.handed, size, codes)
            targets = _NOTHING if kept is None or cells is None else kept[places[number]]
            if cells is None or self.network is None:
                yield None, targets
                continue
            first = await self._share_scores(self.network.engine, size, dealt) if self.terms.own_start else None
            yield ScoredRows(cells, first), targets

    async def _share_sides(self, handed: ForestModel, rows: int, codes: np.ndarray | None) -> DealtSides | None:
        """Deal the sides of this party's own splits, and take what all parties with columns deal.

        Args:
            handed: this party's part of the model.
            rows: how many.
            codes: this party's, uint8 (columns, n); None where it has no rows.

        Raises:
            InputError: a part of other trees.
            ProtocolError: a party dealt something else.
        """
        name, own, parts = self.member.site.name, None, []
        if codes is not None and name in self.owning:
            pairs = zip(self.layout.sizes, self.layout.owners, strict=True)
            sizes = [size for size, owner in pairs if owner == self.owning.index(name)]
            own = find_own_sides(handed.own_splits(self.shape, sum(sizes)), codes, sizes)
        if self.network is None:
            trees = 0 if own is None else own.shape[1] // self.shape.nodes
        else:
            trees = len(self.network.trees)
        start = 0
        for count in group_trees(trees, rows, self.shape):
            width = count * self.shape.nodes
            mine = None if own is None else [np.ascontiguousarray(own[:, start : start + width])]
            dealt = await self.member.share_arrays(mine, {owner: [(rows, width)] for owner in self.owning})
            start += width
            if dealt:
                first, *others = [dealt[owner][0] for owner in self.owning]
                parts.append(sum(others, start=first))
        return None if self.network is None else DealtSides(rows, parts)

    async def _share_scores(self, engine: Engine, rows: int, dealt: Sequence[np.ndarray] | None) -> Share:
        """Take the scores at which rows begin, (n, outputs), which the active party deals modulo 2^32.

        Whatever it deals, lifted it is below 2^32 in size, so that nothing wraps later.

        Args:
            engine: of this computing party.
            rows: how many.
            dealt: what this party deals, its scores last if it is the active one; None at a coordinator.
        """
        member, index = self.member, engine.index
        if member.site.name == member.site.active and dealt is not None:
            parts = dict(zip(member.computing, deal_narrow(dealt[1]), strict=True))
            mine = parts.pop(member.site.name)
            given = {member.site.links[name]: one for name, one in parts.items()}
            await fan_out(given, lambda link: send_narrow(link, [given[link]]))
        else:
            link, shape = member.site.links[member.site.active], (rows, self.outputs)
            (mine,) = await read_narrow(link, [shape], index=index, owner=None)  # type: ignore[assignment]
        share = mine.share()
        await engine.confirm("first scores", share.as_words())
        return await lift_words(engine, share)

    async def _share_cells(self, rows: int, codes: np.ndarray | None, bits: Literal[8, 32]) -> NarrowCells | None:
        """Deal this party's cells, and take what all parties with columns deal.

        Args:
            rows: how many.
            codes: this party's, uint8 (columns, n).
            bits: 32 for rows that train, 8 for rows that are scored.

        Raises:
            ProtocolError: a party dealt something else.
            MalformedError: codes beyond the cells of their column.
        """
        member, name = self.member, self.member.site.name
        parts: dict[str, CellPart] = {}
        given = {}
        if codes is not None and name in self.owning:
            owner = member.computing.index(name) if member.computes else None
            dealt = deal_cells(self.layout, self.owning.index(name), codes, computing=owner, bits=bits)
            given = {member.site.links[member.computing[index]]: one for index, one in dealt.items()}
            parts[name] = codes
        sending = fan_out(given, lambda link: send_narrow(link, [given[link]]))
        await gather(sending, self._collect_cells(rows, bits, parts))
        if member.engine is None:
            return None
        shares = [one.as_words() for one in parts.values() if isinstance(one, NarrowShare)]
        if shares:  # each summand has two holders: nothing is computed on what they hold differently
            await member.engine.confirm("cells", *shares)
        try:
            return NarrowCells(self.layout, [parts[owner] for owner in self.owning], member.engine.index)
        except CryptoError as error:
            raise ProtocolError(f"at {name!r} cells do not fit together: {error}; nothing was opened") from error

    async def _collect_cells(self, rows: int, bits: Literal[8, 32], parts: dict[str, CellPart]) -> None:
        member, engine = self.member, self.member.engine
        if engine is None:
            return
        for place, name in enumerate(self.owning):
            if name == member.site.name:
                continue
            cells = sum(
                size for size, owner in zip(self.layout.sizes, self.layout.owners, strict=True) if owner == place
            )
            owner = member.computing.index(name) if name in member.computing else None
            (dealt,) = await read_narrow(
                member.site.links[name], [(cells, rows)], index=engine.index, owner=owner, bits=bits
            )
            parts[name] = dealt if isinstance(dealt, DealtOwned) else dealt.share()
