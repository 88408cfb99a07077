"""Parties kept apart (``reduce="none"``): each party's part of z by itself, and a gradient for each."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.cuts import KITS, SEALED, Kit, link_in_memory

import securevfl as sv
from securevfl.cut.spec import CutSpec
from securevfl.party_context import PartyContext
from securevfl.transport import Kind

WIDTHS = {"p1": 4, "p2": 2, "p3": 3}
APART = CutSpec(width=3, lr=0.5, batch_size=8, reduce="none")
ROWS = (8, 5, 1)


class Seen:
    """What a run of some steps showed: z, gradients at the activations, and z of the first batch at the end."""

    def __init__(self, passive: tuple[str, ...]) -> None:
        rng = np.random.default_rng(0)
        self.passive = passive
        self.a = [{p: torch.from_numpy(rng.normal(size=(n, WIDTHS[p]))).float() for p in WIDTHS} for n in ROWS]
        grads = [rng.normal(size=(len(WIDTHS), n, APART.width)) / 8 for n in ROWS]
        self.g = [torch.from_numpy(grad[: len(passive)]).float() for grad in grads]
        self.z: list[torch.Tensor] = []
        self.back: dict[str, list[torch.Tensor | None]] = {p: [] for p in passive}
        self.sites: dict[str, PartyContext] = {}


def drive(kit: Kit, passive: tuple[str, ...], *, trainable: bool) -> Seen:
    seen = Seen(passive)
    seen.sites = link_in_memory(passive=passive)

    async def active() -> None:
        cut = kit.active(seen.sites["a"], APART)
        await cut.setup()
        for rows, gradient in zip(ROWS, seen.g, strict=True):
            seen.z.append(await cut.forward(rows, train=True))
            await cut.backward(gradient)
        kept = cut.snapshot()
        seen.z.append(await cut.forward(ROWS[0], train=False))
        cut.restore(kept)
        seen.z.append(await cut.forward(ROWS[0], train=False))

    async def one(name: str) -> None:
        cut = kit.passive(seen.sites[name], APART)
        await cut.setup(WIDTHS[name], trainable=trainable)
        for a in seen.a:
            await cut.forward(a[name], train=True)
            seen.back[name].append(await cut.backward())
        kept = cut.snapshot()
        await cut.forward(seen.a[0][name], train=False)
        cut.restore(kept)
        await cut.forward(seen.a[0][name], train=False)

    async def together() -> None:
        await asyncio.gather(active(), *(one(name) for name in passive))

    asyncio.run(together())
    return seen


CASES = [
    (name, parties, trainable)
    for name in SEALED
    for parties in ((1, 2, 3) if "no cipher" in name else (1, 3))
    for trainable in (True, False)
    if parties == 3 or trainable or "no cipher" in name
]
"""All numbers of parties without a cipher; with one, the fewest and the most, as under `check_protection`
two with and one without trainable bottoms."""


@pytest.mark.parametrize(("scheme", "parties", "trainable"), CASES)
def test_sealed_equals_fixed_point(scheme: str, parties: int, trainable: bool) -> None:
    kit = SEALED[scheme]
    passive = tuple(WIDTHS)[:parties]
    plain, sealed = (drive(one, passive, trainable=trainable) for one in (KITS["fixed point"], kit))
    for one, other in zip(plain.z, sealed.z, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=kit.error)
    for name in passive if trainable else ():
        for one, other in zip(plain.back[name], sealed.back[name], strict=True):
            assert one is not None
            assert other is not None
            assert torch.allclose(one, other, rtol=0, atol=kit.error)
    kinds = {entry.kind for site in sealed.sites.values() for entry in site.ledger.entries}
    assert kinds <= {Kind.CONTROL, Kind.PUBLIC_KEY, Kind.CIPHERTEXT, Kind.MASKED_SHARE}
    between = {entry.peer for name in passive for entry in sealed.sites[name].ledger.entries}
    assert between == {"a"}  # no masks between passive parties: nothing cancels where nothing is added


@pytest.mark.parametrize("kit", ["plain", "fixed point"])
def test_without_passive_parties_there_is_no_part(kit: str) -> None:
    async def alone() -> torch.Tensor:
        cut = KITS[kit].active(link_in_memory(passive=())["a"], APART)
        await cut.setup()
        z = await cut.forward(4, train=True)
        await cut.backward(torch.zeros(0, 4, 3))
        return z

    assert asyncio.run(alone()).shape == (0, 4, 3)


def test_other_reductions_are_refused() -> None:
    with pytest.raises(sv.InputError, match="'sum' and 'none'"):
        replace(APART, reduce="mean")
