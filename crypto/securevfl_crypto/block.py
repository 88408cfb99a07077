"""How large the integers at a sealed cut can become. Decided before anything is encrypted; every scheme sizes its
plaintexts by it."""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.errors import MalformedError

__all__ = ["Block"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Magnitudes, in bits, of the integers at one block of shared weights W = U + V, (d, h).

    Rows x (B, d) and steps S (B, h) are integers as the cut's fixed point makes them; ``z = x W``, and the gradient
    is ``xᵀS``, whose fixed point is that of W, so that ``W ← W − xᵀS`` needs no rounding.

    Attributes:
        batch: most rows of a gradient, B; a product takes any number of rows.
        width_in: d.
        width_out: h.
        x_bits: \\|x\\| < 2^x_bits.
        s_bits: \\|S\\| < 2^s_bits.
        w_bits: weights are assumed below 2^w_bits; nobody can check, z is checked instead.
        z_bits: z has to stay below a quarter of 2^z_bits, whoever opens it checks.
        integer_shares: shares and gradient shares have to be integers that never wrap (momentum and weight decay
            round each share by itself); otherwise a scheme may share modulo its plaintext's modulus.
        sigma: statistical security of what hides integers, in bits.
        widest: the largest d among the holders whose products are added up; 0 for this block's own. Their messages
            must be laid out alike, and a layout may depend on it.
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
                raise MalformedError(f"{name} is {getattr(self, name)}; at least 1 (and at most 2^24) is possible")
        if self.widest and not self.width_in <= self.widest <= 1 << 24:
            raise MalformedError(f"widest is {self.widest}, and this block's own width is {self.width_in}")

    @property
    def gradient_bits(self) -> int:
        """Magnitude of xᵀS."""
        return self.x_bits + self.s_bits + self.batch.bit_length()

    @property
    def phi_bits(self) -> int:
        """Magnitude of an integer Φ that hides xᵀS to 2^-sigma."""
        return self.gradient_bits + self.sigma

    @property
    def share_bits(self) -> int:
        """Magnitude of an integer share U that hides a weight to 2^-sigma."""
        return self.w_bits + self.sigma

    @property
    def share_bytes(self) -> int:
        """Bytes of one integer share, or of the change of one, on the wire."""
        return (max(self.share_bits, self.phi_bits) + 16 + 7) // 8
