"""Shares of weights: those of another scheme are refused, changes fit their bytes."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import securevfl_crypto as crypto
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.integers import uniform_masks
from support.cuts import Kit, link_in_memory, sealed

from securevfl.cut.spec import CutSpec
from securevfl.errors import ProtocolError

SPEC = CutSpec(width=3, lr=0.5, batch_size=8)


def _once(kit: Kit, states: dict[str, object] | None) -> dict[str, object]:
    """Set up, restore `states`, score; both sides' states after a step."""
    world, kept = link_in_memory(passive=("p1",)), {}
    x, g = torch.linspace(-1, 1, 32).reshape(8, 4), torch.linspace(-1, 1, 24).reshape(8, 3) / 8

    async def active() -> None:
        cut = kit.active(world["a"], SPEC)
        await cut.setup()
        if states is not None:
            cut.restore(states["a"])
        await cut.forward(8, train=True)
        await cut.backward(g)
        kept["a"] = cut.snapshot()

    async def passive() -> None:
        cut = kit.passive(world["p1"], SPEC)
        await cut.setup(4, trainable=False)
        if states is not None:
            cut.restore(states["p1"])
        await cut.forward(x, train=True)
        await cut.backward()
        kept["p1"] = cut.snapshot()

    async def together() -> None:
        await asyncio.gather(active(), passive())

    asyncio.run(together())
    return kept


def test_shares_of_another_ring_are_refused() -> None:
    """Modulo CKKS's modulus, shares of BFV add up to weights that are off by a little: nothing else would notice."""
    bfv, ckks = sealed(crypto.BFV()), sealed(crypto.CKKS())
    states = _once(bfv, None)
    _once(bfv, states)
    with pytest.raises(ProtocolError, match="comes from another scheme"):
        _once(ckks, states)


SMALL = crypto.Ring(1 << 60)
SIZES = crypto.Block(
    batch=256, width_in=2, width_out=3, x_bits=15, s_bits=19, w_bits=39, z_bits=57, integer_shares=True
)


def _values(*numbers: int) -> np.ndarray:
    found = np.empty((len(numbers), 1), dtype=object)
    found[:, 0] = numbers
    return found


def test_a_state_of_a_larger_ring_is_refused_and_integers_go_anywhere() -> None:
    rule = crypto.OptimiserRule()
    share = crypto.WeightShare(SMALL, _values(1, 2), rule)
    with pytest.raises(MalformedError, match="comes from another scheme"):
        share.load(_values(5, 1 << 63), None)
    with pytest.raises(MalformedError, match="; expected"):
        share.load(_values(5), None)
    assert share.values[:, 0].tolist() == [1, 2]
    share.load(_values(-5, 1 << 79), None)
    assert share.values[:, 0].tolist() == [(1 << 60) - 5, 0]
    whole = crypto.WeightShare(crypto.Ring(), _values(0, 0), rule)
    whole.load(_values(-5, 1 << 79), None)
    assert whole.values[:, 0].tolist() == [-5, 1 << 79]
    share.load(*crypto.WeightShare(SMALL, _values(3, 4), rule).state())
    assert share.values[:, 0].tolist() == [3, 4]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([0.0, 0.5, 0.99]), st.sampled_from([0.0, 1e-3, 0.9]), st.booleans())
def test_changes_of_shares_fit_their_bytes_however_long_momentum_lasts(mu: float, decay: float, aligned: bool) -> None:
    """Velocities are never shared anew; with every mask at its bound they reach 1/(1 − μ) times one of them."""
    rule, ring, shape = crypto.OptimiserRule(momentum=mu, decay=decay), crypto.Ring(), (2, 3)
    share = crypto.WeightShare(ring, np.zeros(shape, dtype=object), rule)
    most = np.full(shape, 1 << SIZES.phi_bits, dtype=object)
    fresh = np.full(shape, -(1 << SIZES.share_bits), dtype=object)
    for _ in range(600):
        share.step(most if aligned else uniform_masks(shape, SIZES.phi_bits))
        change = share.replace(fresh if aligned else uniform_masks(shape, SIZES.share_bits))
        crypto.bigints_to_bytes(change, SIZES.share_bytes)
