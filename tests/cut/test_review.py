"""What a review of the sealed cut found: ranges of integers, errors of approximate schemes, shares of other rings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import securevfl_crypto as crypto
import torch
from cuts import Kit, sealed, sites
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.integers import uniform_masks

from securevfl.cut.auto import measure
from securevfl.cut.base import CutSpec
from securevfl.cut.handshake import announce, receive_widths
from securevfl.cut.integers import fixed_noise
from securevfl.cut.sealed import blocks, check_errors
from securevfl.errors import InputError, ProtocolError, RangeError
from securevfl.transport import Kind

SPEC = CutSpec(width=3, lr=0.5, batch_size=8)
CKKS = crypto.CKKS()


def test_noise_on_z_is_what_was_drawn_or_refused() -> None:
    """At small learning rates z has so many fractional bits that larger noise leaves a word; a cast would make all of
    it one number, which hides nothing."""
    point = CutSpec(width=3, lr=1e-3, batch_size=1024, activation_bound=512.0).fixed_point
    assert point.z_bits > 64
    largest = 2.0 ** (62 - point.fz)
    noise = torch.tensor([[0.999 * largest, -0.999 * largest, 0.3]], dtype=torch.float64)
    assert fixed_noise(noise, point) * 2.0**-point.fz == pytest.approx(noise.numpy())
    for value in (largest, -largest, 1e3 * largest):
        with pytest.raises(RangeError, match="noise on z"):
            fixed_noise(torch.full((1, 3), value, dtype=torch.float64), point)


COARSE = (
    ({"batch_size": 1, "lr": 10.0}, 64),
    ({"batch_size": 16, "lr": 10.0, "activation_bound": 300.0}, 64),
    ({"batch_size": 64, "lr": 10.0, "activation_bound": 300.0, "momentum": 0.9}, 64),
)


@pytest.mark.parametrize(("change", "width"), COARSE)
def test_an_approximate_scheme_that_would_err_too_far_is_refused(change: dict[str, Any], width: int) -> None:
    """With few fractional bits of weights CKKS's error reaches their leading ones; exact schemes go on."""
    spec = replace(SPEC, **change)
    key = CKKS.generate()
    with pytest.raises(crypto.OverflowRefused, match="BFV or Paillier"):
        check_errors(CKKS.owner(key, blocks(spec, width, width)[0]), spec, 1)
    with pytest.raises(crypto.OverflowRefused, match="BFV or Paillier"):
        measure(CKKS, spec, width)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_at_usual_settings_the_error_is_small_and_counts_for_each_holder(momentum: float) -> None:
    spec = CutSpec(width=16, lr=0.5, batch_size=256, momentum=momentum)
    owner = CKKS.owner(CKKS.generate(), blocks(spec, 32, 32)[0])
    check_errors(owner, spec, 16)
    with pytest.raises(crypto.OverflowRefused):
        check_errors(owner, spec, 1 << 40)


def test_a_cut_refuses_to_be_set_up_with_a_coarse_scheme() -> None:
    spec = replace(SPEC, batch_size=1, lr=10.0)
    world = sites(passive=("p1",))
    kit = sealed(CKKS)

    async def together() -> None:
        there = asyncio.ensure_future(kit.passive(world["p1"], spec).setup(4, trainable=False))
        with pytest.raises(RangeError, match="error can reach"):
            await kit.active(world["a"], spec).setup()
        await there

    asyncio.run(together())


def test_auto_does_not_offer_what_cannot_carry_the_gradient_back() -> None:
    """Rows of ``S Wᵀ`` are steps; where noise on gradients makes them wider than a lattice scheme multiplies, such a
    scheme can do for identity bottoms only."""
    spec = replace(SPEC, gradient_bound=float(1 << 20), trainable=False)
    assert spec.fixed_point.s_bits > 30
    measure(crypto.BFV(), spec, 4)
    with pytest.raises(crypto.OverflowRefused, match="can be multiplied"):
        measure(crypto.BFV(), replace(spec, trainable=True), 4)


def _once(kit: Kit, states: dict[str, object] | None) -> dict[str, object]:
    """Set up, restore `states`, score; both sides' states after a step."""
    world, kept = sites(passive=("p1",)), {}
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
    bfv, ckks = sealed(crypto.BFV()), sealed(CKKS)
    states = _once(bfv, None)
    _once(bfv, states)
    with pytest.raises(ProtocolError, match="made under another scheme"):
        _once(ckks, states)


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 0},
        {"batch_size": 1 << 25},
        {"activation_bound": 0.0},
        {"activation_bound": float("nan")},
        {"gradient_bound": float("inf")},
        {"gradient_bound": -1.0},
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"at the cut|the cut's batch"):
        replace(SPEC, **change)


def test_a_width_that_is_no_number_is_refused() -> None:
    world = sites(passive=("p1",))
    meta = {"job": "j", "protection": "bfv", "h": SPEC.width, "width": True, "trainable": False}

    async def together() -> None:
        await world["p1"].links["a"].send(Kind.CONTROL, "cut/setup", meta=meta)
        with pytest.raises(ProtocolError, match="True wide"):
            await sealed(crypto.BFV()).active(world["a"], SPEC).setup()

    asyncio.run(together())


@pytest.mark.parametrize(("width", "fits"), [(1 << 19, True), ((1 << 19) + 1, False)])
def test_a_block_of_too_many_weights_is_refused_before_it_is_drawn(width: int, fits: bool) -> None:
    world, spec = sites(passive=("p1",)), replace(SPEC, width=32)

    async def received() -> object:
        await announce(world["p1"], spec, "bfv", width, trainable=False)
        return await receive_widths(world["a"], spec, "bfv")

    if fits:
        assert asyncio.run(received()) == {"p1": (width, False)}
    else:
        with pytest.raises(ProtocolError, match=f"{width * 32} weights for a cut 32 wide; 16777216 are possible"):
            asyncio.run(received())


SMALL = crypto.Ring(1 << 60)
SIZES = crypto.Block(
    batch=256, width_in=2, width_out=3, x_bits=15, s_bits=19, w_bits=39, z_bits=57, integer_shares=True
)


def _values(*numbers: int) -> np.ndarray:
    found = np.empty((len(numbers), 1), dtype=object)
    found[:, 0] = numbers
    return found


def test_a_state_of_a_larger_ring_is_refused_and_integers_go_anywhere() -> None:
    rule = crypto.Rule()
    share = crypto.Share(SMALL, _values(1, 2), rule)
    with pytest.raises(MalformedError, match="made under another scheme"):
        share.load(_values(5, 1 << 63), None)
    with pytest.raises(MalformedError, match="was expected"):
        share.load(_values(5), None)
    assert share.values[:, 0].tolist() == [1, 2]
    share.load(_values(-5, 1 << 79), None)
    assert share.values[:, 0].tolist() == [(1 << 60) - 5, 0]
    whole = crypto.Share(crypto.Ring(), _values(0, 0), rule)
    whole.load(_values(-5, 1 << 79), None)
    assert whole.values[:, 0].tolist() == [-5, 1 << 79]
    share.load(*crypto.Share(SMALL, _values(3, 4), rule).state())
    assert share.values[:, 0].tolist() == [3, 4]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([0.0, 0.5, 0.99]), st.sampled_from([0.0, 1e-3, 0.9]), st.booleans())
def test_changes_of_shares_fit_their_bytes_however_long_momentum_lasts(mu: float, decay: float, aligned: bool) -> None:
    """Velocities are never shared anew; with every mask at its bound they reach 1/(1 − μ) times one of them."""
    rule, ring, shape = crypto.Rule(momentum=mu, decay=decay), crypto.Ring(), (2, 3)
    share = crypto.Share(ring, np.zeros(shape, dtype=object), rule)
    most = np.full(shape, 1 << SIZES.phi_bits, dtype=object)
    fresh = np.full(shape, -(1 << SIZES.share_bits), dtype=object)
    for _ in range(600):
        share.step(most if aligned else uniform_masks(shape, SIZES.phi_bits))
        change = share.replace(fresh if aligned else uniform_masks(shape, SIZES.share_bits))
        crypto.bigints_to_bytes(change, SIZES.share_bytes)
