"""A passive party that reads slowly delays none of the others."""

from __future__ import annotations

import asyncio

import pytest
import torch
from support.clear_scheme import Clear

from securevfl.cut import ActiveCut, CutSpec
from securevfl.cut.exact import FixedActive
from securevfl.cut.handshake import announce_width
from securevfl.cut.plain import FloatActive
from securevfl.cut.sealed import SealedActive
from securevfl.party_context import PartyContext
from securevfl.testing import link_in_memory
from securevfl.transport import Array, Kind

SPEC = CutSpec(width=3, lr=0.5, batch_size=8)


async def _both(active: ActiveCut, world: dict[str, PartyContext], protection: str) -> None:
    """Set up with two parties of which neither has read anything yet."""
    for name in ("p1", "p2"):
        await announce_width(world[name], SPEC, protection, 2, trainable=False)
    await active.setup()


@pytest.mark.parametrize("kind", [FloatActive, FixedActive])
def test_gradients_of_a_plain_cut(kind: type[FloatActive]) -> None:
    world = link_in_memory(window=1)

    async def run() -> Array:
        active = kind(world["a"], SPEC)
        await _both(active, world, kind.protection)
        link = world["p2"].links["a"]
        await world["a"].links["p1"].send(Kind.CONTROL, "before")  # p1's link is full
        for name in ("p1", "p2"):
            z = torch.zeros(4, 3, dtype=torch.int64 if kind is FixedActive else torch.float32)
            await world[name].links["a"].send(Kind.ACTIVATION, "cut/forward", z=z)
        await active.forward(4, train=True)
        sending = asyncio.ensure_future(active.backward(torch.ones(4, 3)))
        message = await asyncio.wait_for(link.receive(Kind.GRADIENT, "cut/backward", "gradient"), 5)
        assert not sending.done()
        sending.cancel()
        return message.arrays["gradient"]

    assert asyncio.run(run()).shape == (4, 3)


def test_weights_of_a_sealed_cut() -> None:
    world = link_in_memory(window=1)

    async def run() -> Array:
        active = SealedActive(world["a"], SPEC, Clear())
        await _both(active, world, Clear.name)
        link = world["p2"].links["a"]
        await link.receive(Kind.PUBLIC_KEY, "cut/public key", "key")
        sending = asyncio.ensure_future(active.forward(4, train=False))
        message = await asyncio.wait_for(link.receive(Kind.CIPHERTEXT, "cut/weights", "c"), 5)
        assert not sending.done()
        sending.cancel()
        return message.arrays["c"]

    assert asyncio.run(run()).shape[0] > 0
