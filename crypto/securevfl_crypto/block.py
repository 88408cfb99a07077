"""Bounds on the integers at a sealed cut, in bits. Both parties fix them before anything is encrypted."""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.errors import MalformedError

__all__ = ["Block"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Magnitudes, in bits, of the integers at one block of shared weights W = U + V, (d, h).

    Rows x (B, d) and steps S (B, h) are fixed-point integers, scaled by the cut. ``z = x W``. The gradient ``xᵀS`` has
    the same scale as W, so ``W ← W − xᵀS`` needs no rounding.

    Attributes:
        batch: B, the largest number of rows of a gradient; a product takes any number of rows.
        width_in: d.
        width_out: h.
        x_bits: \\|x\\| < 2^x_bits.
        s_bits: \\|S\\| < 2^s_bits.
        w_bits: \\|W\\| < 2^w_bits is assumed; no party knows W and can check it, so the owner checks z instead.
        z_bits: \\|z\\| must stay below a quarter of 2^z_bits; the party that opens z checks it.
        integer_shares: whether shares of weights and gradients must be integers that never wrap (momentum and weight
            decay round each share separately). Otherwise a scheme may share modulo its plaintext modulus.
        sigma: statistical security, in bits, of the masks on integers.
        widest: the largest d among the holders whose products are added; 0 for this block's d. All of their messages
            must have the same layout, which may depend on d.

    Raises:
        MalformedError: a size is out of range.
    """

    batch: int
    width_in: int
    width_out: int
    x_bits: int
    s_bits: int
    w_bits: int
    z_bits: int
    integer_shares: bool = False
    sigma: int = 40
    widest: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "width_in", "width_out", "x_bits", "s_bits", "w_bits", "z_bits", "sigma"):
            if not 1 <= getattr(self, name) <= 1 << 24:
                raise MalformedError(f"{name} is {getattr(self, name)}; expected 1 to 2^24")
        if self.widest and not self.width_in <= self.widest <= 1 << 24:
            raise MalformedError(f"widest is {self.widest}; expected 0, or this block's width {self.width_in} to 2^24")

    @property
    def gradient_bits(self) -> int:
        """Bits of xᵀS."""
        return self.x_bits + self.s_bits + self.batch.bit_length()

    @property
    def phi_bits(self) -> int:
        """Bits of an integer mask Φ that hides xᵀS up to a statistical distance of 2^-sigma."""
        return self.gradient_bits + self.sigma

    @property
    def share_bits(self) -> int:
        """Bits of an integer share U that hides a weight up to a statistical distance of 2^-sigma."""
        return self.w_bits + self.sigma

    @property
    def share_bytes(self) -> int:
        """Bytes of one integer share, or of its change, in a message."""
        return (max(self.share_bits, self.phi_bits) + 16 + 7) // 8
