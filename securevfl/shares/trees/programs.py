"""The programs of boosted trees on shares. A role bins its columns and says which rows train towards what; the trees
grow at the three computing parties, who learn nothing of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from securevfl.errors import InputError, ProtocolError
from securevfl.privacy import Link, fan_out
from securevfl.shares.coordinator import SharesCoordinator
from securevfl.shares.course import Words
from securevfl.shares.dealt_rows import RowDealer, count_rows, rows_to_learn
from securevfl.shares.engine import ONE
from securevfl.shares.programs import SharesActive, SharesPassive
from securevfl.shares.sharing import SharedPlan, Sharing
from securevfl.shares.trees.course import TreeCourse, make_rule
from securevfl.shares.trees.forest import ForestShape, SharedForest
from securevfl.shares.trees.handed_out import ForestModel, ForestRelease, list_split_openings
from securevfl.shares.trees.layout import CellLayout
from securevfl.shares.trees.start import LEAST_RATE
from securevfl.training.active_program import ActiveProgram
from securevfl.training.active_role import ActiveRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.role import Role
from securevfl.training.setting import Part
from securevfl.training.split import split_chunks
from securevfl.training.state import State, as_dict
from securevfl.training.tree_terms import CELLS, CodedColumns, ColumnBins, OwnScores, TreeTerms, fits_sets
from securevfl.transport import Kind, Message

__all__ = ["TreesActive", "TreesCoordinator", "TreesPassive"]

MOST_TREES = 12
"""Most classes: each round grows a tree of each."""
_MOST_COLUMNS = 1 << 16
_BINS, _OWN = "bins", "own"
_THINNED = 0.05
"""The share of a rare class that its refusal advises, with which trees lose little."""

MOST_FIRST, MOST_FIRST_NUMBER = 16.0, 256.0
"""Largest size of a score at which a row begins: of classes, and of a scaled number."""


class _DealtCells(RowDealer):
    """What a party deals of its rows: the cell of each in each column.

    Args:
        role: the party's.

    Attributes:
        part: of the role, which keeps its bins.

    Raises:
        InputError: a role that does not code its columns.
    """

    def __init__(self, role: Role) -> None:
        part = role.parts.get(_BINS)
        if part is None or not _codes_columns(role):
            raise InputError(
                f"{type(role).__qualname__} has no column_bins and encode_cells, so that its columns cannot be dealt "
                "as cells of trees: derive it from boosting's role on shares, or leave shares='trees' out of its fits"
            )
        self.part: Part = part
        self._role: CodedColumns = role

    def width(self) -> int:
        """Cells of all columns."""
        mine = self.columns
        return sum(mine.bins) + sum(mine.missing)

    @property
    def columns(self) -> ColumnBins:
        """The party's columns."""
        return self._role.column_bins()

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Cells of numbered rows, uint8 (columns, n)."""
        return self._role.encode_cells(rows)


def _has_own_scores(role: object) -> TypeGuard[OwnScores]:
    return callable(getattr(role, "own_scores", None)) and callable(getattr(role, "fit_own_model", None))


def _codes_columns(role: object) -> TypeGuard[CodedColumns]:
    return callable(getattr(role, "column_bins", None)) and callable(getattr(role, "encode_cells", None))


class TreesActive(SharesActive):
    """The active party's program: it deals its cells and its labels, and is one of the computing parties."""

    fed: _DealtCells
    model: ForestModel

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.model = ForestModel()
        role.parts = {_BINS: self.fed.part, "shares": self.model} | self._own_part

    def make_dealer(self) -> _DealtCells:
        parts = self.role.parts  # as the role was built; the base replaces them
        self._own_part = {_OWN: parts[_OWN]} if _OWN in parts else {}
        return _DealtCells(self.role)

    async def setup(self) -> None:
        if self.sharing.trains:
            self._check_rates()
            if self.begins_at_own_scores and self.role.site.keeper.load() is None:
                await self._own_role().fit_own_model()
        await super().setup()

    @property
    def begins_at_own_scores(self) -> bool:
        """Whether rows begin at scores of the active party's own model."""
        return terms_of(self.sharing).own_start

    def _own_role(self) -> OwnScores:
        """The role, with its own model.

        Raises:
            InputError: it has none.
        """
        role = self.role
        if not _has_own_scores(role):
            raise InputError(f"{type(role).__qualname__} has no own_scores, at which its rows could begin")
        return role

    def _words_to_score(self, parts: Sequence[np.ndarray]) -> Words:
        if not self.begins_at_own_scores:
            return super()._words_to_score(parts)
        role, training = self._own_role(), self.learned  # the very array: other rows with its numbers are scored

        most = MOST_FIRST_NUMBER if self.role.task.is_numeric else MOST_FIRST

        def encode(number: int) -> list[np.ndarray]:
            rows = parts[number]
            scores = np.clip(role.own_scores(rows, train=rows is training), -most, most)
            return [self.fed.encode_rows(rows), np.rint(scores * ONE).astype(np.int64).astype(np.uint32)]

        return encode

    def score_alone(self) -> None:
        """See `ActiveProgram.score_alone`: possible where rows begin at the active party's own scores."""
        if self.begins_at_own_scores:
            ActiveProgram.score_alone(self)

    def _check_rates(self) -> None:
        """Refuse two classes of which one is rare.

        Raises:
            InputError: the sigmoid on shares is too coarse for it.
        """
        role = self.role
        if role.task.classes != 2:
            return
        labels = self.labels_of(rows_to_learn(role))
        rate = float((labels == 1).mean()) if len(labels) else 0.5
        rarer = min(rate, 1 - rate)
        if 0 < rarer < LEAST_RATE:
            left = rarer / (1 - rarer) * (1 - _THINNED) / _THINNED
            back = "subtract {:.2f} from" if rate < 0.5 else "add {:.2f} to"
            raise InputError(
                f"the rarer class has {rarer:.2%} of the training rows, and trees on shares need {LEAST_RATE:.0%}, "
                f"because their sigmoid is too coarse beyond: keep {left:.1%} of the rows of the other class in the "
                f"table, drawn by chance, which makes the rarer one {_THINNED:.0%}, and "
                f"{back.format(-math.log(left))} the log-odds of predictions; or name another protection"
            )

    async def come_back(self, model: State) -> None:
        self.fed.part.restore(as_dict(model["parts"])[_BINS])  # `setup` tells them
        await super().come_back(model)

    async def make_network(self, sizes: SharedPlan) -> None:
        """Learn the columns of all parties, tell them, and make the forest."""
        site, columns = self.sharing.site, [self.fed.columns]
        for name in site.passive:
            message = await site.links[name].receive(Kind.CONTROL, CELLS, *_ARRAYS)
            (told,) = _read_columns(message, name, 1, terms_of(self.sharing).bins)
            columns.append(told)
        await fan_out(self.peers_to_notify(), lambda link: _tell_columns(link, columns))
        self.course = await _make_course(self.sharing, self.model, sizes, columns)

    async def train_epoch(self, epoch: int) -> float:
        """A round of trees on all rows that train; the loss is not opened."""
        role, site = self.role, self.sharing.site
        self.course.begin_epoch(epoch, validates=role.plan.validates_after(epoch))
        judged = role.table.split.valid if self.course.opens_metrics else role.table.split.valid[:0]
        await self.announce_sizes([], count_rows(list(split_chunks(judged, role.plan.eval_rows))))
        site.observer.batch_begun(site.name, site.active, epoch, self.learned)
        await self.course.train([], None, told=lambda done: site.observer.step(epoch, done, 1))
        self.trained.rows = role.books.rows_trained(epoch)
        return float("nan")


class TreesPassive(SharesPassive):
    """A passive party's program: it deals its cells, and computes if it is one of the three."""

    fed: _DealtCells
    model: ForestModel

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role, sharing)
        self.model = ForestModel()
        role.parts = {_BINS: self.fed.part, "shares": self.model}

    def make_dealer(self) -> _DealtCells:
        return _DealtCells(self.role)

    async def come_back(self, model: State) -> None:
        self.fed.part.restore(as_dict(model["parts"])[_BINS])  # `setup` tells them
        await super().come_back(model)

    async def make_network(self, sizes: SharedPlan) -> None:
        """Tell this party's columns, learn those of all, and make the forest."""
        site, upstream, mine = self.sharing.site, self.role.upstream, self.fed.columns
        await _tell_columns(upstream, [mine])
        columns = await _receive_columns(upstream, self.sharing)
        told = columns[1 + site.passive.index(site.name)]
        if told != mine:
            raise ProtocolError(f"{upstream.peer!r} tells other bins of the columns of {site.name!r} than it has")
        self.course = await _make_course(self.sharing, self.model, sizes, columns)

    async def train_epoch(self, epoch: int) -> None:
        """Take part in a round of trees."""
        role, site = self.role, self.role.site
        await role.begin_epoch(epoch)
        self.course.begin_epoch(epoch, validates=role.plan.validates_after(epoch))
        site.observer.batch_begun(site.name, site.active, epoch, self.learned)
        await self.course.train([], None, told=lambda done: site.observer.step(epoch, done, 1))


class TreesCoordinator(SharesCoordinator):
    """The coordinator's program: it computes on shares and deals none of its own."""

    model: ForestModel

    def __init__(self, sharing: Sharing) -> None:
        super().__init__(sharing)
        self.model = ForestModel()

    async def make_network(self, told: SharedPlan) -> None:
        """Learn the columns of all parties, and make the forest."""
        site = self.sharing.site
        columns = await _receive_columns(site.links[site.active], self.sharing)
        self.course = await _make_course(self.sharing, self.model, told, columns)


def terms_of(sharing: Sharing) -> TreeTerms:
    """The settings of the job's trees.

    Raises:
        TypeError: an algorithm that says it trains trees on shares, and has none.
    """
    found = getattr(sharing.algorithm, "tree_terms", None)
    if not isinstance(found, TreeTerms):
        raise TypeError(f"{type(sharing.algorithm).__name__} has no tree_terms")
    return found


async def _make_course(
    sharing: Sharing, model: ForestModel, sizes: SharedPlan, columns: Sequence[ColumnBins]
) -> TreeCourse:
    site, terms, classes = sharing.site, terms_of(sharing), sizes.classes
    layout, owning = _join_columns((site.active, *site.passive), columns)
    own = sum(1 for owner in layout.owners if owning[owner] == site.active)
    shape = ForestShape(layout, terms.depth, classes, own)
    if shape.outputs > MOST_TREES:
        raise InputError(
            f"{classes} classes, and trees on shares are grown for at most {MOST_TREES}, one of each in a round: join "
            "classes, or name another protection"
        )
    if any(layout.directions) and shape.outputs > 1:
        raise InputError(
            f"boosting.rising and boosting.falling need a target with two classes or a number, and this one has "
            f"{classes} classes: leave both out"
        )
    if sharing.trains and not any(layout.candidates):
        raise InputError("no column of any party has two bins, so that no tree can split: check the tables' columns")
    if sharing.trains:
        make_rule(terms, sizes.learned, classes)
    member = sharing.make_party(sizes.test, classes)
    hands_out, most = sharing.protection.hands_out, sizes.epochs * shape.outputs
    if hands_out and sharing.trains:
        member.openings = {**member.openings, **list_split_openings(shape, owning, member.computing, most)}
    await member.setup()
    forest = None
    if member.engine is not None:
        # The active party tells them all: what it told differently would not be one model.
        await member.engine.confirm(f"columns {layout.digest} of {' '.join(owning)}")
        forest = SharedForest(shape, member.engine, has_splits=sharing.trains or not hands_out)
    model.network = forest
    course = TreeCourse(
        member,
        sizes.widths,
        shape.outputs,
        forest,
        sharing.answer(classes),
        opens_metrics=sharing.protection.opens_metrics,
        layout=layout,
        owning=owning,
        terms=terms,
        shape=shape,
        handed=model if hands_out and not sharing.trains else None,
    )
    if hands_out and sharing.trains:
        model.release = ForestRelease(member, shape, owning, forest, most, course.begin_release)
    return course


def _join_columns(names: Sequence[str], columns: Sequence[ColumnBins]) -> tuple[CellLayout, tuple[str, ...]]:
    """The cells of all columns, and the names of the parties that have any."""
    having = [(name, one) for name, one in zip(names, columns, strict=True) if one.bins]
    layout = CellLayout(
        bins=tuple(count for _, one in having for count in one.bins),
        missing=tuple(lacks for _, one in having for lacks in one.missing),
        directions=tuple(way for _, one in having for way in one.directions),
        owners=tuple(place for place, (_, one) in enumerate(having) for _ in one.bins),
        parted=tuple(parts for _, one in having for parts in one.parted),
    )
    return layout, tuple(name for name, _ in having)


_ARRAYS = ("counts", "bins", "missing", "directions", "parted")


async def _tell_columns(link: Link, columns: Sequence[ColumnBins]) -> None:
    await link.send(
        Kind.CONTROL,
        CELLS,
        counts=np.array([len(one.bins) for one in columns], np.int64),
        bins=np.array([count for one in columns for count in one.bins], np.int64),
        missing=np.array([lacks for one in columns for lacks in one.missing], np.int64),
        directions=np.array([way for one in columns for way in one.directions], np.int64),
        parted=np.array([parts for one in columns for parts in one.parted], np.int64),
    )


async def _receive_columns(link: Link, sharing: Sharing) -> list[ColumnBins]:
    message = await link.receive(Kind.CONTROL, CELLS, *_ARRAYS)
    return _read_columns(message, link.peer, len(sharing.site.passive) + 1, terms_of(sharing).bins)


def _read_columns(message: Message, peer: str, parties: int, most: int) -> list[ColumnBins]:
    """What a peer tells of the columns of one party, or of all.

    Args:
        message: of the peer.
        peer: its name.
        parties: how many it tells of.
        most: bins of values of a column.

    Raises:
        ProtocolError: something impossible.
    """
    counts, bins, missing, directions, parted = (np.asarray(message.arrays[name]) for name in _ARRAYS)
    right = counts.dtype == np.int64 and counts.shape == (parties,) and counts.min() >= 0
    total = int(counts.sum()) if right and counts.max() <= _MOST_COLUMNS else -1
    for array, low, high in ((bins, 1, most), (missing, 0, 1), (directions, -1, 1), (parted, 0, 1)):
        if array.dtype != np.int64 or array.shape != (total,) or not ((array >= low) & (array <= high)).all():
            raise ProtocolError(
                f"{peer!r} tells impossible columns: {counts.dtype} {counts.shape} and {array.dtype} {array.shape}; "
                f"those of {parties} parties, each of 1 to {most} bins, were expected"
            )
    sets = parted.astype(bool)
    if directions[sets].any() or not all(fits_sets(cells, most) for cells in (bins + missing)[sets].tolist()):
        raise ProtocolError(
            f"{peer!r} tells of a column that is split into sets of its cells and has a direction, or more sets than "
            f"a number of {most} bins has candidates"
        )
    found, start = [], 0
    for count in counts.tolist():
        here = slice(start, start + count)
        found.append(
            ColumnBins(
                tuple(bins[here].tolist()),
                tuple(map(bool, missing[here].tolist())),
                tuple(directions[here].tolist()),
                tuple(sets[here].tolist()),
            )
        )
        start += count
    return found
