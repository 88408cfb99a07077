"""What one party does in training on shares: it deals its rows to the computing parties, and computes if it is one of
them. A coordinator has no rows, a fourth party does not compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.replicated import Computing, Dealt, Opening, Share, deal_shares
from securevfl_crypto.ring import encode_words

from securevfl.errors import ProtocolError, RangeError
from securevfl.party_context import PartyContext
from securevfl.privacy import fan_out, gather
from securevfl.shares.network_ranges import INPUT_BOUND
from securevfl.shares.torch_product import place_products
from securevfl.shares.wire import computing_at, read_dealt, send_dealt

__all__ = ["Shapes", "ShareParty", "input_words"]


Shapes = Sequence[tuple[int, ...]]


def input_words(party: str, rows: torch.Tensor, bound: float = INPUT_BOUND) -> np.ndarray:
    """A party's rows in fixed point, uint64 (n, d).

    Raises:
        RangeError: a value that is not finite or above the bound; nothing was shared.
    """
    flat = rows.detach().reshape(len(rows), -1).cpu().double().numpy()
    try:
        return encode_words(flat, bound=bound)
    except MalformedError as error:
        raise RangeError(
            f"{party!r} has a value that training on shares cannot hold: {error}; nothing of these rows was shared"
        ) from error


class ShareParty:
    """One party's part.

    Args:
        site: its place, linked with all parties.
        computing: names of the three computing parties.
        openings: what may be opened → how often, to whom, how many values.

    Attributes:
        engine: computes; None at a party that only deals, and before `setup`.
        openings: what this party lets be opened.
        compares: whether of the metrics of an epoch only one bit is opened: whether they are the best so far.
        sources: names of the data parties, the active one first.
    """

    def __init__(self, site: PartyContext, computing: Sequence[str], openings: Mapping[str, Opening]) -> None:
        self.site = site
        self.computing = tuple(computing)
        self.sources = (site.active, *site.passive)
        self.engine: Computing | None = None
        self.openings = openings
        self.compares = False

    @property
    def computes(self) -> bool:
        """Whether it is one of the three."""
        return self.site.name in self.computing

    @property
    def has_rows(self) -> bool:
        """Whether it is no coordinator."""
        return self.site.name in self.sources

    async def setup(self) -> None:
        """Fresh keys with the other computing parties; large products on this party's device."""
        if self.computes:
            place_products(self.site.device)
            self.engine = await computing_at(self.site, self.computing, self.openings)

    async def share_arrays(
        self, words: Sequence[np.ndarray] | None, shapes: Mapping[str, Shapes], *, beside: Share | None = None
    ) -> dict[str, list[Share]]:
        """Deal this party's arrays to the computing parties, and take what all data parties deal.

        Args:
            words: this party's arrays, uint64; None where it deals nothing now.
            shapes: data party → shapes of the arrays that it deals now.
            beside: what is used with them at a computing party: rows of shares that were dealt before. Parties that
                took different rows would not have one sharing, and notice it here.

        Returns:
            Data party → its arrays as shares, at a computing party; nothing elsewhere.

        Raises:
            ProtocolError: a party dealt something else.
        """
        every = [] if words is None else [deal_shares(array) for array in words]
        parts = {name: [dealt[index] for dealt in every] for index, name in enumerate(self.computing)}
        mine = parts.pop(self.site.name, None)
        given = {self.site.links[name]: part for name, part in parts.items() if every}
        found: dict[str, list[Share]] = {}
        sending = fan_out(given, lambda link: send_dealt(link, given[link]))
        await gather(sending, self._collect_shares(shapes, mine, found))
        if self.engine is not None:  # each summand has two holders: nothing is computed on what they hold differently
            used = [share for shares in found.values() for share in shares]
            await self.engine.confirm("input", *used, *([] if beside is None else [beside]))
        return found

    async def _collect_shares(
        self, shapes: Mapping[str, Shapes], mine: Sequence[Dealt] | None, found: dict[str, list[Share]]
    ) -> None:
        engine = self.engine
        if engine is None:
            return
        for name, wanted in shapes.items():
            dealt = mine if name == self.site.name else await read_dealt(self.site.links[name], wanted)
            if dealt is None or [one.shape for one in dealt] != list(wanted):
                raise ProtocolError(f"{name!r} was to share arrays of shapes {list(wanted)} and shared others")
            found[name] = [engine.read_dealt(one) for one in dealt]
