"""The programs of a scorecard on shares: before the first epoch all parties tell how many bins their columns have, and
each data party deals the cells of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from securevfl.errors import ProtocolError
from securevfl.shares.coordinator import SharesCoordinator
from securevfl.shares.programs import SharesActive, SharesPassive
from securevfl.shares.scorecard.card_model import CardModel, cuts_of_model
from securevfl.shares.scorecard.course import CardTraining
from securevfl.shares.scorecard.layout import receive_layout, send_layout, tell_bins
from securevfl.shares.scorecard.release import split_points
from securevfl.shares.scorecard.sharing import CardSharing
from securevfl.shares.sharing import Sharing
from securevfl.training.active_role import ActiveRole
from securevfl.training.binned import BinnedRole
from securevfl.training.passive_role import PassiveRole
from securevfl.training.role import Role
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_tensor

__all__ = ["CardCoordinator", "CardSharesActive", "CardSharesPassive", "DealtCells"]

_MANY = 4
"""The report warns from one bin's points per this many training rows on, as of counts in the plain path."""


class DealtCells:
    """What a party deals of its rows: for each column 1 in the bin that the row is in, and 0 in the others.

    Args:
        binned: the party's role.
    """

    def __init__(self, binned: BinnedRole) -> None:
        self._binned = binned
        self._dealt = False

    @property
    def bins(self) -> list[int]:
        """Bins of each column."""
        return [len(cut) + 1 for cut in self._binned.cuts]

    def width(self) -> int:
        """Cells of a row."""
        return sum(self.bins)

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Cells of numbered rows, words 0 or 1, uint64 (n, cells); (n, 0) where they were dealt before."""
        if self._dealt:
            return np.empty((len(rows), 0), dtype=np.uint64)
        sizes = np.array(self.bins, dtype=np.int64)
        words = np.zeros((len(rows), self.width()), dtype=np.uint64)
        if len(sizes):
            places = np.cumsum(sizes) - sizes + self._binned.find_bins(rows)
            np.put_along_axis(words, places, np.uint64(1), axis=1)
        return words

    @contextmanager
    def nothing_dealt(self) -> Iterator[None]:
        """Rows that train were dealt before: nothing is encoded for them again."""
        self._dealt = True
        try:
            yield
        finally:
            self._dealt = False


class CardSharesActive(SharesActive):
    """The active party's program."""

    course: CardTraining
    sharing: CardSharing
    model: CardModel
    fed: DealtCells
    binned: BinnedRole

    def __init__(self, role: ActiveRole, sharing: Sharing) -> None:
        super().__init__(role, CardSharing.of(sharing))
        self.model = CardModel(self.binned)
        role.parts = {"shares": self.model}

    def make_dealer(self) -> DealtCells:
        self.binned = _binned(self.role)
        return DealtCells(self.binned)

    async def setup(self) -> None:
        """Tell all parties the bins of all columns, then as for a network."""
        if self.sharing.trains:
            self.binned.cut_training_rows()
        site = self.sharing.site
        layout = await send_layout(self.fed.bins, site.passive_links, self.peers_to_notify(), self.sharing.card.bins)
        self.sharing = replace(self.sharing, layout=layout)
        await super().setup()
        await self.course.confirm_layout()

    async def train_epoch(self, epoch: int) -> float:
        with self.fed.nothing_dealt():
            return await super().train_epoch(epoch)

    async def after_test(self) -> None:
        await super().after_test()
        _take_points(self, active=True)

    async def come_back(self, model: State) -> None:
        self.binned.cuts = list(cuts_of_model(model["parts"]))
        await super().come_back(model)

    def close_books(self) -> Trained:
        trained = super().close_books()
        trained.notes += [*_counting_notes(self.course, self.sharing), *_equation_notes(self.course, self.sharing)]
        return trained


class CardSharesPassive(SharesPassive):
    """A passive party's program."""

    course: CardTraining
    sharing: CardSharing
    model: CardModel
    fed: DealtCells
    binned: BinnedRole

    def __init__(self, role: PassiveRole, sharing: Sharing) -> None:
        super().__init__(role, CardSharing.of(sharing))
        self.model = CardModel(self.binned)
        role.parts = {"shares": self.model}

    def make_dealer(self) -> DealtCells:
        self.binned = _binned(self.role)
        return DealtCells(self.binned)

    async def setup(self) -> None:
        """Tell the bins of this party's columns, learn those of all, then as for a network."""
        if self.sharing.trains:
            self.binned.cut_training_rows()
        upstream, site, own = self.role.upstream, self.sharing.site, self.fed.bins
        await tell_bins(upstream, own)
        layout = await receive_layout(upstream, 1 + len(site.passive), self.sharing.card.bins)
        told = layout.bins[1 + site.passive.index(site.name)]
        if told != tuple(own):
            raise ProtocolError(f"{upstream.peer!r} tells bins {told} of the columns of {site.name!r}; {own} were told")
        self.sharing = replace(self.sharing, layout=layout)
        await super().setup()
        await self.course.confirm_layout()

    async def train_epoch(self, epoch: int) -> None:
        with self.fed.nothing_dealt():
            await super().train_epoch(epoch)

    async def after_test(self) -> None:
        await super().after_test()
        _take_points(self, active=False)

    async def come_back(self, model: State) -> None:
        self.binned.cuts = list(cuts_of_model(model["parts"]))
        await super().come_back(model)

    def close_books(self) -> Trained:
        trained = super().close_books()
        trained.notes += _counting_notes(self.course, self.sharing)
        return trained


class CardCoordinator(SharesCoordinator):
    """The program of a computing party without data."""

    course: CardTraining
    sharing: CardSharing

    def __init__(self, sharing: Sharing) -> None:
        super().__init__(CardSharing.of(sharing))

    async def _set_up(self) -> None:
        site = self.sharing.site
        layout = await receive_layout(site.links[site.active], 1 + len(site.passive), self.sharing.card.bins)
        self.sharing = replace(self.sharing, layout=layout)
        await super()._set_up()
        await self.course.confirm_layout()


def _binned(role: Role) -> BinnedRole:
    """The role, with its bins.

    Raises:
        TypeError: it has none.
    """
    if not isinstance(role, BinnedRole):
        raise TypeError(f"a {type(role).__name__} has no bins to deal on shares")
    return role


def _take_points(program: CardSharesActive | CardSharesPassive, *, active: bool) -> None:
    """Hand this party's points to its role, where the job hands them out."""
    own = program.model.own
    if own is not None:
        values, bias = split_points({name: as_tensor(one).numpy() for name, one in own.items()}, active=active)
        program.binned.take_points(values, bias)


def _equation_notes(course: CardTraining, sharing: CardSharing) -> list[str]:
    """A warning where handed out points of a passive party are about as many equations as rows train."""
    layout, rows = course.layout, course.learned
    told = max(
        (cells - columns + 1 for cells, columns in zip(layout.cells[1:], layout.columns[1:], strict=True)), default=0
    )
    if not sharing.protection.hands_out or _MANY * told < rows or not rows:
        return []
    return [
        f"a passive party got points of {told} independent bins of {rows} training rows: each is about an equation in "
        "their labels, so it computes labels that its columns do not reveal (model = 'shares', fewer bins, fewer "
        "columns of passive parties, or more rows)"
    ]


def _counting_notes(course: CardTraining, sharing: CardSharing) -> list[str]:
    """What the report tells of counting on shares."""
    rounds, sent = course.counting
    if not rounds:
        return []
    return [
        f"counts of {course.learned} training rows in {sum(course.layout.cells)} bins and their weights of evidence "
        f"stayed on shares: {rounds} rounds, of which {sharing.site.name!r} sent {sent / 1e6:.2f} MB"
    ]
