"""What a scheme cannot do at a cut is refused: errors that reach leading bits, numbers too wide to multiply."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import securevfl_crypto as crypto
from support.cuts import link_in_memory, sealed

from securevfl.cut.auto import time_step
from securevfl.cut.blocks import block_sizes, check_errors
from securevfl.cut.spec import CutSpec
from securevfl.errors import RangeError

SPEC = CutSpec(width=3, lr=0.5, batch_size=8)
CKKS = crypto.CKKS()

COARSE = (
    ({"batch_size": 1, "lr": 10.0}, 64),
    ({"batch_size": 16, "lr": 10.0, "activation_bound": 300.0}, 64),
    ({"batch_size": 64, "lr": 10.0, "activation_bound": 300.0, "momentum": 0.9}, 64),
)


@pytest.mark.parametrize(("change", "width"), COARSE)
def test_an_approximate_scheme_that_would_err_too_far_is_refused(change: dict[str, Any], width: int) -> None:
    """With few fractional bits of weights CKKS's error reaches their leading ones; exact schemes go on."""
    spec = replace(SPEC, **change)
    key = CKKS.generate_key()
    with pytest.raises(crypto.OverflowRefused, match="BFV or Paillier"):
        check_errors(CKKS.create_owner(key, block_sizes(spec, width, width)[0]), spec, 1)
    with pytest.raises(crypto.OverflowRefused, match="BFV or Paillier"):
        time_step(CKKS, spec, width)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_at_usual_settings_the_error_is_small_and_counts_for_each_holder(momentum: float) -> None:
    spec = CutSpec(width=16, lr=0.5, batch_size=256, momentum=momentum)
    owner = CKKS.create_owner(CKKS.generate_key(), block_sizes(spec, 32, 32)[0])
    check_errors(owner, spec, 16)
    with pytest.raises(crypto.OverflowRefused):
        check_errors(owner, spec, 1 << 40)


def test_a_cut_refuses_to_be_set_up_with_a_coarse_scheme() -> None:
    spec = replace(SPEC, batch_size=1, lr=10.0)
    world = link_in_memory(passive=("p1",))
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
    time_step(crypto.BFV(), spec, 4)
    with pytest.raises(crypto.OverflowRefused, match="can be multiplied"):
        time_step(crypto.BFV(), replace(spec, trainable=True), 4)
