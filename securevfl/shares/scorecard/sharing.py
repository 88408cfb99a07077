"""What the programs of a scorecard on shares are made from: as for a network, with the columns' bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from securevfl_crypto.replicated import Opening

from securevfl.errors import ProtocolError
from securevfl.shares.epochs import SharedTraining
from securevfl.shares.model_release import ModelRelease
from securevfl.shares.network_ranges import NetworkShape
from securevfl.shares.scorecard.card_network import CardNetwork
from securevfl.shares.scorecard.course import BINS_CHECK, CardTraining
from securevfl.shares.scorecard.layout import CardLayout
from securevfl.shares.scorecard.release import CardRelease, Points, PointsShape
from securevfl.shares.share_party import ShareParty
from securevfl.shares.sharing import Sharing, optimiser_of
from securevfl.training.binned import BinnedAlgorithm

__all__ = ["CardSharing"]

_NO_COLUMNS = CardLayout(())


@dataclass(frozen=True, kw_only=True)
class CardSharing(Sharing):
    """What all programs of a scorecard on shares are made from.

    Attributes:
        layout: the columns' bins; without columns until all told them.
    """

    layout: CardLayout = _NO_COLUMNS

    @classmethod
    def of(cls, sharing: Sharing) -> CardSharing:
        """The same for a scorecard."""
        return cls(**{one.name: getattr(sharing, one.name) for one in fields(sharing)})

    @property
    def card(self) -> BinnedAlgorithm:
        """What the algorithm says of its bins.

        Raises:
            TypeError: it has none.
        """
        if not isinstance(self.algorithm, BinnedAlgorithm):
            raise TypeError(f"a {type(self.algorithm).__name__} has no bins")
        return self.algorithm

    def network_shape(self, widths: Sequence[int], classes: int) -> NetworkShape:
        """The regression: one input for each column.

        Raises:
            ProtocolError: the widths are not those of the columns' bins.
        """
        if tuple(widths) != self.layout.cells:
            raise ProtocolError(
                f"widths {tuple(widths)} were told for columns with {self.layout.cells} bins: use one job file"
            )
        return NetworkShape(self.layout.columns, (), (), classes)

    def shape_if_released(self, shape: NetworkShape) -> NetworkShape | None:
        released = super().shape_if_released(shape)
        return None if released is None else PointsShape.of(self.layout)

    def make_party(self, rows: int, classes: int, handed: NetworkShape | None = None) -> ShareParty:
        """See `Sharing.make_party`; and whether bins have enough rows is opened to all, once a job."""
        member = super().make_party(rows, classes, handed)
        counts = self.trains and self.site.keeper.load() is None
        member.openings = {**member.openings, BINS_CHECK: Opening(int(counts), None, 1)}
        return member

    def make_release(self, member: ShareParty, course: SharedTraining, shape: NetworkShape) -> ModelRelease | None:
        if not self.protection.hands_out:
            return None
        card = course.network if isinstance(course.network, CardNetwork) else None
        points = None if card is None else Points()
        return CardRelease(member, PointsShape.of(self.layout), points, course.begin_release, card=card)

    def make_training(self, member: ShareParty, shape: NetworkShape, batch_size: int, times: int) -> CardTraining:
        network = None
        if member.engine is not None:
            network = CardNetwork(
                shape, optimiser_of(self.protection), batch_size, member.engine, self.site.seed, layout=self.layout
            )
        return CardTraining(
            member,
            self.layout.cells,
            shape.outputs,
            network,
            self.answer(shape.classes),
            opens_metrics=self.protection.opens_metrics,
            layout=self.layout,
            least=self.card.least,
            monotone=self.card.monotone,
        )
