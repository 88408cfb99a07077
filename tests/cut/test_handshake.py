"""What parties tell each other before a cut: widths that no cut has are refused."""

from __future__ import annotations

import asyncio

import pytest
import securevfl_crypto as crypto
from cuts import sealed, sites

from securevfl.cut.base import CutSpec
from securevfl.cut.handshake import announce, receive_widths
from securevfl.errors import ProtocolError
from securevfl.transport import Kind

SPEC = CutSpec(width=3, lr=0.5, batch_size=8)


def test_a_width_that_is_no_number_is_refused() -> None:
    world = sites(passive=("p1",))
    meta: dict[str, str | int | bool] = {
        "job": "j",
        "protection": "bfv",
        "h": SPEC.width,
        "width": True,
        "trainable": False,
    }

    async def together() -> None:
        await world["p1"].links["a"].send(Kind.CONTROL, "cut/setup", meta=meta)
        with pytest.raises(ProtocolError, match="True wide"):
            await sealed(crypto.BFV()).active(world["a"], SPEC).setup()

    asyncio.run(together())


@pytest.mark.parametrize(("width", "fits"), [(1 << 19, True), ((1 << 19) + 1, False)])
def test_a_block_of_too_many_weights_is_refused_before_it_is_drawn(width: int, fits: bool) -> None:
    world, spec = sites(passive=("p1",)), CutSpec(width=32, lr=0.5, batch_size=8)

    async def received() -> object:
        await announce(world["p1"], spec, "bfv", width, trainable=False)
        return await receive_widths(world["a"], spec, "bfv")

    if fits:
        assert asyncio.run(received()) == {"p1": (width, False)}
    else:
        with pytest.raises(ProtocolError, match=f"{width * 32} weights for a cut 32 wide; 16777216 are possible"):
            asyncio.run(received())
