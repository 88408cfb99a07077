"""The roles of a scorecard at a cut, and their programs: counts on sealed labels, then a logistic regression."""

from __future__ import annotations

import numpy as np

from securevfl.algorithms.scorecard.binned_roles import BinnedActive, BinnedPassive, count_by_column
from securevfl.algorithms.scorecard.counting import request_counts, tell_all
from securevfl.cut import HasShares, OpensWeights, read_share, share_bytes
from securevfl.training.active_program import ActiveProgram
from securevfl.training.passive_program import PassiveProgram
from securevfl.transport import Kind

__all__ = ["SHARE", "CardActive", "CardActiveProgram", "CardPassive", "CardPassiveProgram"]

SHARE = "scorecard/share"
_MANY = 4
"""The report warns from one count per this many training rows on."""


class CardActive(BinnedActive):
    """Seals the labels, opens the counts, and sends each passive party its share of the finished coefficients."""

    def build(self) -> None:
        self.told = 0
        super().build()

    async def setup(self) -> None:
        await super().setup()
        if not self.has_training_rows:
            return
        labels = self.labels(self.table.split.train).cpu().numpy().astype(np.int64)
        codes, config = self.cut_columns(self.rows_to_cut()), self.config
        self.take_counts(
            count_by_column(codes, None, self.cuts), count_by_column(codes, labels, self.cuts), self.half.bottom
        )
        links = self.site.passive_links
        self.told = await tell_all(links, labels, config.key_bits, config.bins, config.least, self.site.clock)

    def closing_notes(self) -> list[str]:
        found, rows = super().closing_notes(), len(self.table.split.train)
        if _MANY * self.told >= rows > 0:
            found += [
                f"a passive party got {self.told} independent counts of the labels of {rows} training rows: each "
                "is an equation, so it computes labels that its columns do not reveal, and all of them from about as "
                "many counts as rows (fewer bins, fewer columns of passive parties, or more rows)"
            ]
        return found

    async def hand_out(self) -> None:
        """After the test: shares of the kept model's coefficients, and the party's own points."""
        shares = self.half.cut.weight_shares() if isinstance(self.half.cut, HasShares) else {}
        for name, share in shares.items():
            await self.site.links[name].send(Kind.MASKED_SHARE, SHARE, share=share_bytes(share))
        state = self.half.own.state_dict()
        weights = state["weight"][0].double().cpu().numpy() if "weight" in state else np.zeros(0)
        self.make_card(weights, float(state["bias"][0]))


class CardPassive(BinnedPassive):
    """Cuts its columns, learns the counts of its bins, and at the end its own coefficients."""

    async def setup(self) -> None:
        await super().setup()
        if not self.has_training_rows:
            return
        codes, config = self.cut_columns(self.rows_to_cut()), self.config
        sizes = [len(cut) + 1 for cut in self.cuts]
        positives = await request_counts(self.upstream, codes, sizes, config.key_bits, self.site.clock)
        self.take_counts(count_by_column(codes, None, self.cuts), positives, self.half.bottom)

    async def take_share(self) -> None:
        """After the test: this party's coefficients, and its points."""
        other, width = None, self.features.row_shape[0]
        if self.protection.is_sealed:
            message = await self.upstream.receive(Kind.MASKED_SHARE, SHARE, "share")
            other = read_share(message.arrays["share"], (width, self.half.cut_width), self.upstream.peer)
        if not isinstance(self.half.cut, OpensWeights):
            raise TypeError(f"a {type(self.half.cut).__name__} does not reveal its weights")
        self.make_card(self.half.cut.opened_weights(other)[:, 0], None)


class CardActiveProgram(ActiveProgram):
    """Ends with points."""

    role: CardActive

    async def after_test(self) -> None:
        await super().after_test()
        await self.role.hand_out()


class CardPassiveProgram(PassiveProgram):
    """Ends with points."""

    role: CardPassive

    async def after_test(self) -> None:
        await super().after_test()
        await self.role.take_share()
