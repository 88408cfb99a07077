"""The sum of a job's statistical distances: counted number by number, and told."""

from __future__ import annotations

import asyncio

import pytest
import torch
from support.cuts import SEALED, Kit, link_in_memory

import securevfl as sv
from securevfl.cut.hiding_count import HidingCount
from securevfl.cut.protections import Sealed
from securevfl.cut.spec import CutSpec, CutUse
from securevfl.transport import ACTIVE, Kind

# one passive party, d = 4, h = 3; two training steps of 8 rows, one look at 5
BY_HAND = {
    "bfv": 2 * (8 * 3 + 32) + (5 * 3 + 32) + 2 * 4 * 3,  # entries and 32 checked places a tile; gradients
    "ckks": 2 * (8 * 3 + 32) + (5 * 3 + 32) + 2 * 4 * 3,
    "integers, no cipher": 2 * 8 * 3 + 5 * 3 + 2 * 3 * 4 * 3,  # with a mask and a new share for each weight
}


@pytest.mark.parametrize("name", list(BY_HAND))
def test_a_cut_tells_what_its_messages_add_up_to(name: str) -> None:
    world, spec, kit = link_in_memory(passive=("p1",)), CutSpec(width=3, lr=0.5, batch_size=8), SEALED[name]
    asyncio.run(_two_steps(world, spec, kit))
    (note,) = world["p1"].notes
    assert note.startswith(f"of what 'p1' answered under {kit.name}, {BY_HAND[name]} numbers are hidden to 2^-40 each")
    assert world["a"].notes == [], "with identity bottoms the active party answers nothing"


async def _two_steps(world: object, spec: CutSpec, kit: Kit) -> None:
    assert isinstance(world, dict)

    async def active() -> None:
        cut = kit.active(world["a"], spec)
        await cut.setup()
        for _ in range(2):
            await cut.forward(8, train=True)
            await cut.backward(torch.zeros(8, 3))
        await cut.forward(5, train=False)

    async def passive() -> None:
        cut = kit.passive(world["p1"], spec)
        await cut.setup(4, trainable=False)
        for _ in range(2):
            await cut.forward(torch.ones(8, 4), train=True)
            await cut.backward()
        await cut.forward(torch.ones(5, 4), train=False)

    await asyncio.gather(active(), passive())


def test_distances_add_up() -> None:
    """A million numbers of 2^-40 are 2^-20: 2^20 of them exactly."""
    notes = ["before"]
    hidden = HidingCount(notes, "p", "bfv", 40)
    hidden.add(0)
    assert notes == ["before"]
    assert hidden.distance_bits == float("inf")
    for _ in range(4):
        hidden.add(1 << 18)
        notes.append("between") if len(notes) == 2 else None
    assert hidden.distance_bits == 20
    assert notes[1:] == [
        "of what 'p' answered under bfv, 1,048,576 numbers are hidden to 2^-40 each, and so to 2^-20.0 all together",
        "between",
    ]


@pytest.mark.parametrize("protection", [sv.BFV(), sv.CKKS(), sv.Paillier(), sv.Auto()], ids=lambda p: str(p.name))
def test_with_identity_bottoms_a_passive_party_opens_nothing_that_depends_on_z(protection: Sealed) -> None:
    """What an answer opens at the active party comes back only inside ciphertexts under the active party's key. With
    trainable bottoms the passive party opens its gradient."""
    for trainable in (False, True):
        sent = [e for e in protection.exchanges(CutUse(trainable=trainable), 2) if e.sender == ACTIVE]
        assert {e.kind for e in sent} <= {Kind.PUBLIC_KEY, Kind.CIPHERTEXT, Kind.CONTROL}
        assert {e.step for e in sent if e.kind is Kind.CONTROL} <= {"cut/probe", "cut/choice"}  # before any z
        assert [e.step for e in sent if e.opened] == (["cut/input gradient"] if trainable else [])
