"""How a helper without data deals random numbers over links: the active party asks, with sizes alone, and both parties
get their part of the same lot."""

from __future__ import annotations

import numpy as np
from securevfl_crypto.errors import CryptoError
from securevfl_crypto.two.dealing import SEED_BYTES, Dealer, Request

from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, gather
from securevfl.shares.two.exchanges import DEALT, LOT
from securevfl.shares.two.wire import name_arrays, read_arrays
from securevfl.shares.wire import MASKED
from securevfl.transport import ACTIVE, Kind

__all__ = ["HelperLink", "LotDealer"]

_REQUEST, _PAUSE = "request", "pause"
_MOST_SIZES = 64


class HelperLink:
    """One of the two parties' end of the link to the helper.

    Args:
        site: of the party.
    """

    def __init__(self, site: PartyContext) -> None:
        self._link: Link = site.links[site.coordinator]
        self._asks = site.role == ACTIVE
        self.lots = 0

    async def receive_seed(self) -> bytes:
        """The seed that the helper and this party draw from, and nobody else: fresh for each process of the helper.

        Raises:
            ProtocolError: it is none.
        """
        message = await self._link.receive(Kind.SHARE, DEALT, "0")
        (seed,) = read_arrays(self._link.peer, "seed", message, [(np.uint8, (SEED_BYTES,))])
        return seed.tobytes()

    async def ask(self, request: Request) -> list[np.ndarray]:
        """This party's part of the next lot. The active party asks for it; the other one gets the same lot, and sees
        that it is what it would have asked for.

        Raises:
            ProtocolError: the helper dealt another lot.
        """
        packed = request.pack()
        if self._asks:
            await self._link.send(Kind.CONTROL, LOT, meta={"do": _REQUEST}, sizes=packed)
        shapes = request.shapes(0 if self._asks else 1)
        names = [str(number) for number in range(len(shapes))]
        message = await self._link.receive(Kind.SHARE, DEALT, "sizes", *names)
        sizes = np.asarray(message.arrays["sizes"])
        if not np.array_equal(sizes, packed):
            raise ProtocolError(
                f"{self._link.peer!r} dealt a lot of sizes {sizes[:_MOST_SIZES].tolist()} to {self._link.me!r}, which "
                f"needs {packed.tolist()}: the active party asked for another; nothing was computed with it"
            )
        self.lots += 1
        return read_arrays(self._link.peer, "dealt", message, [(np.uint64, shape) for shape in shapes])

    async def pause(self) -> None:
        """Tell the helper that an epoch, or a set of answers, needs no more. Only the active party does."""
        if self._asks:
            await self._link.send(Kind.CONTROL, LOT, meta={"do": _PAUSE}, sizes=np.empty(0, np.int64))


class LotDealer:
    """The helper's end: it reads sizes and sends random numbers, and nothing else.

    Args:
        site: of the helper.
    """

    def __init__(self, site: PartyContext) -> None:
        self._chief: Link = site.links[site.active]
        self._links = (self._chief, site.links[site.passive[0]])
        self._dealer = Dealer()
        self.lots = 0
        self.words = 0

    async def send_seeds(self) -> None:
        """Send each party its seed."""
        await gather(
            *(
                link.send(Kind.SHARE, DEALT, meta={}, guard=MASKED, **{"0": np.frombuffer(seed, np.uint8)})
                for link, seed in zip(self._links, self._dealer.seeds, strict=True)
            )
        )

    async def deal_until_pause(self) -> None:
        """Deal every lot that the active party asks for, until it needs no more for now.

        Raises:
            ProtocolError: it asks for what no honest party needs.
        """
        while True:
            message = await self._chief.receive(Kind.CONTROL, LOT, "sizes")
            do = message.meta.get("do")
            if do == _PAUSE:
                return
            if do != _REQUEST:
                raise ProtocolError(f"{self._chief.peer!r} sent an unknown request {str(do)[:40]!r} to the helper")
            try:
                request = Request.unpack(np.asarray(message.arrays["sizes"]))
            except CryptoError as error:
                raise ProtocolError(f"{self._chief.peer!r} asks for no possible lot: {error}") from error
            await self._deal_lot(request)

    async def _deal_lot(self, request: Request) -> None:
        packed = request.pack()
        parts = self._dealer.deal(request)
        self.lots += 1
        self.words += sum(array.size for part in parts for array in part)
        await gather(
            *(
                link.send(Kind.SHARE, DEALT, meta={}, guard=MASKED, sizes=packed, **name_arrays(part))
                for link, part in zip(self._links, parts, strict=True)
            )
        )
