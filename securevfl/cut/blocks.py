"""How large the integers of a sealed cut get, and whether an approximate scheme is near enough to them."""

from __future__ import annotations

from dataclasses import replace

import securevfl_crypto as crypto

from securevfl.cut.spec import CutSpec

__all__ = ["SIGMA", "block_sizes", "check_errors", "with_integer_shares"]

SIGMA = 40
"""Statistical security of the masks on integers, in bits."""
_KEPT_BITS = 12
"""Fractional bits that approximate schemes have to leave intact in z and in each step of the weights: those that
activations have."""


def block_sizes(spec: CutSpec, width: int, widest: int) -> tuple[crypto.Block, crypto.Block]:
    """Sizes of the integers of one passive party's block: for the forward product and the weight gradient, whose owner
    is the active party; and for ``S Wᵀ``, whose owner is the passive party.

    Args:
        spec: of the cut.
        width: d_p.
        widest: the largest d among the passive parties.
    """
    point = spec.fixed_point
    forward = crypto.Block(
        batch=spec.batch_size,
        width_in=width,
        width_out=spec.width,
        x_bits=point.fx + point.x_int_bits,
        s_bits=point.s_bits,
        w_bits=point.weight_fraction_bits + 4,
        z_bits=point.z_bits,
        integer_shares=spec.integer_shares or spec.optimiser_rule.rounds,
        sigma=SIGMA,
        widest=widest if spec.reduce == "sum" else 0,
    )
    back = crypto.Block(
        batch=spec.batch_size,
        width_in=spec.width,
        width_out=width,
        x_bits=point.s_bits,
        s_bits=1,
        w_bits=point.weight_fraction_bits + 4,
        z_bits=point.back_bits,
        integer_shares=spec.integer_shares or spec.optimiser_rule.rounds,
        sigma=SIGMA,
    )
    return forward, back


def check_errors(owner: crypto.Owner, spec: CutSpec, holders: int) -> None:
    """Whether an approximate scheme is near enough to the exact integers of this job: its errors grow with the bound on
    activations, the rows and the columns of a batch, and weigh the more the fewer fractional bits weights have.

    Args:
        owner: the active party's half of a block.
        spec: of the cut.
        holders: whose products are added up.

    Raises:
        securevfl_crypto.OverflowRefused: z, or one step of a weight, can be off by 2^-12 or more.
    """
    point = spec.fixed_point
    z, step = (
        holders * owner.product_error * 2.0**-point.z_fraction_bits,
        owner.gradient_error * 2.0**-point.weight_fraction_bits,
    )
    if max(z, step) >= 2.0**-_KEPT_BITS:
        raise crypto.OverflowRefused(
            f"the scheme's error can reach {z:.2g} in z and {step:.2g} in a step of a weight; it has to stay below "
            f"{2.0**-_KEPT_BITS:.2g}: use BFV or Paillier, which are exact, a lower learning rate at the cut, no "
            "momentum or decay of the cut's weights, or a smaller bound on activations"
        )


def with_integer_shares(forward: crypto.Block, back: crypto.Block) -> tuple[crypto.Block, crypto.Block]:
    """Both blocks with integer shares: for schemes whose two products need rings of different sizes."""
    return replace(forward, integer_shares=True), replace(back, integer_shares=True)
